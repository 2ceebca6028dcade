"""Metadata of a run (parameters, program, notes, tags), and facts that the training process reports.

The training writes its metadata to its board, as JSON of at most `ROOM` bytes. The daemon reads the metadata and stores
it in the ledger. All limits are defined in this module. The writer applies them so that the JSON always fits. The
reader applies them because a hostile process may have written the JSON.
"""

import json
import math
import signal
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from gpumon.common.text import clean

ROOM = 12288
"""Maximum size of the metadata, in bytes of JSON."""
NAME_LENGTH = 96
VALUE_LENGTH = 300
NOTE_LENGTH = 500
TAG_LENGTH = 40
MAX_PARAMETERS = 256
MAX_FACTS = 32
MAX_NOTES = 16
MAX_TAGS = 16
CUT = "…"
"""Appended to a shortened string."""
_EXACT = 1 << 53
"""Larger integers are stored as text, because not every JSON parser reads them exactly."""

Parameter = str | int | float | bool | None
"""The type of a stored parameter. Floats are finite."""


class Note(NamedTuple):
    """A line that a user wrote about a run."""

    time_ns: int
    """Time of the note, in ns since 1970."""
    text: str


class Metadata(NamedTuple):
    """Parameters, program, notes and tags of one process of a run."""

    config: Mapping[str, Parameter] = {}
    """Parameters of the training by name. Names of nested parameters contain dots."""
    program: Mapping[str, Parameter] = {}
    """Facts that gpumon detects, such as script, commit and versions."""
    notes: tuple[Note, ...] = ()
    """Notes on the run, oldest first."""
    tags: tuple[str, ...] = ()
    omitted: int = 0
    """Number of parameters and notes that were omitted because they did not fit."""


NO_METADATA = Metadata()


def bounded_text(text: str, length: int) -> str:
    """Return `text` sanitized and on one line.

    If it is longer than `length` characters, it is cut and ends with `CUT`.
    """
    cleaned = clean(text, length + 1)
    return cleaned if len(cleaned) <= length else cleaned[: length - 1] + CUT


def bounded_value(value: object) -> Parameter:
    """Return `value` within the limits. Numbers that JSON cannot express become text, and so do other objects."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, int) and -_EXACT <= value <= _EXACT:
        return int(value)
    if isinstance(value, int):
        return bounded_text(hex(value), VALUE_LENGTH)  # in Python, decimal conversion takes quadratic time
    return bounded_text(value if isinstance(value, str) else str(value), VALUE_LENGTH)


def encode_metadata(about: Metadata) -> tuple[bytes, Metadata]:
    """Return the metadata as JSON, and the part of it that the JSON contains.

    If the metadata does not fit, the oldest notes and the last parameters are omitted.
    """
    about = about._replace(program=_parameters(about.program, MAX_FACTS))  # file names may be invalid UTF-8
    config = dict(islice(about.config.items(), MAX_PARAMETERS))
    notes = about.notes[-MAX_NOTES:]
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


def decode_metadata(text: bytes) -> Metadata:
    """Parse the metadata in the text of a board. A field of a wrong type or size counts as missing."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return NO_METADATA
    if not isinstance(document, dict):
        return NO_METADATA
    notes = document.get("notes")
    tags = document.get("tags")
    omitted = document.get("omitted")
    return Metadata(
        config=_parameters(document.get("config"), MAX_PARAMETERS),
        program=_parameters(document.get("program"), MAX_FACTS),
        notes=tuple(_notes(notes[:MAX_NOTES] if isinstance(notes, list) else [])),
        tags=unique_tags(tags if isinstance(tags, list) else ()),
        omitted=omitted if type(omitted) is int and 0 <= omitted < 1 << 31 else 0,
    )


def unique_tags(texts: Any) -> tuple[str, ...]:
    """Return at most `MAX_TAGS` distinct tags. Empty tags and values that are not text are dropped."""
    tags = (bounded_text(text.strip(), TAG_LENGTH) for text in texts if isinstance(text, str) and text.strip())
    return tuple(islice(dict.fromkeys(tags), MAX_TAGS))


def _parameters(values: object, limit: int) -> dict[str, Parameter]:
    if not isinstance(values, dict):
        return {}
    return {
        bounded_text(name, NAME_LENGTH): bounded_value(value)
        for name, value in islice(values.items(), limit)
        if value is None or isinstance(value, str | int | float)
    }


def _notes(entries: list[Any]) -> list[Note]:
    return [
        Note(entry[0], bounded_text(entry[1], NOTE_LENGTH))
        for entry in entries
        if isinstance(entry, list)
        and len(entry) == 2
        and type(entry[0]) is int
        and 0 <= entry[0] < 1 << 63
        and isinstance(entry[1], str)
    ]


LARGEST = (1 << 31) - 1
PAUSED = "paused"
"""Name of the phase between the training and an evaluation of the same run. Its time does not count as time of the
run."""
SHOWN_FOR = 60.0
"""Every view shows a run for this many seconds after its end."""
NEWS_FOR = 600.0
"""Every view shows a run that failed or died for this many seconds. An out-of-memory error counts as recent for the
same time."""


IN_PROCESS, STARTED_WORKERS, KEPT_WORKERS = "in process", "workers", "persistent workers"
LOADING = (IN_PROCESS, STARTED_WORKERS, KEPT_WORKERS)
"""Ways in which a DataLoader loads batches: in the process of the training, in workers that start in each pass, or in
workers that stay."""


