"""Runs the command line with `python -m gpumon`."""

import sys

from gpumon_command import entry

if __name__ == "__main__":
    sys.exit(entry())
