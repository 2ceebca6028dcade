"""The ledger: runs and epochs that are kept for ever.

`schema` is the table of tables; `recorder` (in the daemon) takes ticks, `rank`, `device` and `timeline` cut them at the
training's boundaries, `store` writes. `reader` gives `records` back, `aggregate` joins them over ranks and devices.
"""
