"""What `gpumon run` does beside a command: it looks on, and never stands in the way.

The main thread does nothing but pass signals on and wait (`child`); it starts the command before anything
else is loaded. `watching` looks on in a thread of its own, on frames that `sampling` gives; `tree` tells
which processes are the command's, `cost` adds up, `notice` publishes the command as a run, `table`
says in the end what it cost.
"""
