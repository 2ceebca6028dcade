"""Launcher of `gpumon run`: starts a command, observes it, and never interferes with it.

The main thread only forwards signals and waits (`command`); it starts the command before any other module is loaded.
`watcher` observes the command in a thread of its own, `process_tree` finds the command's processes, and `summary` adds
up its cost and prints it at exit.
"""
