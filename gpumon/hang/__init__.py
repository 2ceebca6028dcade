"""Finds out why a run hangs: the state and the Python stacks of each of its processes, and a sentence about the cause.

Only a program of the run's own user collects this: `gpumon hang`, `gpumon notify`, or a daemon of that user. A daemon
of another user only detects, from the boards, that a run is stalled. Signals, `/proc/<pid>/fd` and tracing (ptrace(2))
are permitted only to the owner of a process and to root. Root collects only for runs of root, because stacks contain
names of files and functions of a user's program.
"""
