"""Query parameters of routes as pydantic models, and one line on what is wrong with those of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema
from starlette.requests import Request

from gpumon.common.text import clean, cut

LONGEST_TEXT = 200
_FURTHEST = 1e11
"""Largest time accepted (s since 1970)."""
_SHOWN = 40
"""Maximum number of characters of a wrong value that an error repeats."""
_NAMED = 20
"""Maximum number of allowed values that an error lists."""


class BadParameter(ValueError):
    """A parameter is invalid; the message says in one line what is wrong and what is allowed."""


class Parameters(BaseModel):
    """Parameters of a route; others are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Annotation of a string that is one of these."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        del source, handler
        return core_schema.literal_schema(list(self.names))


def _split(values: Any) -> Any:
    return values[0].split(",") if isinstance(values, list) and len(values) == 1 else values


COMMAS = BeforeValidator(_split)
"""Annotation of a list that is sent as one value, separated by commas."""
Text = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
Time = Annotated[float, Field(ge=0, le=_FURTHEST)]
"""Seconds since 1970."""


async def refuse_repeated(request: Request) -> None:
    """Raise BadParameter if a parameter is given more than once."""
    for name in request.query_params:
        times = len(request.query_params.getlist(name))
        if times > 1:
            raise BadParameter(f"{_excerpt(name)} is given {times} times: give it once")


def describe(request: Request, error: RequestValidationError) -> str:
    """Return what is wrong with the parameters of a request."""
    route: APIRoute = request.scope["route"]
    model: Any = route.dependant.query_params[0].field_info.annotation
    fields: Mapping[str, Any] = model.model_json_schema()["properties"]
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    name = str(first["loc"][1])
    if first["type"] == "extra_forbidden":
        return f"unknown parameter '{_excerpt(name)}'; parameters of this route: {', '.join(fields) or 'none'}"
    items = fields[name].get("items", fields[name])
    if first["type"] == "missing":
        return f"{name} is missing: {_expected(items)}"
    if first["type"] == "too_long":
        return f"{name} takes at most {fields[name]['maxItems']} values, separated by commas"
    return f"{name} must be {_expected(items)}, not '{_excerpt(str(first['input']))}'"


def _expected(schema: Mapping[str, Any]) -> str:
    """Return a description of the allowed values."""
    if "enum" in schema:
        names = schema["enum"]
        if len(names) <= _NAMED:
            return f"one of {', '.join(names)}"
        return f"one of {len(names)} names, such as {names[0]}"
    if schema["type"] == "string":
        return f"a string of 1 to {schema['maxLength']} characters"
    kind = "a whole number" if schema["type"] == "integer" else "a number"
    return f"{kind} from {schema['minimum']:.15g} to {schema['maximum']:.15g}"


def _excerpt(raw: str) -> str:
    return cut(clean(raw, LONGEST_TEXT), _SHOWN)
