"""Flattens the parameters of a training, given as a dict, argparse namespace, dataclass or similar object.

All conversions are fast. Nothing is read from a GPU, and objects other than numbers and strings are stored as the name
of their type.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeGuard

from gpumon.model.run import MAX_PARAMETERS, NAME_LENGTH, VALUE_LENGTH, Parameter, bounded_text, bounded_value
from gpumon.tracking.secrets import MASK, is_secret_name, masked

_MAX_DEPTH = 6
_MAX_ITEMS = 64
"""Maximum number of items of a list that is stored as one string."""
_MAX_VALUES = 4 * MAX_PARAMETERS
_MAX_LENGTH = 4096
_TEXTS = ("datetime", "decimal", "fractions", "uuid", "ipaddress")
"""Modules of the standard library whose objects are stored as the result of `str()`, which is short for them."""
_CONFIGS = ("collections", "ml_collections", "omegaconf")
"""Packages whose lists and dictionaries are read like Python's own. The containers of other packages may compute
each item."""
_NAMES = ("dtype", "device")
"""Types of frameworks whose objects are stored as strings."""


def parameters(values: object, named: Mapping[str, object]) -> dict[str, Parameter]:
    """Return parameters by name, limited in number and length. Secrets are masked.

    `values`: dict, namespace or similar object, or None. `named`: keyword arguments. They replace parameters of the
    same name in `values`.
    """
    flat: dict[str, Parameter] = {}
    sources: list[object] = [] if values is None else [{"arguments": values} if _is_unnamed(values) else values]
    for source in (*sources, named):
        for name, value in islice(_flatten("", source, 0), _MAX_VALUES):
            name = bounded_text(name, NAME_LENGTH)
            flat[name] = bounded_value(masked(name, value))
    return flat


def _is_unnamed(values: object) -> bool:
    return isinstance(values, type | str) or (_is_list(values) and not hasattr(values, "_asdict"))


def _flatten(prefix: str, value: object, depth: int) -> Iterator[tuple[str, Parameter]]:
    """Yield the plain values in `value`, each with its full name. `prefix`: name of `value`; empty at the top."""
    parts = _parts(value, top=not depth) if depth < _MAX_DEPTH else None
    if parts is None:
        yield prefix, _plain(value)
        return
    for name, part in parts:
        yield from _flatten(f"{prefix}.{name}" if prefix else str(name), part, depth + 1)


def _parts(value: Any, *, top: bool) -> Iterable[tuple[object, object]] | None:
    """Return the names and values that `value` contains; None if `value` is a plain value."""
    if isinstance(value, Mapping) or (_is_config(value) and hasattr(value, "keys")):
        return ((name, _item(value, name)) for name in value)
    if isinstance(value, type):
        return None
    kind: Any = type(value)
    if fields := _fields(kind):
        return ((name, getattr(value, name, None)) for name in fields)
    if hasattr(kind, "_asdict") and isinstance(value, tuple):
        return zip(kind._fields, value, strict=False)
    if kind.__name__.endswith("Namespace") or top:
        attributes = getattr(value, "__dict__", {})
        return ((name, attributes[name]) for name in list(attributes) if not str(name).startswith("_"))
    if _is_list(value):
        items = _items(value)
        if any(_parts(item, top=False) is not None for item in items):
            return enumerate(items)
    return None


def _fields(kind: Any) -> Sequence[str]:
    """Return the field names of a dataclass or a class of pydantic or attrs; empty for any other class."""
    fields = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "__pydantic_fields__", None)
    if isinstance(fields, Mapping):
        return list(fields)
    return [field.name for field in getattr(kind, "__attrs_attrs__", ())]


def _is_config(value: Any) -> bool:
    """Whether `value` is a container of a configuration package, which is fast to read."""
    return type(value).__module__.partition(".")[0] in _CONFIGS


def _is_list(value: Any) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple) or (_is_config(value) and isinstance(value, Sequence))


def _items(values: Sequence[object]) -> list[object]:
    return [_item(values, i) for i in range(min(len(values), _MAX_VALUES))]


def _item(container: Any, key: object) -> object:
    """Return an item of a container, or the name of the error if the item cannot be read.

    Reading fails, for example, for a mandatory value that is not set.
    """
    try:
        return container[key]
    except Exception as error:
        return f"<{type(error).__name__}>"


def _plain(value: object) -> Parameter:
    if value is None or isinstance(value, bool | int | float | str):
        if isinstance(value, str):
            return str.__str__(value)[:_MAX_LENGTH]
        return value
    if _is_list(value):
        return _join(_items(value))
    if isinstance(value, set | frozenset):
        return _join(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))[:_MAX_LENGTH]
    kind = type(value)
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        inner = value.value
        return _plain(inner) if isinstance(inner, bool | int | float | str) else value.name
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return str(getattr(value, "__qualname__", kind.__name__))[:_MAX_LENGTH]
    if kind.__name__.lower() in _NAMES or kind.__module__ in _TEXTS or isinstance(value, range):
        return str(value)[:_MAX_LENGTH]
    return _number(value, kind)


def _number(value: Any, kind: type) -> Parameter:
    """Return a scalar of numpy or of a framework as a number if it is in host memory; else the name of its type."""
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) == 0 and "cpu" in str(getattr(value, "device", "cpu")).lower():
        item = value.item()
        if isinstance(item, bool | int | float | str):
            return item
    size = f" {tuple(shape)}" if shape else ""
    return bounded_text(f"<{kind.__name__}{size}>", VALUE_LENGTH)


def _join(values: Collection[object]) -> str:
    """Return a list as one string. If the list is a command line, the value after an option for a secret is masked."""
    texts: list[str] = []
    is_secret = False
    for value in islice(values, _MAX_ITEMS):
        text = str(_plain(value))
        texts.append(MASK if is_secret else text)
        is_secret = text.startswith("-") and "=" not in text and is_secret_name(text)
        if sum(map(len, texts)) > _MAX_LENGTH:
            break
    is_cut = len(texts) < len(values)
    separator = " " if any(text.startswith("--") for text in texts) else ", "
    return separator.join(texts) + (f"{separator}…" if is_cut else "")
