"""History of the processes on GPUs: their identity, when they were there, and their usage."""
