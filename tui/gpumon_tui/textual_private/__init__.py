"""Everything that relies on private parts of Textual, with a fallback that does not.

It avoids four costs of the public API, measured with Textual 8: a partial update sends whole lines
(`screen_updates`), every repaint passes through queues and the compositor (`painter`), frames queue up behind a slow
terminal (`flow_control`), and the key thread wakes up ten times a second (`waiting_input`). At startup, `missing`
checks whether the installed Textual still has the private names. If one is missing, the view uses Textual's own code,
which is slower but shows the same.
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

PrivateNames = Sequence[tuple[str, str, tuple[str, ...]]]
UPDATE_NAMES: PrivateNames = (
    ("textual._compositor", "CompositorUpdate.render_segments", ("console",)),
    ("textual._compositor", "ChopsUpdate", ("chops", "spans", "chop_ends")),
    ("textual.app", "App._display", ("screen", "renderable")),
)
"""Module, name and parameters of what `screen_updates` overrides or reads."""
INPUT_NAMES: PrivateNames = (
    ("textual._xterm_parser", "XTermParser", ("debug",)),
    ("textual._xterm_parser", "XTermParser.feed", ("data",)),
    ("textual._xterm_parser", "XTermParser.tick", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.run_input_thread", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.disable_input", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.process_message", ("message",)),
)
"""Module, name and parameters of what `waiting_input` overrides or reads."""

Display = Callable[["RenderableType | None"], Any]


def missing(names: PrivateNames = UPDATE_NAMES) -> list[str]:
    """Return the `names` that the installed Textual lacks or defines with other parameters."""
    return [f"{module}.{name}" for module, name, parameters in names if not _has(module, name, parameters)]


def partial_updates(names: PrivateNames = UPDATE_NAMES) -> Display:
    """Return a function that converts every update before it is sent to the terminal; the identity if a part is
    missing.
    """
    if missing(names):
        return _identity
    from gpumon_tui.textual_private.screen_updates import cell_diff

    return cell_diff


def waiting_driver(
    driver: type[Driver], names: Sequence[tuple[str, str, tuple[str, ...]]] = INPUT_NAMES
) -> type[Driver]:
    """Return the driver class that blocks while waiting for keys, if `driver` is Textual's Linux driver; otherwise
    `driver`.
    """
    is_linux_driver = driver.__module__ == "textual.drivers.linux_driver"
    if not is_linux_driver or sys.platform != "linux" or missing(names):  # elsewhere terminals cannot be polled
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


def _identity(renderable: RenderableType | None) -> RenderableType | None:
    return renderable


def _has(module: str, name: str, parameters: Sequence[str]) -> bool:
    try:
        member: Any = import_module(module)
        for part in name.split("."):
            member = getattr(member, part)
        return set(parameters) <= set(signature(member).parameters)
    except (ImportError, AttributeError, TypeError, ValueError):
        return False
