"""Writes a tree and keeps its values moving: `python -m tests.drm FOLDER MACHINE... [--once]`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.drm import trees
from tests.drm.trees import Card, Tree

MACHINES = {
    "rx7900": [trees.rx7900()],
    "mi300x": [trees.mi300x(number) for number in range(2)],
    "cpx": [trees.mi300x(0, partitions=8)],
    "mi250x": [trees.mi250x(0), trees.mi250x(1)],
    "apu": [trees.apu()],
    "strix": [trees.strix_halo()],
    "bare": [trees.without_hwmon()],
    "asleep": [trees.asleep()],
    "arc": [trees.arc()],
    "battlemage": [trees.battlemage()],
    "intel": [trees.intel_integrated()],
}


def main() -> None:
    folder, *names = [word for word in sys.argv[1:] if not word.startswith("-")]
    cards: list[Card] = [card for name in names for card in MACHINES[name]]
    tree = Tree(Path(folder), cards)
    begin = time.monotonic()
    while "--once" not in sys.argv:
        tree.write(time.monotonic() - begin)
        time.sleep(0.25)


if __name__ == "__main__":
    main()
