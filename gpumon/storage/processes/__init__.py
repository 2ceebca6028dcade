"""History of the processes on GPUs: who they were, when they ran, and how much they used."""
