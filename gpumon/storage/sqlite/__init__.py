"""SQLite files in the state directory: opened to write by the daemon, opened to read by everything else."""
