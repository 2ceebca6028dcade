"""Values that all views compute from frames in the same way: states of GPUs, epochs, ranks, progress and memory."""
