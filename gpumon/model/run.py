"""Particulars of a run: its parameters, the program it runs, notes and tags.

The training writes it into its board as JSON, within `ROOM`; the daemon reads it, and keeps it in the ledger. The
bounds of both stand here once: the writer keeps them so that it always fits, the reader because every byte may be
hostile.
"""

import json
import math
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from gpumon.common.text import clean

ROOM = 12288
"""Bytes of JSON."""
NAME_LENGTH = 96
VALUE_LENGTH = 300
NOTE_LENGTH = 500
TAG_LENGTH = 40
MOST_PARAMETERS = 256
MOST_FACTS = 32
MOST_NOTES = 16
MOST_TAGS = 16
CUT = "…"
"""Ends a text that was longer."""
_EXACT = 1 << 53
"""A whole number beyond it is a text: not every reader of JSON has more digits."""

Parameter = str | int | float | bool | None
"""A value as it is kept; a number is finite."""


class Note(NamedTuple):
    """A line that somebody wrote about a run."""

    time_ns: int
    """ns since 1970."""
    text: str


class About(NamedTuple):
    """Parameters, program, notes and tags of one process of a run."""

    config: Mapping[str, Parameter] = {}
    """Parameters that the training was given, by name; a part of another has a name with a dot."""
    program: Mapping[str, Parameter] = {}
    """Facts that gpumon found by itself: script, commit, versions."""
    notes: tuple[Note, ...] = ()
    """Oldest first."""
    tags: tuple[str, ...] = ()
    omitted: int = 0
    """Parameters and notes for which there was no room."""


NOTHING_TOLD = About()


def bounded_text(text: str, length: int) -> str:
    """`text`, harmless and on one line; one of more than `length` characters ends with a mark."""
    found = clean(text, length + 1)
    return found if len(found) <= length else found[: length - 1] + CUT


def bounded_value(value: object, length: int = VALUE_LENGTH) -> Parameter:
    """`value` within bounds: a number that JSON has not, or anything else, is a text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, int) and -_EXACT <= value <= _EXACT:
        return int(value)
    if isinstance(value, int):
        return bounded_text(hex(value), length)  # in decimal, Python takes the square of its digits in time
    return bounded_text(value if isinstance(value, str) else str(value), length)


def encode_about(about: About) -> tuple[bytes, About]:
    """The JSON of `about`, and as much of it as has room: the oldest notes and the last parameters are left out."""
    about = about._replace(program=_parameters(about.program, MOST_FACTS))  # names of files may be no UTF-8
    config = dict(islice(about.config.items(), MOST_PARAMETERS))
    notes = about.notes[-MOST_NOTES:]
    omitted = about.omitted + len(about.config) - len(config) + len(about.notes) - len(notes)
    while True:
        kept = about._replace(config=config, notes=notes, omitted=omitted)
        text = json.dumps(kept._asdict(), ensure_ascii=False, separators=(",", ":")).encode()
        if len(text) <= ROOM:
            return text, kept
        if len(config) >= 4 * len(notes):
            fewer = dict(islice(config.items(), len(config) - max(1, len(config) // 8)))
            omitted, config = omitted + len(config) - len(fewer), fewer
        else:
            omitted, notes = omitted + 1, notes[1:]


def decode_about(text: bytes) -> About:
    """Particulars in a board's text; anything in it that is of the wrong type or size reads as if it were absent."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return NOTHING_TOLD
    if not isinstance(found, dict):
        return NOTHING_TOLD
    notes = found.get("notes")
    tags = found.get("tags")
    omitted = found.get("omitted")
    return About(
        config=_parameters(found.get("config"), MOST_PARAMETERS),
        program=_parameters(found.get("program"), MOST_FACTS),
        notes=tuple(_notes(notes[:MOST_NOTES] if isinstance(notes, list) else [])),
        tags=tags_of(tags if isinstance(tags, list) else ()),
        omitted=omitted if type(omitted) is int and 0 <= omitted < 1 << 31 else 0,
    )


def tags_of(texts: Any) -> tuple[str, ...]:
    """At most `MOST_TAGS` tags, each once; what is no text, or empty, is none."""
    known = (bounded_text(text.strip(), TAG_LENGTH) for text in texts if isinstance(text, str) and text.strip())
    return tuple(islice(dict.fromkeys(known), MOST_TAGS))


def _parameters(found: object, most: int) -> dict[str, Parameter]:
    if not isinstance(found, dict):
        return {}
    return {
        bounded_text(name, NAME_LENGTH): bounded_value(value)
        for name, value in islice(found.items(), most)
        if value is None or isinstance(value, str | int | float)
    }


def _notes(found: list[Any]) -> list[Note]:
    return [
        Note(one[0], bounded_text(one[1], NOTE_LENGTH))
        for one in found
        if isinstance(one, list)
        and len(one) == 2
        and type(one[0]) is int
        and 0 <= one[0] < 1 << 63
        and isinstance(one[1], str)
    ]


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
