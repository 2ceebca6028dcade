"""Rows of a run beside its epochs, as data: its steps, all that lies outside epochs, and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpumon.common.numbers import shown
from gpumon.diagnosis.past_findings import is_partly_sampled
from gpumon.reports import run_json
from gpumon.reports.run_tables import BETWEEN, outside_rows
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochSummary, EpochSums
from gpumon_web.epoch_cells import EPOCH

WHOLE = "Whole run"
_TITLE = {BETWEEN: "Between epochs"}


def stretches(
    record: Record, epochs: Sequence[EpochSummary] | EpochSums, total: EpochSummary
) -> list[dict[str, Any]]:  # fmt: skip
    """Return rows of steps, of what lies outside epochs, and last of the whole: the very rows of `gpumon runs show`.

    Empty where the epochs are all that is known of a run; `total` is all of it.
    """
    outside = outside_rows(record, epochs, total, phases=True)
    if epochs and not outside:
        return []
    steps = [row for row in outside if row[1].ordinal <= STEP_ROWS]
    # The newest stand first on the page: so does the whole, then all between epochs, then its phases.
    ordered = [*steps, *outside[len(steps) :][::-1], (WHOLE, total)]
    return [_row(title, place, stretch) for place, (title, stretch) in enumerate(ordered)]


def _row(title: str, place: int, stretch: EpochSummary) -> dict[str, Any]:
    """A row; `place` is its place among all of them."""
    found = run_json.total_to_json(stretch)
    is_steps = stretch.ordinal <= STEP_ROWS
    return {
        "place": place,
        "title": _TITLE.get(title) or (f"· {title.strip()}" if title.startswith(" ") else title),
        "is_steps": is_steps,
        "beside": shown(max(0.0, stretch.seconds - stretch.trained)) if is_steps and stretch.trained > 0 else None,
        "metrics": found["metrics"],
        "framework_peak_reached": found["framework_peak_reached"],
        "is_partly_sampled": is_partly_sampled(stretch),
        "is_open": stretch.is_open,
        **{name: None if found[name] is None else shown(found[name]) for name in EPOCH},
    }
