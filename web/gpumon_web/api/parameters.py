"""Query parameters of routes: one definition serves both validation and the OpenAPI document."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams

from gpumon.common.text import clean, cut

Schema = Mapping[str, Any]
"""JSON Schema; parameters use type, enum, minimum, maximum, minLength and maxLength."""
ParameterValues = Mapping[str, Any]
"""Values of all parameters of a route by name; None if missing and without a default."""
LONGEST_TEXT = 200
_SHOWN = 40
"""Maximum number of characters of a wrong value that an error repeats."""
_NAMED = 20
"""Maximum number of allowed values that an error lists."""
_WHOLE = re.compile(r"-?\d{1,15}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,100})?([eE][+-]?\d{1,3})?", re.ASCII)


class BadParameter(ValueError):
    """A parameter is invalid; the message says in one line what is wrong and what is allowed."""


class QueryParameter(NamedTuple):
    """Definition of a query parameter of a route."""

    name: str
    meaning: str
    schema: Schema
    """Schema of its value; for a list, of one item."""
    default: Any = None
    is_list: bool = False
    """Whether it is a comma-separated list."""
    max_items: int = 1
    """Maximum number of items of a list."""
    is_required: bool = False


def text(name: str, meaning: str, **options: Any) -> QueryParameter:
    """Define a text parameter."""
    return QueryParameter(name, meaning, {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}, **options)


def one_of(name: str, meaning: str, values: Sequence[str], **options: Any) -> QueryParameter:
    """Define a parameter with one, or a list, of the allowed `values`."""
    return QueryParameter(name, meaning, {"type": "string", "enum": list(values)}, **options)


def whole(name: str, meaning: str, minimum: int, maximum: int, **options: Any) -> QueryParameter:
    """Define an integer parameter."""
    return QueryParameter(name, meaning, {"type": "integer", "minimum": minimum, "maximum": maximum}, **options)


def number(name: str, meaning: str, minimum: float, maximum: float, **options: Any) -> QueryParameter:
    """Define a numeric parameter."""
    return QueryParameter(name, meaning, {"type": "number", "minimum": minimum, "maximum": maximum}, **options)


def read(parameters: Sequence[QueryParameter], query: QueryParams) -> ParameterValues:
    """Validate the query of a request and return the values. Raises BadParameter."""
    names = [parameter.name for parameter in parameters]
    for name in query:
        if name not in names:
            allowed = ", ".join(names) if names else "none"
            raise BadParameter(f"unknown parameter '{_excerpt(name)}'; parameters of this route: {allowed}")
    return {parameter.name: _value(parameter, query.getlist(parameter.name)) for parameter in parameters}


def _value(parameter: QueryParameter, texts: Sequence[str]) -> Any:
    name = parameter.name
    if not texts:
        if parameter.is_required:
            raise BadParameter(f"{name} is missing: {expected(parameter.schema)}")
        return parameter.default
    if len(texts) > 1:
        raise BadParameter(f"{name} is given {len(texts)} times: give it once")
    if not parameter.is_list:
        return _parse_value(name, parameter.schema, texts[0])
    items = texts[0].split(",", parameter.max_items)
    if len(items) > parameter.max_items:
        raise BadParameter(f"{name} takes at most {parameter.max_items} values, separated by commas")
    return [_parse_value(name, parameter.schema, item) for item in items]


def _parse_value(name: str, schema: Schema, raw: str) -> Any:
    kind: str = schema["type"]
    value: str | float | None = None
    if kind == "string":
        allowed = schema.get("enum")
        if raw in allowed if allowed is not None else 0 < len(raw) <= schema["maxLength"]:
            value = raw
    elif kind == "integer":
        value = _bounded(schema, int(raw)) if _WHOLE.fullmatch(raw) else None
    else:
        value = _bounded(schema, float(raw)) if _NUMBER.fullmatch(raw) else None
    if value is None:
        raise BadParameter(f"{name} must be {expected(schema)}, not '{_excerpt(raw)}'")
    return value


def _bounded(schema: Schema, value: float) -> float | None:
    return value if math.isfinite(value) and schema["minimum"] <= value <= schema["maximum"] else None


def expected(schema: Schema) -> str:
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
