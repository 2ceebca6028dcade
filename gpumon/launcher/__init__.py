"""The launcher of `gpumon run`: starts a command, and observes it without disturbing it.

The main thread only forwards signals and waits. It starts the command before other modules are loaded
(`child_process`). `watcher` observes the command in a separate thread. `process_tree` finds the processes of the
command. `summary` adds up their cost and prints it at the end.
"""
