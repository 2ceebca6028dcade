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


ALWAYS = ("quit", "help")
"""Actions whose keys are listed first on every page."""


_MOVES = "; { } move a recording"
"""Suffix of the descriptions of keys that pan a chart."""
_HOST = "; the host follows the last"
"""Suffix of the descriptions of keys that select a GPU."""
SELDOM = ("commands", "theme", "table")
"""Actions whose keys appear in the footer only if there is room after all others."""


class Key(NamedTuple):
    """A key binding."""

    keys: str
    """Textual's key names, separated by commas."""
    action: str
    """Calls the page's method `do_<action>`, or the app's if the page has none."""
    shown: str
    what: str
    """Description for the help; empty if another entry describes the key."""
    brief: str = ""
    """Short description for the footer; empty if the footer does not show it."""
    by: int | None = None
    """Argument of the method; None for a method without arguments."""
    pages: tuple[str, ...] = ()
    """Pages on which it applies; empty: every page that does not bind the key itself."""
    interferes: bool = False
    """Whether it affects other processes, which a read-only view must not do."""


KEYS = (
    Key("q,ctrl+c,f10", "quit", "q", "quit", "quit"),
    Key("ctrl+z", "suspend", "^Z", "suspend; 'fg' in the shell resumes"),
    Key("question_mark,h,f1", "help", "?", "this help", "help"),
    Key("colon,ctrl+p", "commands", ":", "find what a key does by some letters of it, and do it", "find"),
    Key("1", "open_page", f"1-{len(PAGES)}", "the pages: " + ", ".join(name.lower() for name in PAGES), by=1),
    *(Key(str(number), "open_page", "", "", by=number) for number in range(2, len(PAGES) + 1)),
    Key("left", "cursor", "← →", "the cursor, which reads out a moment; shift: ten columns; also Home End", "cursor",
        by=-1, pages=(CHART,)),
    Key("right", "cursor", "", "", by=1, pages=(CHART,)),
    Key("shift+left", "cursor", "", "", by=-10, pages=(CHART,)),
    Key("shift+right", "cursor", "", "", by=10, pages=(CHART,)),
    Key("home", "cursor", "", "", by=-1_000_000, pages=(CHART,)),
    Key("end", "cursor", "", "", by=1_000_000, pages=(CHART,)),
    Key("left_square_bracket,less_than_sign,comma,pageup,ctrl+u", "pan", "[ ]",
        "back or forward half a window, as far as the mouse drags it too" + _MOVES, "pan", by=-1,
        pages=(CHART,)),
    Key("right_square_bracket,greater_than_sign,full_stop,pagedown,ctrl+d", "pan", "", "", by=1, pages=(CHART,)),
    Key("plus,equals_sign", "zoom", "+ -", "longer or shorter time window, 2 seconds to 31 days; the wheel too", "zoom",
        by=1, pages=(CHART,)),
    Key("minus,underscore", "zoom", "", "", by=-1, pages=(CHART,)),
    Key("enter", "choose", "↵", "the list of metrics", "metrics", pages=(CHART,)),
    Key("g,down,j", "subject", "g G", "next or previous GPU, also ↓ ↑" + _HOST, "GPU", by=1,
        pages=(CHART,)),
    Key("G,up,k", "subject", "", "", by=-1, pages=(CHART,)),
    Key("c", "overlay", "c", "lay over the chart: the mean of the run's other GPUs, each GPU, or nothing", "overlay",
        pages=(CHART,)),
    Key("escape", "back", "Esc 0", "from the past and the cursor back to now; Esc to the page that opened the chart",
        "live", pages=(CHART,)),
    Key("0", "to_now", "", "", pages=(CHART,)),
    Key("enter", "open", "↵", "open it: a GPU's chart, a run, a process", "open", pages=(OVERVIEW,)),
    Key("g,right", "subject", "g G", "next or previous GPU (also → ←)" + _HOST, "GPU", by=1,
        pages=(OVERVIEW,)),
    Key("y", "copy", "y", "copy the row under the cursor: a GPU, a run, a process", "copy", pages=(OVERVIEW,)),
    Key("G,left", "subject", "", "", by=-1, pages=(OVERVIEW,)),
    Key("p", "preset", "p P", "the next set of metrics: training, memory, power and heat, traffic", "preset", by=1,
        pages=(CHART,)),
    Key("P", "preset", "", "", by=-1, pages=(CHART,)),
    Key("w", "window", "w W", "the next window as far as history goes: 1 min, 10 min, 1 h, 24 h, 7 d, 31 d", "window",
        by=1, pages=(CHART,)),
    Key("W", "window", "", "", by=-1, pages=(CHART,)),
    Key("f", "layout", "f", "layout: all charts, without small ones, one chart; kept as all of these", "layout",
        pages=(CHART,)),
    Key("m", "panel", "m M", "next or previous metric", "metric", by=1, pages=(CHART,)),
    Key("M", "panel", "", "", by=-1, pages=(CHART,)),
    Key("plus,equals_sign", "zoom", "+ -", "longer or shorter time window, 1 minute to 31 days", "zoom", by=1,
        pages=(OVERVIEW,)),
    Key("minus", "zoom", "", "", by=-1, pages=(OVERVIEW, PROCESSES)),
    Key("space", "pause", "Space", "pause the display; sampling continues, a recording stands still", "pause"),
    Key("left_square_bracket", "seek", "[ ]", "a recording: back or forward a minute; { } ten minutes", by=-60),
    Key("right_square_bracket", "seek", "", "", by=60),
    Key("left_curly_bracket", "seek", "", "", by=-600),
    Key("right_curly_bracket", "seek", "", "", by=600),
    Key("tab,shift+tab", "table", "Tab", "the next table: GPUs, runs, processes", "table", pages=(OVERVIEW,)),
    Key("tab,shift+tab", "table", "Tab", "move in the list of runs, or in the run below it", "table", pages=(RUNS,)),
    Key("enter", "open", "↵", "open a run: its epochs, what lies between them, curves", pages=(RUNS,)),
    Key("escape,backspace", "back", "Esc", "close what was opened last, then the filter", pages=(RUNS,)),
    Key("slash,f3,f4,backslash", "filter", "/", "only runs with these words in name, id, user, framework, state or tag",
        pages=(RUNS,)),
    Key("o,f6", "order", "o O", "another order; also a click on a heading", by=1, pages=(RUNS,)),
    Key("O", "order", "", "", by=-1, pages=(RUNS,)),
    Key("v", "compare", "v", "compare a run with another; x swaps them, d shows equal settings", pages=(RUNS,)),
    Key("x", "swap", "", "", pages=(RUNS,)),
    Key("d", "equal", "", "", pages=(RUNS,)),
    Key("e", "on_chart", "e", "an epoch on the chart: its time, its GPUs; Esc leads back", pages=(RUNS,)),
    Key("r", "report", "r", "write the report of a run into a new file here", pages=(RUNS,)),
    Key("c", "curves", "c", "curves of a run in place of its table, on a narrow screen", pages=(RUNS,)),
    Key("y", "copy", "y", "copy the row under the cursor", pages=(RUNS,)),
    Key("slash,f3,f4,backslash", "filter", "/", "filter: words, user: gpu: run:, mem> cpu> time> idle>", "filter",
        pages=(PROCESSES,)),
    Key("n", "move", "", "", by=1, pages=(PROCESSES, RUNS)),
    Key("N", "move", "", "", by=-1, pages=(PROCESSES, RUNS)),
    Key("space", "tag", "Space", "tag a process: one signal or copy for all tagged; U untags all", "tag",
        pages=(PROCESSES,)),
    Key("U", "untag", "", "", pages=(PROCESSES,)),
    Key("o,f6", "order", "o", "sort by a column; also a click on its heading", "sort", pages=(PROCESSES,)),
    Key("I", "reverse", "I", "turn the order", pages=(PROCESSES,)),
    Key("M", "by_memory", "M P T", "sort by GPU memory, CPU, time; , . by the column to the left, right",
        pages=(PROCESSES,)),
    Key("P", "by_cpu", "", "", pages=(PROCESSES,)),
    Key("T", "by_time", "", "", pages=(PROCESSES,)),
    Key("comma,less_than_sign", "next_order", "", "", by=-1, pages=(PROCESSES,)),
    Key("full_stop,greater_than_sign", "next_order", "", "", by=1, pages=(PROCESSES,)),
    Key("enter", "open", "↵", "open a process: what it uses, and its history", "open", pages=(PROCESSES,)),
    Key("tab,shift+tab", "table", "", "", pages=(PROCESSES,)),
    Key("K,f9", "signal", "K", "end own processes, or send a signal: asks before", pages=(PROCESSES,),
        interferes=True),
    Key("y", "copy", "y", "copy the row", "copy", pages=(PROCESSES,)),
    Key("u", "by_user", "u", "totals by user", "by user", pages=(PROCESSES,)),
    Key("A", "accounts", "A", "accounts: whose the GPUs were in a day, a week or a month, and what it cost", "accounts",
        pages=(PROCESSES,)),
    Key("t,f5", "tree", "t", "processes below those that started them", "tree", pages=(PROCESSES,)),
    Key("p", "pause", "p", "pause the display, as space does on other pages", "pause", pages=(PROCESSES,)),
    Key("plus,equals_sign", "zoom", "+ -", "longer or shorter time window, 2 seconds to 31 days", "zoom", by=1,
        pages=(PROCESSES,)),
    Key("g", "move", "g G", "the first or last row", by=-1_000_000, pages=(PROCESSES, RUNS)),
    Key("G", "move", "", "", by=1_000_000, pages=(PROCESSES, RUNS)),
    Key("escape", "close", "Esc", "close what was opened last, then the filter", pages=(PROCESSES,)),
    Key("enter", "open", "↵", "the moment of an event on the chart", "moment", pages=(EVENTS,)),
    Key("slash,f3,f4,backslash", "filter", "/", "filter events: words, gpu: user:", "filter", pages=(EVENTS,)),
    Key("tab", "group", "Tab", "events of another group: by severity, of runs, throttling, GPUs, idleness", "group",
        by=1, pages=(EVENTS,)),
    Key("shift+tab", "group", "", "", by=-1, pages=(EVENTS,)),
    Key("g", "only_gpu", "g G", "events of one GPU, or of all", "GPU", by=1, pages=(EVENTS,)),
    Key("G", "only_gpu", "", "", by=-1, pages=(EVENTS,)),
    Key("n", "alike", "n p", "next or previous event of the same kind", "next of kind", by=1, pages=(EVENTS,)),
    Key("p,N", "alike", "", "", by=-1, pages=(EVENTS,)),
    Key("y", "copy", "y", "copy the event", "copy", pages=(EVENTS,)),
    Key("escape", "close", "Esc", "close the filter, then show all events", pages=(EVENTS,)),
    Key("s", "simulate", "s", "if no GPU can be read: switch to a simulation and back"),
    Key("a,exclamation_mark", "attention", "a !", "what needs attention, the selected GPU and run first"),
    Key("B", "notify", "B", "notifications by the terminal of runs that end and GPUs that become free: on or off"),
    Key("f2", "theme", "F2",
        "theme: dark, light, high contrast, color-blind safe, the last two also light; kept for the next time",
        "theme"),
    Key("ctrl+l,ctrl+r", "redraw", "^L", "draw the screen again, as after a message of another program"),
    Key("up,k", "move", "↑ ↓", "move in a table, also k j; PgUp PgDn Home End; ^U ^D half a page", by=-1),
    Key("down,j", "move", "", "", by=1),
    Key("pageup,ctrl+b", "page", "", "", by=-2),
    Key("pagedown,ctrl+f", "page", "", "", by=2),
    Key("ctrl+u", "page", "", "", by=-1),
    Key("ctrl+d", "page", "", "", by=1),
    Key("home", "move", "", "", by=-1_000_000),
    Key("end", "move", "", "", by=1_000_000),
)  # fmt: skip


