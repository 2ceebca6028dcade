"""The launcher of `gpumon run`: starts a command, and observes it without disturbing it.

The main thread only forwards signals and waits; it starts the command before other modules are loaded
(`child_process`). `watcher` observes the command in a separate thread, `process_tree` finds its processes, and
`summary` adds up its cost and prints it at the end.
"""
