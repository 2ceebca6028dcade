"""The one rule of how much energy a counter may tell between two readings; accounts, totals, ledger and rates use it.

A driver was seen to answer garbage, once or for a second, and a counter starts over when the driver is loaded anew.
What no card can draw is no energy: it is missing, or known once the counter goes on from where it was.
"""

from __future__ import annotations

from gpumon.missing import NAN

OF_LIMIT = 3.0
"""Times its enforced power limit that a card draws at most, as a mean between two readings. Peaks of milliseconds go to
twice the limit, a mean over a reading hardly beyond it, and a limit may just have been lowered."""
MOST_POWER = 12_000.0
"""Watts that a card draws at most where its limit is not known, or claims to be more: three times the largest that are
announced, of 3.6 to 4 kW."""
UNSURE = 0.5
"""Seconds by which the time between two readings may be longer than their stamps say: a call is not waited for any
longer, and drivers renew the counter each 20 to 100 ms."""
FOLLOWS = 15.0
"""Seconds between two readings of a GPU that answers, at most: a slow call is made each 10 s (`costs.LONGEST_WAIT`),
takes its own time, and its answer comes with the next tick. Beyond that, nothing is known of the time between."""
DOUBTED = 3.0
"""Seconds for which a reading that no card can have come to is held for garbage, as long as those after it agree with
it; then the counter has started over."""


def most_power(limit: float) -> float:
    """Return the watts that a card draws at most; `limit`: its enforced power limit, NaN where that is not known."""
    return OF_LIMIT * limit if 0.0 < OF_LIMIT * limit < MOST_POWER else MOST_POWER


def energy_between(before: float, after: float, seconds: float, limit: float) -> float:
    """Return the joules that a counter grew by between two readings; NaN where no card can have used so much.

    `limit` as in `most_power`. Also NaN where the counter went back, or one of the two is missing.
    """
    grown = after - before
    if 0.0 <= grown <= OF_LIMIT * limit * (seconds + UNSURE) and OF_LIMIT * limit < MOST_POWER:  # as nearly always
        return grown
    return grown if 0.0 <= grown <= most_power(limit) * (seconds + UNSURE) else NAN
