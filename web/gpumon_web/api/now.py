"""The routes `status`, `findings` and `users`, about the newest tick."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Annotated

from pydantic import Field

from gpumon.reports.status_json import users_json
from gpumon_web.api.data import ApiData, done
from gpumon_web.api.parameters import OneOf, Parameters
from gpumon_web.jobs import Packed, packed

SCHEMA = 1
SEVERITIES = ("info", "warning", "critical")
"""In ascending order."""


class FindingsParameters(Parameters):
    """Parameters of the route `findings`."""

    severity: Annotated[str, OneOf(SEVERITIES)] = Field(
        SEVERITIES[0], description="only findings that are at least as severe"
    )
    subject: Annotated[str, OneOf(("gpu", "run"))] = Field("", description="only findings about this kind of thing")


def status(data: ApiData) -> Future[Packed]:
    """Return the document of `gpumon status --json`."""
    return done(packed(data.status.document()))


def findings(data: ApiData, query: FindingsParameters) -> Future[Packed]:
    """Return the findings that match the parameters."""
    document, minimum = data.status.document(), SEVERITIES.index(query.severity)
    matches = [
        finding for finding in document["findings"]
        if SEVERITIES.index(finding["severity"]) >= minimum and query.subject in ("", finding["subject"]["kind"])
    ]  # fmt: skip
    head = {name: document[name] for name in ("time", "live", "age")}
    return done(packed({"schema": SCHEMA, **head, "findings": matches}))


def users(data: ApiData) -> Future[Packed]:
    """Return the users who hold GPUs."""
    return done(packed(users_json(data.status.document())))
