"""The only place that knows both sides: a sampler's ticks go into a ring.

`Recorder` does it for a daemon, into a directory, and for a view without a daemon, into memory of
its own process.
"""
