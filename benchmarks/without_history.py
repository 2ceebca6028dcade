"""`gpumon` whose daemon keeps no history, to see what that costs: python -m benchmarks.without_history daemon"""

import sys

from gpumon.cli import main
from gpumon.daemon import service

if __name__ == "__main__":
    assert "_open_history" in vars(service), "the daemon opens its history elsewhere: change it here, too"
    vars(service)["_open_history"] = lambda *_: None
    sys.exit(main())
