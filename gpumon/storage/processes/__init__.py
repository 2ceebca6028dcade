"""The history of the processes on GPUs, with their names and users, when they ran, and how much they used."""
