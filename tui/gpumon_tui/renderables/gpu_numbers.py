"""GPUs of a run in few cells: their numbers as spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def numbers(uuids: Sequence[str], labels: Mapping[str, str]) -> str:
    """Devices by their labels: `0–3`, `0,5`, of MIG instances `0:1`; empty where none is known."""
    known = [label for uuid in uuids if (label := labels.get(uuid))]
    spans: list[list[int]] = []
    for index in sorted(int(label) for label in known if label.isdecimal()):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    whole = [str(first) if first == last else f"{first}–{last}" for first, last in spans]
    return ",".join((*whole, *sorted(label for label in known if not label.isdecimal())))
