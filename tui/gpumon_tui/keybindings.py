"""Keys that every page has, the lists of keys in footer, help and palette, and differences from similar programs.

A key is a Textual `Binding`. `key_display` is its name on screen, `description` the short text in the footer, `tooltip`
the text in the help; without a `tooltip` another binding describes the key. The keys of a page are the `BINDINGS` of
its class, and an action is the method `action_<name>` of the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

from textual.binding import Binding
from textual.screen import Screen

OVERVIEW, CHART, PROCESSES, RUNS, EVENTS = "Overview", "Chart", "Processes", "Runs", "Events"
PAGE_CLASSES: Mapping[str, str] = {
    OVERVIEW: "gpumon_tui.screens.overview:OverviewPage",
    CHART: "gpumon_tui.screens.chart.page:ChartPage",
    PROCESSES: "gpumon_tui.screens.processes:ProcessesPage",
    RUNS: "gpumon_tui.screens.runs:RunsPage",
    EVENTS: "gpumon_tui.screens.events:EventsPage",
}
"""Module and class of each page, in the order of the digit keys that open them."""
PAGES = tuple(PAGE_CLASSES)

FIRST_ACTIONS = ("quit", "help")
"""Actions whose keys are listed first on every page."""
_SEEK_NOTE = "; { } move a recording"
"""Suffix of the descriptions of keys that pan a chart."""
_HOST_NOTE = "; the host follows the last"
"""Suffix of the descriptions of keys that select a GPU."""
RARE_ACTIONS = ("commands", "theme", "table")
"""Actions whose keys appear in the footer only if there is room after all others."""
INTERFERING_ACTIONS = ("signal",)
"""Actions that affect other processes, which a read-only view must not do."""

GLOBAL_BINDINGS = [
    Binding("q,ctrl+c,ctrl+q,f10", "app.quit", "quit", key_display="q", tooltip="quit"),
    Binding("ctrl+z", "app.suspend", key_display="^Z", tooltip="suspend; 'fg' in the shell resumes"),
    Binding("question_mark,h,f1", "app.help", "help", key_display="?", tooltip="this help"),
    Binding("colon,ctrl+p", "app.commands", "find", key_display=":",
        tooltip="find a command by letters of its description, and run it"),
    Binding("1", "app.open_page(1)", key_display=f"1-{len(PAGES)}",
        tooltip="the pages: " + ", ".join(name.lower() for name in PAGES)),
    *(Binding(str(number), f"app.open_page({number})") for number in range(2, len(PAGES) + 1)),
    Binding("space", "app.pause", "pause", key_display="Space",
        tooltip="pause the display; sampling continues, a recording stands still"),
    Binding("left_square_bracket", "app.seek(-60)", key_display="[ ]",
        tooltip="a recording: back or forward a minute; { } ten minutes"),
    Binding("right_square_bracket", "app.seek(60)"),
    Binding("left_curly_bracket", "app.seek(-600)"),
    Binding("right_curly_bracket", "app.seek(600)"),
    Binding("s", "app.simulate", key_display="s", tooltip="if no GPU can be read: switch to a simulation and back"),
    Binding("a,exclamation_mark", "app.attention", key_display="a !",
        tooltip="what needs attention; the selected GPU and run come first"),
    Binding("B", "app.toggle_notifications", key_display="B",
        tooltip="terminal notifications of ended runs and free GPUs: on or off"),
    Binding("f2", "app.theme", "theme", key_display="F2",
        tooltip="theme: dark, light, high contrast, color-blind safe, the last two also light; kept for next time"),
    Binding("ctrl+l,ctrl+r", "app.redraw", key_display="^L",
        tooltip="redraw the screen, for example after another program wrote over it"),
    Binding("up,k", "screen.move(-1)", key_display="↑ ↓",
        tooltip="move in a table, also k j; PgUp PgDn Home End; ^U ^D half a page"),
    Binding("down,j", "screen.move(1)"),
    Binding("pageup,ctrl+b", "screen.move_page(-2)"),
    Binding("pagedown,ctrl+f", "screen.move_page(2)"),
    Binding("ctrl+u", "screen.move_page(-1)"),
    Binding("ctrl+d", "screen.move_page(1)"),
    Binding("home", "screen.move(-1_000_000)"),
    Binding("end", "screen.move(1_000_000)"),
]  # fmt: skip
"""Keys that apply on every page that does not bind them itself."""


class ViewAbilities(NamedTuple):
    """Properties of a view that decide which keys are listed; keys that would have no effect or are not permitted
    are left out.
    """

    is_readonly: bool = False
    can_seek: bool = True
    """Whether a recording that supports seeking plays, or might play."""
    has_host: bool = True
    """Whether host metrics are available; otherwise no key leads to the host."""
    plays_recording: bool = False
    """Whether this process plays a recording; then no key starts another source."""


DEFAULT_ABILITIES = ViewAbilities()


def action_name(binding: Binding) -> str:
    """Return the name of a binding's action without namespace and arguments: `subject` of `screen.subject(1)`."""
    return binding.action.partition("(")[0].rpartition(".")[2]


