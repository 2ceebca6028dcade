"""The epochs of a run as rows of the page's table, and their totals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gpumon.common.numbers import is_known, shown
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.past_findings import Verdict, Verdicts, epoch_findings, is_partly_sampled, verdict
from gpumon.model import columns
from gpumon.model.columns import EPOCHS, View
from gpumon.model.frame import TRAINING, RunState
from gpumon.reports import run_json
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.combine import highest, lowest
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.summary import EpochLengths, EpochSummary
from gpumon_web.levels import OF_SEVERITY

_PEAKS = ("energy_least", "run_allocated_peak", "memory_used_peak")
"""What stands in for an unknown energy, and for the peak of live tensors."""
EPOCH = tuple(dict.fromkeys((*(column.key for column in columns.shown(EPOCHS, View.BROWSER)), *_PEAKS)))
"""Columns of the table of epochs."""
NO_LENGTHS = EpochLengths()


def rows(record: Record, found: Sequence[EpochSummary]) -> list[dict[str, Any]]:
    """Return epochs of a run as rows, each with the time of its other phases."""
    ordinals = {epoch.ordinal for epoch in found}
    # Only how long its phases took is shown, and that takes no usage.
    of_them = record._replace(phases=[row for row in record.phases if row.ordinal in ordinals], usage=[])
    phases = aggregate.phase_summaries(of_them)
    running = record.run.state is RunState.RUNNING
    return [epoch_row(epoch, phases.get(epoch.ordinal, ()), running) for epoch in found]


def epoch_row(epoch: EpochSummary, phases: Iterable[EpochSummary], running: bool) -> dict[str, Any]:
    """An epoch as the page's table has it: a tenth of all that is known, as there may be thousands of them."""
    found = run_json.epoch_to_json(epoch, ())
    judged = verdict(epoch, running)
    beside = [phase.seconds for phase in phases if phase.phase != TRAINING]
    measured = epoch.value("seconds")
    return {
        **{name: found[name] for name in ("ordinal", "epoch", "metrics")},
        **{name: None if found[name] is None else round(found[name], 3) for name in ("begun", "ended")},
        **{name: None if found[name] is None else shown(found[name]) for name in EPOCH},
        "framework_peak_reached": found["framework_peak_reached"],
        "is_partly_sampled": is_partly_sampled(epoch),
        "is_open": epoch.is_open,
        "is_settling": epoch.is_settling,
        # The ledger has what was measured of an open epoch up to some seconds ago, and the ring how long it takes.
        "measured_seconds": shown(measured) if epoch.is_open and is_known(measured) else None,
        "beside": shown(sum(beside)) if beside else None,
        "verdict": {"kind": judged.kind, "text": judged.text, "level": OF_SEVERITY[judged.severity]}
        if judged
        else None,
    }


def summary(
    found: Sequence[EpochSummary], first_epoch: int = 0, before: EpochLengths = NO_LENGTHS
) -> dict[str, Any]:  # fmt: skip
    """Totals of all epochs, including those without a row on the page; `first_epoch`: the first that the run made.

    `before`: of those that are older than `found`.
    """
    ended = [epoch for epoch in found if is_known(epoch.ended)]
    lengths = [epoch.seconds for epoch in ended if math.isfinite(epoch.seconds)]
    energies = [energy for epoch in found if math.isfinite(energy := epoch.value("energy"))]
    numbers = [epoch.epoch for epoch in found if epoch.epoch >= 0]
    known, total = before.known + len(lengths), before.total + sum(lengths)
    return {
        "done": before.done + len(ended),
        "unseen": max(
            0, min([*numbers, *(() if before.lowest is None else (before.lowest,))], default=0) - first_epoch
        ),
        "last": ended[-1].epoch if ended else before.last,
        "mean": shown(total / known) if known else None,
        "least": shown(lowest([before.least, *lengths])),
        "most": shown(highest([before.most, *lengths])),
        "most_energy": shown(highest([before.most_energy, *energies])),
    }


def odd_epochs(found: Sequence[EpochSummary], verdicts: Verdicts) -> list[dict[str, Any]]:
    """Verdicts on epochs that need a look, the worst first: kind, words, remedy, level, the numbers of the epochs."""
    groups: dict[str, tuple[Verdict, Severity, str, list[int]]] = {}
    for epoch in found:
        judged = verdicts[epoch.ordinal]
        if judged is not None and judged.severity is not None and judged.needs_a_look:
            if judged.text not in groups:
                groups[judged.text] = judged, judged.severity, _remedy(epoch, judged), []
            groups[judged.text][3].append(epoch.epoch)
    worst_first = sorted(groups.values(), key=lambda one: (-one[1], -len(one[3])))
    return [{"kind": judged.kind, "text": judged.text, "action": action, "level": OF_SEVERITY[severity],
             "epochs": epochs} for judged, severity, action, epochs in worst_first]  # fmt: skip


def _remedy(epoch: EpochSummary, judged: Verdict) -> str:
    return next((one.action for one in epoch_findings(epoch) if one.kind == judged.kind), "")
