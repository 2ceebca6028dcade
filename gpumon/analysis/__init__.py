"""What all views compute from frames in the same way: states of GPUs, epochs, ranks, progress, memory."""
