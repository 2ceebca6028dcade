"""Held time that has no price: of GPUs of an unknown model, or of a model that no price fits."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from gpumon.cluster.amounts import hours
from gpumon.cluster.coverage import covered
from gpumon.cluster.questions import Period
from gpumon.cluster.recorded import RULE_INTERVAL
from gpumon.cluster.rows import Answers
from gpumon.common.config import Prices
from gpumon.common.text import cut
from gpumon.cost.charge import WHOLE

_UNKNOWN = ""
_NAMED = 3
"""Models that a sentence names."""
_LONGEST = 40
"""Cells of the name of one."""


def unpriced(answers: Answers, prices: Prices | None, period: Period, user: str | None = None) -> Mapping[str, float]:
    """Return seconds without a price in a period by model, of all users or of one; empty is an unknown model.

    Little of a user's time counts as nothing, as it does in their charge, and so does what is held in two minutes:
    rules record the sums of users and those by model at two moments, so that one may have a sample more.
    """
    by_model = answers.get(f"held_by_model_{period}")
    if prices is None or not prices.gpu_hour or by_model is None:
        return {}
    samples = 2 * RULE_INTERVAL / max(covered(answers, period), RULE_INTERVAL)
    found: dict[str, float] = {}
    known: dict[str, float] = {}
    for row in by_model:
        name, model = row.labels.get("user", ""), row.labels.get("model", "")
        known[name] = known.get(name, 0.0) + row.value
        if user in (None, name) and not isfinite(prices.of_model(model)) and row.value > 0:
            found[model] = found.get(model, 0.0) + row.value
    for row in answers.get(f"held_{period}", ()):
        name = row.labels.get("user", "")
        lacking = row.value - known.get(name, 0.0)
        if user in (None, name) and lacking > (1 - WHOLE) * row.value and not lacking <= samples * row.value:
            found[_UNKNOWN] = found.get(_UNKNOWN, 0.0) + lacking
    return found


def without_price(found: Mapping[str, float]) -> str:
    """Return a sentence on it; empty where all has a price.

    >>> without_price({"": 2682000.0})
    '745 h of GPUs of an unknown model have no price.'
    """
    models = [cut(model, _LONGEST) for model in sorted(found) if model]
    models += ["GPUs of an unknown model"] if _UNKNOWN in found else []
    if not models:
        return ""
    named = " and ".join(models) if len(models) <= _NAMED else f"{len(models)} models"
    return f"{hours(sum(found.values()))} of {named} have no price."
