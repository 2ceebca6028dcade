"""Process filters as typed by the user: words, `user:alice`, `gpu:3`, `mem>10`. All terms must match."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.analysis.processes import job_or_container
from gpumon.common.numbers import NAN
from gpumon.model.process import Process
from gpumon_tui.data.process_facts import ProcessFacts

Test = Callable[[Process, ProcessFacts], bool]
Value = Callable[[Process, ProcessFacts], float]
_GIB = 2.0**30
HINTS = ("user:", "gpu:", "run:", "mem>", "cpu>", "time>", "idle>")
"""Prefixes of terms, shown as a hint next to the field."""

TEXTS: dict[str, Callable[[Process, ProcessFacts], str]] = {
    "user": lambda process, facts: process.user,
    "run": lambda process, facts: run.name if (run := facts.run(process)) else "",
    "job": lambda process, facts: job_or_container(process),
    "program": lambda process, facts: facts.program(process),
}
"""Text fields by their name in a filter; a term matches if the field contains its word."""
EXACT: dict[str, Callable[[Process, ProcessFacts], str]] = {
    "gpu": lambda process, facts: facts.label(process),
    "pid": lambda process, facts: str(process.pid),
}
NUMBERS: dict[str, Value] = {
    "mem": lambda process, facts: process.memory_used / _GIB,
    "sm": lambda process, facts: process.sm_utilization * 100,
    "bandw": lambda process, facts: process.memory_utilization * 100,
    "cpu": lambda process, facts: process.cpu_utilization * 100,
    "host": lambda process, facts: process.host_memory / _GIB,
    "time": lambda process, facts: facts.now - process.started,
    "idle": lambda process, facts: since.seconds if (since := facts.idle.get(process.uuid)) else NAN,
}
"""Number fields in GiB or percent; fields in `SECONDS` are in seconds, or have a unit as in `90m`.

`idle` is the time for which the allocated GPU of the process has been idle. Unknown values never match.
"""
SECONDS = ("time", "idle")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq,
}  # fmt: skip
_NUMBER = re.compile(r"(\w+)(>=|<=|>|<|=)(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNFINISHED = re.compile(r"!?|!?\w+(>=|<=|>|<|=)|!?\w+:")


class Term(NamedTuple):
    """A condition of a filter."""

    text: str
    """The text as typed."""
    holds: Test


def parse_terms(text: str) -> tuple[Term, ...]:
    """Parse the terms in a string. Incomplete terms, such as `mem>`, are ignored."""
    return tuple(Term(word, _test(word)) for word in text.split() if not _is_unfinished(word))


def matching(processes: Sequence[Process], terms: Sequence[Term], facts: ProcessFacts) -> list[Process]:
    """Return the processes that match all terms."""
    return [process for process in processes if all(term.holds(process, facts) for term in terms)]


def count_hidden(processes: Sequence[Process], terms: Sequence[Term], facts: ProcessFacts) -> list[tuple[str, int]]:
    """Return each term that hides processes, with the number of processes it hides, in the order typed."""
    counts = [(term.text, sum(not term.holds(process, facts) for process in processes)) for term in terms]
    return [(text, count) for text, count in counts if count]


def _is_unfinished(word: str) -> bool:
    field = word.lstrip("!").rstrip("<>=:").lower()
    return bool(_UNFINISHED.fullmatch(word)) and (not field or field in TEXTS | EXACT or field in NUMBERS)


def _test(word: str) -> Test:
    if word.startswith("!"):
        negated = _test(word[1:])
        return lambda process, facts: not negated(process, facts)
    number = _NUMBER.fullmatch(word.lower())
    if number and number[1] in NUMBERS and (number[1] in SECONDS or not number[4]):
        return _number_test(NUMBERS[number[1]], _COMPARE[number[2]], float(number[3]) * _SECONDS[number[4]])
    field, colon, value = word.partition(":")
    value = value.casefold()
    if colon and (exact := EXACT.get(field.lower())):
        return lambda process, facts: exact(process, facts) == value
    if colon and (read_text := TEXTS.get(field.lower())):
        return lambda process, facts: value in read_text(process, facts).casefold()
    word = word.casefold()
    return lambda process, facts: any(
        word in text.casefold()
        for text in (process.name, str(process.pid), *(read_text(process, facts) for read_text in TEXTS.values()))
    )


def _number_test(value: Value, compare: Callable[[float, float], bool], limit: float) -> Test:
    return lambda process, facts: compare(value(process, facts), limit)