def page_bindings(page: str) -> list[Binding]:
    """Return the keys that a page binds itself."""
    module, _, class_name = PAGE_CLASSES[page].partition(":")
    bindings: list[Binding] = getattr(import_module(module), class_name).BINDINGS
    return bindings


def page_keys(page: str) -> tuple[Binding, ...]:
    """Return the keys that apply on a page: its own, and the global ones that it does not bind itself."""
    own = page_bindings(page)
    taken_names = {name for binding in own for name in binding.key.split(",")}
    others = [binding for binding in GLOBAL_BINDINGS if not taken_names.intersection(binding.key.split(","))]
    first = [binding for binding in others if action_name(binding) in FIRST_ACTIONS]
    return (*first, *own, *(binding for binding in others if binding not in first))


def help_keys(page: str, view: ViewAbilities = DEFAULT_ABILITIES) -> tuple[Binding, ...]:
    """Return the keys of a page that are listed in the help for such a view."""
    suffixes = (*(() if view.can_seek else (_SEEK_NOTE,)), *(() if view.has_host else (_HOST_NOTE,)))
    return tuple(
        replace(binding, tooltip=_without(binding.tooltip, suffixes))
        for binding in page_keys(page)
        if binding.tooltip
        and not (view.is_readonly and action_name(binding) in INTERFERING_ACTIONS)
        and (view.can_seek or action_name(binding) != "seek")
        and not (view.plays_recording and action_name(binding) == "simulate")
    )


def _without(description: str, suffixes: tuple[str, ...]) -> str:
    for suffix in suffixes:
        description = description.removesuffix(suffix)
    return description


def footer_keys(page: str) -> tuple[tuple[str, str], ...]:
    """Return the displayed names and short descriptions of the keys for the footer; keys of the page come first."""
    own = page_bindings(page)
    briefs = [binding for binding in page_keys(page) if binding.description]
    briefs.sort(key=lambda key: (action_name(key) in FIRST_ACTIONS, action_name(key) in RARE_ACTIONS, key not in own))
    return tuple((binding.key_display or "", binding.description) for binding in briefs)


def key_binding(page: str, name: str) -> Binding | None:
    """Return the binding of a key (Textual's name) on a page, or None."""
    return next((binding for binding in page_keys(page) if name in binding.key.split(",")), None)


async def press_key(screen: Screen[Any], name: str) -> bool:
    """Run the action that a key (Textual's name) is bound to on a screen; return whether it is bound."""
    active = screen.active_bindings.get(name)
    if active is not None:
        await screen.app.run_action(active.binding.action, active.node)
    return active is not None


class Habit(NamedTuple):
    """A key that has another meaning in similar programs, for users with that habit."""

    key: str
    """Textual's key name."""
    action: str
    """Its action in gpumon; on pages where the key does something else, the hint is not shown."""
    label: str
    note: str
    """What it does in other programs, and which key does that here."""


HABITS = (
    Habit("k", "move", "k", "kill in htop and btop (K on page 3)"),
    Habit("k", "subject", "k", "kill in htop and btop (K on page 3)"),
    Habit("t", "tree", "t", "terminate in btop (K)"),
    Habit("T", "by_time", "T", "terminate in nvitop (K)"),
    Habit("I", "reverse", "I", "interrupt in nvitop (K)"),
    Habit("slash", "filter", "/", "reverse the order in nvitop (I on page 3)"),
    Habit("u", "by_user", "u", "one user's processes in htop (/ user:)"),
    Habit("space", "pause", "Space", "tag in htop and nvitop (on page 3)"),
    Habit("plus", "zoom", "+ -", "turn the order in nvtop, the interval in btop"),
    Habit("left_square_bracket", "seek", "[ ]", "scroll in nvitop (PgUp PgDn)"),
    Habit("left_square_bracket", "pan", "[ ]", "scroll in nvitop"),
    Habit("f2", "theme", "F2", "setup in htop and nvtop"),
    Habit("a", "attention", "a", "layout in nvitop"),
    Habit("r", "report", "r", "refresh in nvitop (^R)"),
    Habit("g", "subject", "g", "first row in vim (Home)"),
    Habit("g", "only_gpu", "g", "first row in vim (Home)"),
    Habit("p", "alike", "p", "another layout in btop"),
)


def page_habits(page: str) -> list[Habit]:
    """Return the hints for the keys of a page."""
    return [
        habit
        for habit in HABITS
        if (binding := key_binding(page, habit.key)) is not None and action_name(binding) == habit.action
    ]
