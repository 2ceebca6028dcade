"""Parameters of routes as data: what is documented of one is what its text is checked against."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from werkzeug.datastructures import MultiDict

from gpumon.common.text import clean, cut

Schema = Mapping[str, Any]
"""JSON Schema, of which parameters use type, enum, minimum, maximum, maxLength and maxItems."""
Asked = Mapping[str, Any]
"""The values of all parameters of a route by name; None for one that was not given and has no default."""
LONGEST_TEXT = 200
_SHOWN = 40
"""Characters of a wrong value that are repeated to whoever gave it."""
_NAMED = 20
"""Allowed words that are all named."""
_WHOLE = re.compile(r"-?\d{1,15}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,100})?([eE][+-]?\d{1,3})?", re.ASCII)


class BadParameter(ValueError):
    """A parameter that cannot be meant; its text says so in one line, and what would be right."""


class QueryParameter(NamedTuple):
    """A parameter of a route."""

    name: str
    meaning: str
    schema: Schema
    """Of its value; of a list, that of one item."""
    default: Any = None
    is_list: bool = False
    """Whether it has several values, separated by commas."""
    most: int = 1
    """Items of a list at most."""
    is_required: bool = False


def text(name: str, meaning: str, **more: Any) -> QueryParameter:
    """Return a parameter that is any text."""
    return QueryParameter(name, meaning, {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}, **more)


def one_of(name: str, meaning: str, values: Sequence[str], **more: Any) -> QueryParameter:
    """Return a parameter that is one word, or several words, of `values`."""
    return QueryParameter(name, meaning, {"type": "string", "enum": list(values)}, **more)


def whole(name: str, meaning: str, least: int, most: int, **more: Any) -> QueryParameter:
    """Return a parameter that is a whole number."""
    return QueryParameter(name, meaning, {"type": "integer", "minimum": least, "maximum": most}, **more)


def number(name: str, meaning: str, least: float, most: float, **more: Any) -> QueryParameter:
    """Return a parameter that is a number."""
    return QueryParameter(name, meaning, {"type": "number", "minimum": least, "maximum": most}, **more)


def read(parameters: Sequence[QueryParameter], given: MultiDict[str, str]) -> Asked:
    """Return the values that a request gives. Raises BadParameter."""
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
    """Return what a value must be, in words."""
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
