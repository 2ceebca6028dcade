"""The routes `status`, `findings` and `users`, about the newest tick."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from gpumon.reports.status_json import users_json
from gpumon_web.api.parameters import ParameterValues, QueryParameter, one_of
from gpumon_web.api.route import ApiData, done
from gpumon_web.jobs import Packed, packed

SCHEMA = 1
SEVERITIES = ("info", "warning", "critical")
"""In ascending order."""
FINDINGS: Sequence[QueryParameter] = (
    one_of("severity", "only findings that are at least as severe", SEVERITIES, default=SEVERITIES[0]),
    one_of("subject", "only findings about this kind of thing", ("gpu", "run")),
)


def status(data: ApiData, values: ParameterValues) -> Future[Packed]:
    """Return the document of `gpumon status --json`."""
    return done(packed(data.status.document()))


def findings(data: ApiData, values: ParameterValues) -> Future[Packed]:
    """Return the findings that match the parameters."""
    document, minimum = data.status.document(), SEVERITIES.index(values["severity"])
    matches = [
        finding for finding in document["findings"]
        if SEVERITIES.index(finding["severity"]) >= minimum and values["subject"] in (None, finding["subject"]["kind"])
    ]  # fmt: skip
    head = {name: document[name] for name in ("time", "live", "age")}
    return done(packed({"schema": SCHEMA, **head, "findings": matches}))


def users(data: ApiData, values: ParameterValues) -> Future[Packed]:
    """Return the users who hold GPUs."""
    return done(packed(users_json(data.status.document())))
