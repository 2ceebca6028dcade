"""Everything that relies on private parts of Textual, with a fallback that does not.

It avoids four costs of the public API, measured with Textual 8: a partial update sends whole lines (`cell_diff`), every
repaint passes through queues and the compositor (`painter`), frames queue up behind a slow terminal (`flow_control`),
and the key thread wakes up ten times a second (`waiting_input`). At startup, `missing` checks whether the installed
Textual still has the private names. If one is missing, the view uses Textual's own code, which is slower but shows the
same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.app import App
    from textual.driver import Driver

Parts = Sequence[tuple[str, str, tuple[str, ...]]]
PARTS: Parts = (
    ("textual._compositor", "CompositorUpdate.render_segments", ("console",)),
    ("textual._compositor", "ChopsUpdate", ("chops", "spans", "chop_ends")),
    ("textual.app", "App._display", ("screen", "renderable")),
)
"""Module, name and parameters of what `cell_diff` overrides or reads."""
INPUT_PARTS: Parts = (
    ("textual._xterm_parser", "XTermParser", ("debug",)),
    ("textual._xterm_parser", "XTermParser.feed", ("data",)),
    ("textual._xterm_parser", "XTermParser.tick", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.run_input_thread", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.disable_input", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.process_message", ("message",)),
)
"""Module, name and parameters of what `waiting_input` overrides or reads."""

Display = Callable[["RenderableType | None"], Any]


def missing(parts: Parts = PARTS) -> list[str]:
    """Return the names in `parts` that the installed Textual lacks or defines with other parameters."""
    return [f"{module}.{name}" for module, name, parameters in parts if not _has(module, name, parameters)]


def partial_updates(parts: Parts = PARTS) -> Display:
    """Return a function that converts every update before it is sent to the terminal; the identity if a part is
    missing.
    """
    if missing(parts):
        return _unchanged
    from gpumon_tui.textual_private.cell_diff import cell_diff

    return cell_diff


def waiting_driver(
    driver: type[Driver], parts: Sequence[tuple[str, str, tuple[str, ...]]] = INPUT_PARTS
) -> type[Driver]:
    """Return the driver class that blocks while waiting for keys, if `driver` is Textual's Linux driver; otherwise
    `driver`.
    """
    is_usual = driver.__module__ == "textual.drivers.linux_driver"
    if not is_usual or sys.platform != "linux" or missing(parts):  # elsewhere terminals cannot be polled
        return driver
    from gpumon_tui.textual_private.waiting_input import WaitingDriver

    return WaitingDriver


def write(app: App[Any], text: str) -> bool:
    """Write `text` to the terminal after what was drawn; returns False if this Textual offers no way to do so."""
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
