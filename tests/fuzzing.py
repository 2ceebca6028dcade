"""How many examples a test of Hypothesis takes: the full number with the slow tests, and a share of it without them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_USUAL = 100
_QUICK = 25

# How long an example takes, or is in the making, says how busy the machine is.
settings.register_profile("full", max_examples=_USUAL, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("full"), max_examples=_QUICK)


def choose(marks: str) -> None:
    """Take the full number unless the `-m` of pytest leaves the slow tests out."""
    settings.load_profile("quick" if "not slow" in marks else "full")


def examples(full: int) -> int:
    """The number for a test that takes `full` with the slow tests."""
    return max(1, full * settings().max_examples // _USUAL)
