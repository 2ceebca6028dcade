"""`python -m gpumon` is `gpumon`."""

import sys

from gpumon.cli import entry

if __name__ == "__main__":
    sys.exit(entry())