class Abilities(NamedTuple):
    """Properties of a view that decide which keys are listed; keys that would have no effect or are not permitted
    are left out.
    """

    is_readonly: bool = False
    can_seek: bool = True
    """Whether a recording that supports seeking plays, or might play."""
    has_host: bool = True
    """Whether host metrics are available; otherwise no key leads to the host."""
    plays: bool = False
    """Whether this process plays a recording; then no key starts another source."""


USUAL = Abilities()


def told_on(page: str, view: Abilities = USUAL) -> tuple[Key, ...]:
    """Return the keys of a page that are listed in the help for such a view."""
    absent = (*(() if view.can_seek else (_MOVES,)), *(() if view.has_host else (_HOST,)))
    return tuple(
        key._replace(what=_without(key.what, absent))
        for key in applying(page)
        if key.what
        and not (view.is_readonly and key.interferes)
        and (view.can_seek or key.action != "seek")
        and not (view.plays and key.action == "simulate")
    )


def _without(what: str, ends: tuple[str, ...]) -> str:
    for end in ends:
        what = what.removesuffix(end)
    return what


def applying(page: str) -> tuple[Key, ...]:
    """Return the keys that apply on a page: its own, and the global ones that it does not bind itself."""
    own = [key for key in KEYS if page in key.pages]
    taken = {name for key in own for name in key.keys.split(",")}
    others = [key for key in KEYS if not key.pages and not taken.intersection(key.keys.split(","))]
    always = [key for key in others if key.action in ALWAYS]
    return (*always, *own, *(key for key in others if key.action not in ALWAYS))


def offered(page: str) -> tuple[tuple[str, str], ...]:
    """Return the keys for the footer of a page with their short descriptions; keys that apply to the fewest pages
    come first.
    """
    briefs = [key for key in applying(page) if key.brief]
    briefs.sort(key=lambda key: (key.action in ALWAYS, key.action in SELDOM, len(key.pages) or len(PAGES)))
    return tuple((key.shown, key.brief) for key in briefs)


def pressed(page: str, name: str) -> Key | None:
    """Return the binding of a key (Textual's name) on a page, or None."""
    return next((key for key in applying(page) if name in key.keys.split(",")), None)


class Habit(NamedTuple):
    """A key that has another meaning in similar programs, for users with that habit."""

    key: str
    """Textual's key name."""
    action: str
    """Its action in gpumon; on pages where the key does something else, the hint is not shown."""
    shown: str
    there: str
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


def habits(page: str) -> list[Habit]:
    """Return the hints for the keys of a page."""
    return [one for one in HABITS if (key := pressed(page, one.key)) is not None and key.action == one.action]
