"""Launcher of `gpumon run`: starts a command, observes it, and never stands in its way.

The main thread does nothing but pass signals on and wait (`child`); it starts the command before anything
else is loaded. `watcher` observes in a thread of its own, on frames that `sampling` gives; `process_tree` says
which processes are the command's, `cost` adds up, `command_run` publishes the command as a run, `summary`
says at exit what it cost.
"""