class RunFacts(NamedTuple):
    """Facts that a training reports about itself. A default value means that the fact was not reported."""

    batch: float = 0.0
    """Samples per step of this rank. In frames, if the last batch of a pass is smaller, this is the mean over the
    pass."""
    mean_batch: float = 0.0
    """Mean number of samples per step over a whole pass, if the last batch is smaller; 0 if the mean equals `batch`."""
    begun: float = 0.0
    """Start of the run in seconds of CLOCK_MONOTONIC, from the header of its board; 0 if not recorded."""
    planned_steps: float = 0.0
    """Planned number of steps of the whole run."""
    cpu_seconds: float = 0.0
    """CPU time of the process and its children during the run. Reported at the end of the run."""
    exit_code: float = 0.0
    """Exit code of the command of `gpumon run`. Also 0 if a signal ended the command."""
    exit_signal: float = 0.0
    """Number of the signal that ended the command of `gpumon run`; 0 if no signal did."""
    job: str = ""
    """Slurm job id from the environment of the process."""
    folded: float = 0.0
    """Number of epochs without a row of their own. They were so short that they became part of the previous epoch."""
    loading: str = ""
    """How the DataLoader of the training loads batches: one of `LOADING`."""
    workers: float = 0.0
    """Number of worker processes of this DataLoader. Also 0 if it has none."""
    passes: float = 0.0
    """Number of passes over the loader after the first one, during training."""
    pass_waits: float = 0.0
    """Seconds that the training waited for the first batch and for the end of these passes. Workers that start and stop
    in each pass prolong this wait."""
    worker_cpu_seconds: float = 0.0
    """CPU time of the children of the process during the run. Reported at the end of the run."""
    claimed: float = 0.0
    """Number of GPUs that the training claims to use, although the driver lists no process of its user on them. Set by
    the sampler."""
    stalled_since: float = 0.0
    """While the process is stalled: time of its last progress, in seconds since 1970. Otherwise 0. Set by the reader of
    its board; see `gpumon.tracking.stalls`."""

    time_limit: float = 0.0
    """Time at which the process will be ended, in seconds since 1970: the end of its Slurm job, or the limit that its
    user gave to `gpumon run`."""

    def for_frames(self) -> "RunFacts":
        """Return the facts as stored in frames: `batch` is the mean, and facts that readers set are 0."""
        return self._replace(batch=self.mean_batch or self.batch, mean_batch=0.0, claimed=0.0, stalled_since=0.0)


_LATEST = 1 << 38
"""The latest time, in seconds since 1970."""


class Fact(NamedTuple):
    """Limits of a fact, and where it is stored."""

    name: str
    limit: int = LARGEST
    """The largest number, or the longest text."""
    column: str = ""
    """Column in the ledger's table `rank`; empty if the fact is not stored."""
    key: str = ""
    """Key in JSON; empty if the fact is not in JSON."""

    def validate(self, value: object) -> Any:
        """Return an untrusted value if it is within the limits, else the default. Text that is too long is cut."""
        default = RunFacts._field_defaults[self.name]
        if isinstance(default, str):
            return clean(value, self.limit) if isinstance(value, str) else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= self.limit:
            return default
        return value


RUN_FACTS: tuple[Fact, ...] = (
    Fact("batch", column="batch", key="batch"),
    Fact("mean_batch"),
    Fact("begun"),
    Fact("planned_steps", column="planned_steps", key="steps_planned"),
    Fact("cpu_seconds", column="cpu_seconds", key="cpu_seconds"),
    Fact("exit_code", limit=255, column="exit_code", key="exit_code"),
    Fact("exit_signal", limit=64, column="exit_signal", key="exit_signal"),
    Fact("job", limit=64),
    Fact("folded", column="folded_epochs"),
    Fact("loading", limit=24, column="loading", key="loading"),
    Fact("workers", limit=65535, column="workers", key="loader_workers"),
    Fact("passes", column="passes"),
    Fact("pass_waits", column="pass_waits"),
    Fact("worker_cpu_seconds", column="worker_cpu_seconds", key="worker_cpu_seconds"),
    Fact("claimed", limit=1024),
    Fact("stalled_since", limit=_LATEST),
    Fact("time_limit", limit=_LATEST),
)


CPUS = "cpus"
"""Name of the fact about the program with the number of CPU cores that it may use."""


def exit_text(code: float, number: float) -> str:
    """Return how a command failed, such as `exit code 3` or `ended by SIGKILL`. Empty if no failure was recorded.

    `code`: exit code of the command. `number`: number of the signal that ended the command; 0 if no signal did.
    """
    if number:
        is_named = number in set(signal.Signals)
        return f"ended by {signal.Signals(int(number)).name if is_named else f'signal {int(number)}'}"
    return f"exit code {int(code)}" if code else ""


def read_facts(values: Mapping[str, Any]) -> RunFacts:
    """Return the facts from a JSON object or row that contains them by name. A missing fact counts as not reported."""
    return RunFacts(**{fact.name: fact.validate(values.get(fact.name)) for fact in RUN_FACTS})


def facts_from_row(cells: Mapping[str, Any]) -> RunFacts:
    """Return the facts in a row of the ledger's table `rank`."""
    return RunFacts(**{fact.name: fact.validate(cells.get(fact.column)) for fact in RUN_FACTS if fact.column})


def facts_to_row(facts: RunFacts) -> dict[str, Any]:
    """Return the facts by column of the ledger's table `rank`. Facts that were not reported are None."""
    return {fact.column: getattr(facts, fact.name) or None for fact in RUN_FACTS if fact.column}


def facts_to_json(facts: RunFacts) -> dict[str, Any]:
    """Return the facts by JSON key. Facts that were not reported are None. Whole numbers have no decimal point."""
    return {fact.key: _json_value(getattr(facts, fact.name)) for fact in RUN_FACTS if fact.key}


def _json_value(value: float | str) -> float | str | None:
    if isinstance(value, str):
        return value or None
    return None if not value else int(value) if math.isfinite(value) and value == int(value) else value
