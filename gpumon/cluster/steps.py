"""Steps that help where an engine does not answer, by the words of what is wrong."""

from __future__ import annotations

CLOSED = "refuses connections"
BROKE_OFF = "ends connections before it has answered"
REFUSED = "refuses us"
LATE = "has not answered within"
TOO_LONG = "answered with more than"
ELSEWHERE = "sends us elsewhere"
TOO_MANY = "HTTP 429"
FAILED = "an error came in the place of an answer"
NO_ENGINE = "no Prometheus answers there"
SAYS = "the engine says"
NO_SERIES = "no series of gpumon"

_RUNS = "Look whether Prometheus runs at {engine}, and whether this server reaches it."
_LOG = "The log of Prometheus at {engine}, or of the proxy before it, says more."
_URL = "Look whether {engine} is the URL of Prometheus itself, and start 'gpumon web' with the right one."
_SCRAPES = "Look whether Prometheus at {engine} scrapes 'gpumon export' on the nodes, and whether these targets are up."
_STEPS = (
    (REFUSED, "Correct the credentials for {engine} in the file of --prometheus-config, and start 'gpumon web' anew."),
    (CLOSED, _RUNS),
    (LATE, "Prometheus at {engine} may have too much to do: look at its load, and whether gpumon's rules are loaded."),
    (TOO_MANY, "Prometheus at {engine}, or the proxy before it, takes no more questions for now: raise its limit."),
    (ELSEWHERE, "Start 'gpumon web' with the URL to which {engine} sends, or with credentials where that is a login."),
    (TOO_LONG, _URL),
    (NO_ENGINE, _URL),
    (FAILED, _LOG),
    (BROKE_OFF, _LOG),
    (SAYS, _LOG),
    (NO_SERIES, _SCRAPES),
)
"""Words of an error, and what to do about it; the first that fits."""


def what_to_do(problem: str, engine: str) -> str:
    """Return a sentence on what helps where an engine does not answer; `engine`: its URL for people."""
    step = next((step for words, step in _STEPS if words in problem), _RUNS)
    return step.format(engine=engine)
