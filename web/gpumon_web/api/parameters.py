"""Query parameters of routes: one definition serves both validation and the OpenAPI document."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from werkzeug.datastructures import MultiDict

from gpumon.common.text import clean, cut

Schema = Mapping[str, Any]
"""JSON Schema; parameters use type, enum, minimum, maximum, minLength and maxLength."""
Asked = Mapping[str, Any]
"""Values of all parameters of a route by name; None if not given and without a default."""
LONGEST_TEXT = 200
_SHOWN = 40
"""Most characters of a wrong value repeated in the error."""
_NAMED = 20
"""Most allowed values that are all listed in an error."""
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
    most: int = 1
    """Most items of a list."""
    is_required: bool = False


def text(name: str, meaning: str, **more: Any) -> QueryParameter:
    """Define a text parameter."""
    return QueryParameter(name, meaning, {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}, **more)


def one_of(name: str, meaning: str, values: Sequence[str], **more: Any) -> QueryParameter:
    """Define a parameter with one, or a list, of the allowed `values`."""
    return QueryParameter(name, meaning, {"type": "string", "enum": list(values)}, **more)


def whole(name: str, meaning: str, least: int, most: int, **more: Any) -> QueryParameter:
    """Define an integer parameter."""
    return QueryParameter(name, meaning, {"type": "integer", "minimum": least, "maximum": most}, **more)


def number(name: str, meaning: str, least: float, most: float, **more: Any) -> QueryParameter:
    """Define a numeric parameter."""
    return QueryParameter(name, meaning, {"type": "number", "minimum": least, "maximum": most}, **more)


def read(parameters: Sequence[QueryParameter], given: MultiDict[str, str]) -> Asked:
    """Validate the query of a request and return the values. Raises BadParameter."""
    names = [parameter.name for parameter in parameters]
    for name in given:
        if name not in names:
            known = ", ".join(names) if names else "none"
            raise BadParameter(f"unknown parameter '{_shown(name)}'; parameters of this route: {known}")
    return {parameter.name: _value(parameter, given.getlist(parameter.name)) for parameter in parameters}


def _value(parameter: QueryParameter, given: Sequence[str]) -> Any:
    name = parameter.name
    if not given:
        if parameter.is_required:
            raise BadParameter(f"{name} is missing: {expected(parameter.schema)}")
        return parameter.default
    if len(given) > 1:
        raise BadParameter(f"{name} is given {len(given)} times: give it once")
    if not parameter.is_list:
        return _parsed(name, parameter.schema, given[0])
    items = given[0].split(",", parameter.most)
    if len(items) > parameter.most:
        raise BadParameter(f"{name} takes at most {parameter.most} values, separated by commas")
    return [_parsed(name, parameter.schema, item) for item in items]


def _parsed(name: str, schema: Schema, given: str) -> Any:
    kind: str = schema["type"]
    found: str | float | None = None
    if kind == "string":
        allowed = schema.get("enum")
        if given in allowed if allowed is not None else 0 < len(given) <= schema["maxLength"]:
            found = given
    elif kind == "integer":
        found = _bounded(schema, int(given)) if _WHOLE.fullmatch(given) else None
    else:
        found = _bounded(schema, float(given)) if _NUMBER.fullmatch(given) else None
    if found is None:
        raise BadParameter(f"{name} must be {expected(schema)}, not '{_shown(given)}'")
    return found


def _bounded(schema: Schema, value: float) -> float | None:
    return value if math.isfinite(value) and schema["minimum"] <= value <= schema["maximum"] else None


def expected(schema: Schema) -> str:
    """Return a description of the allowed values."""
    if "enum" in schema:
        words = schema["enum"]
        few = len(words) <= _NAMED
        return f"one of {', '.join(words)}" if few else f"one of {len(words)} names, such as {words[0]}"
    if schema["type"] == "string":
        return f"a text of 1 to {schema['maxLength']} characters"
    kind = "a whole number" if schema["type"] == "integer" else "a number"
    return f"{kind} from {schema['minimum']:.15g} to {schema['maximum']:.15g}"


def _shown(given: str) -> str:
    return cut(clean(given, LONGEST_TEXT), _SHOWN)
