"""Why a run hangs: the state and the Python stacks of each of its processes, and one sentence that names the cause.

Who collects: a process of the user to whom the run belongs: `gpumon hang`, `gpumon notify`, or a daemon of that user. A
daemon of another user only detects that a run is stalled, for which it needs nothing but the boards. The reasons are
the rules of the kernel and of the user. Signals, `/proc/<pid>/fd` and tracing (ptrace(2)) are permitted only to the
owner of a process and to root. And root collects only for runs of root, because stacks name files and functions of a
user's program.
"""
