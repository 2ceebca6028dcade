"""Values of each epoch for the loggers of a training: `gpumon.run(log_to=...)`, `GpuMonitor(log_to=...)`.

A training imports this only if it uses `log_to`. A thread reads the ledger (`epoch_reader`), the training's own thread
writes (`epoch_log`) to the loggers of `registry`, of which each has a file.
"""
