"""The parameters of a training, from whatever holds them: a dict, a namespace of argparse, a dataclass.

Values become plain ones without a call that may take long: nothing is read from a GPU, and of an object that is
neither number nor text no more than its type is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeGuard

from gpumon.model.run import MOST_PARAMETERS, NAME_LENGTH, VALUE_LENGTH, Parameter, bounded_text, bounded_value
from gpumon.tracking.secrets import MASK, is_secret_name, masked

_DEEPEST = 6
_MOST_ITEMS = 64
"""Of a list that is one text."""
_MOST_SEEN = 4 * MOST_PARAMETERS
_LONGEST = 4096
_TEXTS = ("datetime", "decimal", "fractions", "uuid", "ipaddress")
"""Modules of the standard library whose objects are short texts."""
_CONFIGS = ("collections", "ml_collections", "omegaconf")
"""Packages whose lists and dictionaries are read like Python's own. Others may compute each item."""
_NAMES = ("dtype", "device")
"""Types of frameworks that stand for their name."""


def parameters(given: object, more: Mapping[str, object]) -> dict[str, Parameter]:
    """The parameters in `given` and `more` by name, bounded and without secrets; later ones win."""
    found: dict[str, Parameter] = {}
    sources: list[object] = [] if given is None else [{"arguments": given} if _is_listed(given) else given]
    for source in (*sources, more):
        for name, value in islice(_flat("", source, 0), _MOST_SEEN):
            name = bounded_text(name, NAME_LENGTH)
            found[name] = bounded_value(masked(name, value))
    return found


def _is_listed(given: object) -> bool:
    return isinstance(given, type | str) or (_is_list(given) and not hasattr(given, "_asdict"))


def _flat(prefix: str, value: object, depth: int) -> Iterator[tuple[str, Parameter]]:
    """The plain values in `value`, each with its whole name."""
    parts = _parts(value, top=not depth) if depth < _DEEPEST else None
    if parts is None:
        yield prefix, _plain(value)
        return
    for name, part in parts:
        yield from _flat(f"{prefix}.{name}" if prefix else str(name), part, depth + 1)


def _parts(value: Any, *, top: bool) -> Iterable[tuple[object, object]] | None:
    """Names and values that `value` holds; None where it is a value by itself."""
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
        held = getattr(value, "__dict__", {})
        return ((name, held[name]) for name in list(held) if not str(name).startswith("_"))
    if _is_list(value):
        items = _items(value)
        if any(_parts(one, top=False) is not None for one in items):
            return enumerate(items)
    return None


def _fields(kind: Any) -> Sequence[str]:
    """Names of the fields of a dataclass, or of a class of pydantic or attrs; none where it is another class."""
    own = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "__pydantic_fields__", None)
    if isinstance(own, Mapping):
        return list(own)
    return [field.name for field in getattr(kind, "__attrs_attrs__", ())]


def _is_config(value: Any) -> bool:
    """Whether it is a container of a package for configurations: reading it takes no time."""
    return type(value).__module__.partition(".")[0] in _CONFIGS


def _is_list(value: Any) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple) or (_is_config(value) and isinstance(value, Sequence))


def _items(values: Sequence[object]) -> list[object]:
    return [_item(values, i) for i in range(min(len(values), _MOST_SEEN))]


def _item(held: Any, key: object) -> object:
    """What `held` has there; its reason where it gives none, such as a mandatory value that was not set."""
    try:
        return held[key]
    except Exception as error:
        return f"<{type(error).__name__}>"


def _plain(value: object) -> Parameter:
    if value is None or isinstance(value, bool | int | float | str):
        if isinstance(value, str):
            return str.__str__(value)[:_LONGEST]
        return value
    if _is_list(value):
        return _listed(_items(value))
    if isinstance(value, set | frozenset):
        return _listed(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))[:_LONGEST]
    kind = type(value)
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        inner = value.value
        return _plain(inner) if isinstance(inner, bool | int | float | str) else value.name
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return str(getattr(value, "__qualname__", kind.__name__))[:_LONGEST]
    if kind.__name__.lower() in _NAMES or kind.__module__ in _TEXTS or isinstance(value, range):
        return str(value)[:_LONGEST]
    return _number(value, kind)


def _number(value: Any, kind: type) -> Parameter:
    """A number of numpy's or a framework's, where it lies in the memory of this machine; else the type."""
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) == 0 and "cpu" in str(getattr(value, "device", "cpu")).lower():
        item = value.item()
        if isinstance(item, bool | int | float | str):
            return item
    size = f" {tuple(shape)}" if shape else ""
    return bounded_text(f"<{kind.__name__}{size}>", VALUE_LENGTH)


def _listed(values: Collection[object]) -> str:
    """A list as one text; what follows the option of a secret in a command line is masked."""
    said: list[str] = []
    secret = False
    for value in islice(values, _MOST_ITEMS):
        text = str(_plain(value))
        said.append(MASK if secret else text)
        secret = text.startswith("-") and "=" not in text and is_secret_name(text)
        if sum(map(len, said)) > _LONGEST:
            break
    is_cut = len(said) < len(values)
    between = " " if any(text.startswith("--") for text in said) else ", "
    return between.join(said) + (f"{between}…" if is_cut else "")
