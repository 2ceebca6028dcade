"""Keys of all pages: what they do, where they apply, and where they differ from htop, btop, nvtop, nvitop or vim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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


class Key(NamedTuple):
    """A key binding."""

    keys: str
    """Textual's key names, separated by commas."""
    action: str
    """Calls the page's method `do_<action>`, or the app's if the page has none."""
    label: str
    description: str
    """Description for the help; empty if another entry describes the key."""
    footer_text: str = ""
    """Short description for the footer; empty if the footer does not show it."""
    argument: int | None = None
    """Argument of the method; None for a method without arguments."""
    pages: tuple[str, ...] = ()
    """Pages on which it applies; empty: every page that does not bind the key itself."""
    interferes: bool = False
    """Whether it affects other processes, which a read-only view must not do."""


KEYS = (
    Key("q,ctrl+c,f10", "quit", "q", "quit", "quit"),
    Key("ctrl+z", "suspend", "^Z", "suspend; 'fg' in the shell resumes"),
    Key("question_mark,h,f1", "help", "?", "this help", "help"),
    Key("colon,ctrl+p", "commands", ":", "find a command by letters of its description, and run it", "find"),
    Key("1", "open_page", f"1-{len(PAGES)}", "the pages: " + ", ".join(name.lower() for name in PAGES), argument=1),
    *(Key(str(number), "open_page", "", "", argument=number) for number in range(2, len(PAGES) + 1)),
    Key("left", "cursor", "← →", "move the cursor, which reads out a time; shift: ten columns; also Home End", "cursor",
        argument=-1, pages=(CHART,)),
    Key("right", "cursor", "", "", argument=1, pages=(CHART,)),
    Key("shift+left", "cursor", "", "", argument=-10, pages=(CHART,)),
    Key("shift+right", "cursor", "", "", argument=10, pages=(CHART,)),
    Key("home", "cursor", "", "", argument=-1_000_000, pages=(CHART,)),
    Key("end", "cursor", "", "", argument=1_000_000, pages=(CHART,)),
    Key("left_square_bracket,less_than_sign,comma,pageup,ctrl+u", "pan", "[ ]",
        "back or forward half a window, as by dragging" + _SEEK_NOTE, "pan", argument=-1,
        pages=(CHART,)),
    Key("right_square_bracket,greater_than_sign,full_stop,pagedown,ctrl+d", "pan", "", "", argument=1, pages=(CHART,)),
    Key("plus,equals_sign", "zoom", "+ -", "longer or shorter time window, 2 seconds to 31 days; the wheel too", "zoom",
        argument=1, pages=(CHART,)),
    Key("minus,underscore", "zoom", "", "", argument=-1, pages=(CHART,)),
    Key("enter", "choose", "↵", "the list of metrics", "metrics", pages=(CHART,)),
    Key("g,down,j", "subject", "g G", "next or previous GPU, also ↓ ↑" + _HOST_NOTE, "GPU", argument=1,
        pages=(CHART,)),
    Key("G,up,k", "subject", "", "", argument=-1, pages=(CHART,)),
    Key("c", "overlay", "c", "overlay: the mean of the run's other GPUs, each GPU, or nothing", "overlay",
        pages=(CHART,)),
    Key("escape", "back", "Esc 0", "back to now, without a cursor; Esc also returns to the page that opened the chart",
        "live", pages=(CHART,)),
    Key("0", "to_now", "", "", pages=(CHART,)),
    Key("enter", "open", "↵", "open it: a GPU's chart, a run, a process", "open", pages=(OVERVIEW,)),
    Key("g,right", "subject", "g G", "next or previous GPU (also → ←)" + _HOST_NOTE, "GPU", argument=1,
        pages=(OVERVIEW,)),
    Key("y", "copy", "y", "copy the row under the cursor: a GPU, a run, a process", "copy", pages=(OVERVIEW,)),
    Key("G,left", "subject", "", "", argument=-1, pages=(OVERVIEW,)),
    Key("p", "preset", "p P", "the next set of metrics: training, memory, power and heat, traffic", "preset",
        argument=1, pages=(CHART,)),
    Key("P", "preset", "", "", argument=-1, pages=(CHART,)),
    Key("w", "window", "w W", "the next window, up to the length of the history: 1 min to 31 d", "window",
        argument=1, pages=(CHART,)),
    Key("W", "window", "", "", argument=-1, pages=(CHART,)),
    Key("f", "layout", "f", "layout: all charts, without small charts, or one chart", "layout",
        pages=(CHART,)),
    Key("m", "panel", "m M", "next or previous metric", "metric", argument=1, pages=(CHART,)),
    Key("M", "panel", "", "", argument=-1, pages=(CHART,)),
    Key("plus,equals_sign", "zoom", "+ -", "longer or shorter time window, 1 minute to 31 days", "zoom", argument=1,
        pages=(OVERVIEW,)),
    Key("minus", "zoom", "", "", argument=-1, pages=(OVERVIEW, PROCESSES)),
    Key("space", "pause", "Space", "pause the display; sampling continues, a recording stands still", "pause"),
    Key("left_square_bracket", "seek", "[ ]", "a recording: back or forward a minute; { } ten minutes", argument=-60),
    Key("right_square_bracket", "seek", "", "", argument=60),
    Key("left_curly_bracket", "seek", "", "", argument=-600),
    Key("right_curly_bracket", "seek", "", "", argument=600),
    Key("tab,shift+tab", "table", "Tab", "the next table: GPUs, runs, processes", "table", pages=(OVERVIEW,)),
    Key("tab,shift+tab", "table", "Tab", "move in the list of runs, or in the run below it", "table", pages=(RUNS,)),
    Key("enter", "open", "↵", "open a run: its epochs, the time between them, curves", pages=(RUNS,)),
    Key("escape,backspace", "back", "Esc", "close what was opened last, then the filter", pages=(RUNS,)),
    Key("slash,f3,f4,backslash", "filter", "/", "only runs with these words in name, id, user, framework, state or tag",
        pages=(RUNS,)),
    Key("o,f6", "order", "o O", "another order; also a click on a heading", argument=1, pages=(RUNS,)),
    Key("O", "order", "", "", argument=-1, pages=(RUNS,)),
    Key("v", "compare", "v", "compare a run with another; x swaps them, d shows equal settings", pages=(RUNS,)),
    Key("x", "swap", "", "", pages=(RUNS,)),
    Key("d", "equal", "", "", pages=(RUNS,)),
    Key("e", "on_chart", "e", "an epoch on the chart: its time, its GPUs; Esc leads back", pages=(RUNS,)),
    Key("r", "report", "r", "write the report of a run to a new file in the working directory", pages=(RUNS,)),
    Key("c", "curves", "c", "curves of a run in place of its table, on a narrow screen", pages=(RUNS,)),
    Key("y", "copy", "y", "copy the row under the cursor", pages=(RUNS,)),
    Key("slash,f3,f4,backslash", "filter", "/", "filter: words, user: gpu: run:, mem> cpu> time> idle>", "filter",
        pages=(PROCESSES,)),
    Key("n", "move", "", "", argument=1, pages=(PROCESSES, RUNS)),
    Key("N", "move", "", "", argument=-1, pages=(PROCESSES, RUNS)),
    Key("space", "tag", "Space", "tag a process: one signal or copy for all tagged; U untags all", "tag",
        pages=(PROCESSES,)),
    Key("U", "untag", "", "", pages=(PROCESSES,)),
    Key("o,f6", "order", "o", "sort by a column; also a click on its heading", "sort", pages=(PROCESSES,)),
    Key("I", "reverse", "I", "reverse the order", pages=(PROCESSES,)),
    Key("M", "by_memory", "M P T", "sort by GPU memory, CPU, time; , . by the column to the left, right",
        pages=(PROCESSES,)),
    Key("P", "by_cpu", "", "", pages=(PROCESSES,)),
    Key("T", "by_time", "", "", pages=(PROCESSES,)),
    Key("comma,less_than_sign", "next_order", "", "", argument=-1, pages=(PROCESSES,)),
    Key("full_stop,greater_than_sign", "next_order", "", "", argument=1, pages=(PROCESSES,)),
    Key("enter", "open", "↵", "open a process: what it uses, and its history", "open", pages=(PROCESSES,)),
    Key("tab,shift+tab", "table", "", "", pages=(PROCESSES,)),
    Key("K,f9", "signal", "K", "end a process or send a signal, after a confirmation", pages=(PROCESSES,),
        interferes=True),
    Key("y", "copy", "y", "copy the row", "copy", pages=(PROCESSES,)),
    Key("u", "by_user", "u", "totals by user", "by user", pages=(PROCESSES,)),
    Key("A", "accounts", "A", "accounts: GPU hours by user in a day, a week or a month, and their cost", "accounts",
        pages=(PROCESSES,)),
    Key("t,f5", "tree", "t", "process tree: each process below its parent", "tree", pages=(PROCESSES,)),
    Key("p", "pause", "p", "pause the display, as space does on other pages", "pause", pages=(PROCESSES,)),
    Key("plus,equals_sign", "zoom", "+ -", "longer or shorter time window, 2 seconds to 31 days", "zoom", argument=1,
        pages=(PROCESSES,)),
    Key("g", "move", "g G", "the first or last row", argument=-1_000_000, pages=(PROCESSES, RUNS)),
    Key("G", "move", "", "", argument=1_000_000, pages=(PROCESSES, RUNS)),
    Key("escape", "close", "Esc", "close what was opened last, then the filter", pages=(PROCESSES,)),
    Key("enter", "open", "↵", "show the time of an event on the chart", "moment", pages=(EVENTS,)),
    Key("slash,f3,f4,backslash", "filter", "/", "filter events: words, gpu: user:", "filter", pages=(EVENTS,)),
    Key("tab", "group", "Tab", "the next group of events: by severity, runs, throttling, GPUs, idle", "group",
        argument=1, pages=(EVENTS,)),
    Key("shift+tab", "group", "", "", argument=-1, pages=(EVENTS,)),
    Key("g", "only_gpu", "g G", "events of one GPU, or of all", "GPU", argument=1, pages=(EVENTS,)),
    Key("G", "only_gpu", "", "", argument=-1, pages=(EVENTS,)),
    Key("n", "alike", "n p", "next or previous event of the same kind", "next of kind", argument=1, pages=(EVENTS,)),
    Key("p,N", "alike", "", "", argument=-1, pages=(EVENTS,)),
    Key("y", "copy", "y", "copy the event", "copy", pages=(EVENTS,)),
    Key("escape", "close", "Esc", "close the filter, then show all events", pages=(EVENTS,)),
    Key("s", "simulate", "s", "if no GPU can be read: switch to a simulation and back"),
    Key("a,exclamation_mark", "attention", "a !", "what needs attention; the selected GPU and run come first"),
    Key("B", "notify", "B", "terminal notifications of ended runs and free GPUs: on or off"),
    Key("f2", "theme", "F2",
        "theme: dark, light, high contrast, color-blind safe, the last two also light; kept for next time",
        "theme"),
    Key("ctrl+l,ctrl+r", "redraw", "^L", "redraw the screen, for example after another program wrote over it"),
    Key("up,k", "move", "↑ ↓", "move in a table, also k j; PgUp PgDn Home End; ^U ^D half a page", argument=-1),
    Key("down,j", "move", "", "", argument=1),
    Key("pageup,ctrl+b", "page", "", "", argument=-2),
    Key("pagedown,ctrl+f", "page", "", "", argument=2),
    Key("ctrl+u", "page", "", "", argument=-1),
    Key("ctrl+d", "page", "", "", argument=1),
    Key("home", "move", "", "", argument=-1_000_000),
    Key("end", "move", "", "", argument=1_000_000),
)  # fmt: skip


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


