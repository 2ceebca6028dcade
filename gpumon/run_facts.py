"""Facts of a run that pass from the training to every output: one table, as metrics have.

The board's description, the ring's directory, the JSON of `status` and `runs show`, and the ledger's rows derive from
it. A new fact is a row here, where the training says it (`tags.loop`), and a column in the ledger's migrations.
Facts are those of one rank, and last: what changes with each step belongs to the board's state or is logged.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpumon.common.text import clean

LARGEST = (1 << 31) - 1
PAUSED = "paused"
"""Phase of a run whose training may continue, as when a framework validates after it trained: this time is not its."""
SHOWN_FOR = 60.0
"""Seconds for which a run that has ended stays in every view."""
NEWS_FOR = 600.0
"""The same of one that ended badly; and for which it is news that a run ran out of memory."""


class RunFacts(NamedTuple):
    """The facts that a training states of itself; a default is "not told". A float is a number, a str a text."""

    batch: float = 0.0
    """Samples of a step, of this rank; in frames the mean of a pass whose last batch is short."""
    mean_batch: float = 0.0
    """The same over a whole pass, where its last batch is short; 0 where it is `batch`."""
    begun: float = 0.0
    """Seconds of CLOCK_MONOTONIC when the run began, as the head of its board has it; 0 where this is unknown."""
    planned_steps: float = 0.0
    """Steps that the training is to make in all."""
    cpu_seconds: float = 0.0
    """CPU time of the process and of those that it started, while the run lasted; told at its end."""
    job: str = ""
    """Number of the Slurm job that it runs in, by its own environment."""
    folded: float = 0.0
    """Epochs that have no row of their own: so many ended so quickly that they are in that of the one before."""
    claimed: float = 0.0
    """GPUs that it claims and does not have: the driver lists no process of its user there. Told by the sampler."""

    def settled(self) -> "RunFacts":
        """The facts as frames have them."""
        return self._replace(batch=self.mean_batch or self.batch, mean_batch=0.0, claimed=0.0)


class Fact(NamedTuple):
    """Bounds of a fact, and where it goes."""

    name: str
    most: int = LARGEST
    """The largest number; of a text, its length."""
    column: str = ""
    """Of the ledger's table `rank`; empty: it is not kept."""
    key: str = ""
    """In JSON; empty: it is not shown."""

    def bounded(self, value: object) -> Any:
        """A value that anybody may have written, within bounds; the default for one of another kind."""
        default = RunFacts._field_defaults[self.name]
        if isinstance(default, str):
            return clean(value, self.most) if isinstance(value, str) else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= self.most:
            return default
        return value


RUN_FACTS: tuple[Fact, ...] = (
    Fact("batch", column="batch", key="batch"),
    Fact("mean_batch"),
    Fact("begun"),
    Fact("planned_steps", column="planned_steps", key="steps_planned"),
    Fact("cpu_seconds", column="cpu_seconds", key="cpu_seconds"),
    Fact("job", most=64),
    Fact("folded", column="folded_epochs"),
    Fact("claimed", most=1024),
)


def read_facts(found: Mapping[str, Any]) -> RunFacts:
    """The facts in a JSON object or a row by their names; what is not there was not told."""
    return RunFacts(**{fact.name: fact.bounded(found.get(fact.name)) for fact in RUN_FACTS})


def facts_of_row(cells: Mapping[str, Any]) -> RunFacts:
    """The facts in a row of the ledger's table `rank`."""
    return RunFacts(**{fact.name: fact.bounded(cells.get(fact.column)) for fact in RUN_FACTS if fact.column})


def row_of_facts(facts: RunFacts) -> dict[str, Any]:
    """Their columns in the ledger's table `rank`; None for what was not told."""
    return {fact.column: getattr(facts, fact.name) or None for fact in RUN_FACTS if fact.column}


def facts_as_json(facts: RunFacts) -> dict[str, Any]:
    """Their keys in JSON; None for what was not told, whole numbers without a dot."""
    return {fact.key: _plain(getattr(facts, fact.name)) for fact in RUN_FACTS if fact.key}


def _plain(value: float | str) -> float | str | None:
    if isinstance(value, str):
        return value or None
    return None if not value else int(value) if math.isfinite(value) and value == int(value) else value
