"""Publishes the state of a training in a file, its board, and reads the boards in the daemon."""
