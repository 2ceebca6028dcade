"""Writes the values of each epoch to the loggers of a training process: `gpumon.run(log_to=...)`,
`GpuMonitor(log_to=...)`.

A training imports this package only if it uses `log_to`. A thread reads the ledger (`epoch_reader`). The training's own
thread writes (`epoch_log`) to the loggers that are listed in `registry`. Each logger has its own module.
"""
