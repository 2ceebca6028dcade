"""Entry point of the script `gpumon` and of `python -m gpumon`.

Ctrl-C during the imports of a command ends the process by the signal, without a traceback. `gpumon.cli` turns Ctrl-C
into KeyboardInterrupt while a command runs.
"""

try:
    import signal
    import sys

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except KeyboardInterrupt:
    raise SystemExit(130) from None


def entry() -> int:
    """Run the command line. Return the exit code."""
    from gpumon import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(entry())
