"""What a training publishes about itself, and how the daemon reads it."""
