"""Entry point of the script `gpumon`.

It is outside the package so that it runs before the imports of gpumon: Ctrl-C during these ends the process by the
signal, without a traceback. `gpumon.cli` turns Ctrl-C into KeyboardInterrupt while a command runs.
"""

try:
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except KeyboardInterrupt:
    raise SystemExit(130) from None


def entry() -> int:
    """Run the command line. Return the exit code."""
    from gpumon import cli

    return cli.entry()
