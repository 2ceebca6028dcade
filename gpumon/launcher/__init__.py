"""The launcher of `gpumon run`: starts a command, observes it, and does not disturb it.

The main thread only forwards signals and waits; it starts the command before other modules are loaded
(`child_process`). `watcher` observes the command in a separate thread, `process_tree` finds its processes, and
`summary` sums its cost and prints it at the end.
"""
