"""The event log: events of GPUs, runs, the driver and the daemon, with their times. Events are kept for a year."""
