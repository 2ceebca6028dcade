"""Everything that relies on private parts of Textual, and a plain way without it.

Two costs of the public way, measured with Textual 8: a partial update sends whole lines (`cell_diff`), and frames
queue up behind a slow terminal (`flow_control`). At the start `missing` looks whether the installed Textual still has
the private names; where it lacks one, the view draws as Textual does, which costs more and shows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from typing import Any

from rich.console import RenderableType
from textual.app import App

PARTS = (
    ("textual._compositor", "CompositorUpdate.render_segments", ("console",)),
    ("textual._compositor", "ChopsUpdate", ("chops", "spans", "chop_ends")),
    ("textual.app", "App._display", ("screen", "renderable")),
)
"""Module, name and parameters of what `cell_diff` overrides or reads."""

Display = Callable[[RenderableType | None], Any]


def missing(parts: Sequence[tuple[str, str, tuple[str, ...]]] = PARTS) -> list[str]:
    """Return the names of `parts` that the installed Textual lacks, or has with other parameters."""
    return [f"{module}.{name}" for module, name, parameters in parts if not _has(module, name, parameters)]


def partial_updates(parts: Sequence[tuple[str, str, tuple[str, ...]]] = PARTS) -> Display:
    """Return the function that every update passes on its way to the terminal; the identity if a part is missing."""
    if missing(parts):
        return _unchanged
    from gpumon_tui.textual_private.cell_diff import cell_diff

    return cell_diff


def write(app: App[Any], text: str) -> bool:
    """Write `text` to the terminal behind what was drawn; False if this Textual gives no way to do so."""
    driver = getattr(app, "_driver", None)
    if driver is None:
        return False
    driver.write(text)
    return True


def _unchanged(renderable: RenderableType | None) -> RenderableType | None:
    return renderable


def _has(module: str, name: str, parameters: Sequence[str]) -> bool:
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return set(parameters) <= set(signature(found).parameters)
    except (ImportError, AttributeError, TypeError, ValueError):
        return False
