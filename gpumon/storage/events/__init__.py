"""The event log: what happened to GPUs, runs, the driver and the daemon, and when. It is kept for a year."""