def help_keys(page: str, view: ViewAbilities = DEFAULT_ABILITIES) -> tuple[Key, ...]:
    """Return the keys of a page that are listed in the help for such a view."""
    suffixes = (*(() if view.can_seek else (_SEEK_NOTE,)), *(() if view.has_host else (_HOST_NOTE,)))
    return tuple(
        key._replace(description=_without(key.description, suffixes))
        for key in page_keys(page)
        if key.description
        and not (view.is_readonly and key.interferes)
        and (view.can_seek or key.action != "seek")
        and not (view.plays_recording and key.action == "simulate")
    )


def _without(description: str, suffixes: tuple[str, ...]) -> str:
    for suffix in suffixes:
        description = description.removesuffix(suffix)
    return description


def page_keys(page: str) -> tuple[Key, ...]:
    """Return the keys that apply on a page: its own, and the global ones that it does not bind itself."""
    keys_of_page = [key for key in KEYS if page in key.pages]
    taken_names = {name for key in keys_of_page for name in key.keys.split(",")}
    others = [key for key in KEYS if not key.pages and not taken_names.intersection(key.keys.split(","))]
    first = [key for key in others if key.action in FIRST_ACTIONS]
    return (*first, *keys_of_page, *(key for key in others if key.action not in FIRST_ACTIONS))


def footer_keys(page: str) -> tuple[tuple[str, str], ...]:
    """Return the keys for the footer of a page with their short descriptions; keys that apply to the fewest pages
    come first.
    """
    briefs = [key for key in page_keys(page) if key.footer_text]
    briefs.sort(key=lambda key: (key.action in FIRST_ACTIONS, key.action in RARE_ACTIONS, len(key.pages) or len(PAGES)))
    return tuple((key.label, key.footer_text) for key in briefs)


def key_binding(page: str, name: str) -> Key | None:
    """Return the binding of a key (Textual's name) on a page, or None."""
    return next((key for key in page_keys(page) if name in key.keys.split(",")), None)


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
        habit for habit in HABITS if (key := key_binding(page, habit.key)) is not None and key.action == habit.action
    ]
