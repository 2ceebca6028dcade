"""The event log: what happened to GPUs, runs, the driver and the daemon, at exact times, for a year."""
