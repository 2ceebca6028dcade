"""A cluster as text: `gpumon top --prometheus`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from gpumon.cluster import cost, coverage, model
from gpumon.cluster.client import Answers, single
from gpumon.cluster.cost import unpriced_seconds, unpriced_sentence
from gpumon.cluster.model import drop_stale, staleness_note
from gpumon.cluster.period_queries import month_dates
from gpumon.cluster.problems import find_problems, interleave_kinds, page_section, query_topic, unseen_nodes
from gpumon.cluster.queries import DCGM_ONLY, Period
from gpumon.cluster.snapshot import NOT_ASKED, RULES_MISSING, ClusterSnapshot, hours, kwh, watts
from gpumon.common.config import Prices, UserGroups
from gpumon.common.numbers import is_known
from gpumon.common.text import cut, text_width
from gpumon.cost import NO_CHARGE, Charge
from gpumon.model import units
from gpumon.model.columns import RUN_BY_KEY, USER_BY_KEY
from gpumon.model.vendors import short_name
from gpumon.reports.charges import cells, columns, explained
from gpumon.reports.text_table import Table, TextColumn, distinct, end_of, sentence, shared, text_column, wrapped

_NAMES = 4
"""Nodes that a cell names."""
_LONGEST = 32
"""Cells of the name of one of several nodes."""
_LEAST = 4
"""Cells that a name has beside the number of others."""


class NodeNames:
    """Makes cells of the nodes of a cluster, and shortens them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(set(names))
        self._marks = _marks(self._names)
        self._wider: dict[int, Mapping[str, tuple[int, int]]] = {}
        self._cells: dict[str, Sequence[str]] = {}

    def cell(self, names: Sequence[str]) -> str:
        """Return the text of a cell that names some nodes, of many the first."""
        text = self._first(names, min(len(names), _NAMES))
        self._cells[text] = names
        return text

    def shorten(self, text: str, width: int) -> str:
        """Return a cell in at most so many cells of the terminal: with fewer names, rather than a part of one."""
        names = self._cells.get(text, ())
        if text_width(text) <= width or not names:
            return cut(text, width)
        for count in range(min(len(names), _NAMES) - 1, 0, -1):
            fewer = self._first(names, count)
            if text_width(fewer) <= width:
                return fewer
        others = f" +{units.count(len(names) - 1)}" if len(names) > 1 else ""
        room = width - len(others)
        return self.short(names[0], room) + others if room >= _LEAST else cut(text, width)

    def short(self, name: str, width: int) -> str:
        """Return a name in at most so many cells, with … for what was left out.

        >>> NodeNames(["gpu-node-17:9400", "gpu-node-18:9400"]).short("gpu-node-17:9400", 8)
        'gpu-…17…'
        """
        if text_width(name) <= width:
            return name
        if width not in self._wider:
            self._wider[width] = _wider(self._names, self._marks, width)
        mark = self._wider[width].get(name) or self._marks.get(name, (0, len(name)))
        return _around(name, mark, width)

    def _first(self, names: Sequence[str], count: int) -> str:
        more = len(names) - count
        shown = ", ".join(self.short(name, _LONGEST) for name in names[:count])
        return shown + (f" and {units.count(more)} more" if more else "")


def _around(name: str, place: tuple[int, int], width: int) -> str:
    """Return a name in fewer cells than it has, around what tells it from others."""
    begin, end = place
    before, mark, after = name[:begin], name[begin:end], name[end:]
    room = width - text_width(mark) - bool(after)
    if not mark or room < bool(before):
        shown = mark or name
        if 0 <= width - text_width(shown) < 2:
            return "…" * (width - text_width(shown)) + shown
        tail = end_of(shown, (width - 1) // 2)
        return cut(shown, width - text_width(tail)) + tail
    before = cut(before, room)
    return before + mark + cut(after, width - text_width(before + mark))


def _wider(names: Sequence[str], marks: Mapping[str, tuple[int, int]], width: int) -> Mapping[str, tuple[int, int]]:
    """Where that is in names which are alike without more of them, as those of the same place in two racks are."""
    alike: dict[str, list[str]] = {}
    for name in names:
        if text_width(name) > width:
            alike.setdefault(_around(name, marks[name], width), []).append(name)
    found = {}
    for group in alike.values():
        if len(group) > 1:
            backwards = sorted(name[::-1] for name in group)
            before, after = _alike(group[0], group[-1]), _alike(backwards[0], backwards[-1])
            for name in group:
                begin, end = _whole_numbers(name, before, max(before, len(name) - after))
                found[name] = min(begin, marks[name][0]), max(end, marks[name][1])
    return found


def _marks(ordered: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Where in each name that is which tells it from the one most like it; no number is parted."""
    found = {}
    for at, name in enumerate(ordered):
        near = [*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2]]
        other = max(near, key=lambda one: _alike(name, one), default="")
        begin, _ = _whole_numbers(name, _alike(name, other), len(name))
        found[name] = _whole_numbers(name, begin, len(name) - _alike(name[begin:][::-1], other[begin:][::-1]))
    return found


def _whole_numbers(name: str, begin: int, end: int) -> tuple[int, int]:
    """A part of a name with all of the numbers at its ends."""
    while begin and name[begin - 1].isdecimal():
        begin -= 1
    while end < len(name) and name[end].isdecimal():
        end += 1
    return begin, end


def _alike(one: str, other: str) -> int:
    """Letters at the start of two names that are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


_FIRST = 5
"""Rows of what is free and wrong that always stay."""
_NARROW = 72
"""Cells below which a model is told without its maker."""
_FREE = (TextColumn("FREE", 100, right=False), TextColumn("MODEL", 90, right=False, most=32, least=16),
         TextColumn("NODES", 80, right=False, least=12), TextColumn("GPUS", 95))  # fmt: skip
_FREE_NARROW = (_FREE[0], _FREE[1]._replace(least=9), _FREE[2]._replace(least=10), _FREE[3])
"""Rather than the nodes it loses letters of models, which begin with what tells them apart."""
_USERS = (
    text_column(USER_BY_KEY["user"], most=24), text_column(USER_BY_KEY["now"]), TextColumn("IDLE NOW", 74),
    *(text_column(USER_BY_KEY[key]) for key in ("held", "used", "idle_held", "energy")),
)  # fmt: skip
_RUNS = (
    text_column(RUN_BY_KEY["id"], most=32), text_column(RUN_BY_KEY["user"], most=16),
    TextColumn("SLURM JOB", 60, right=False, most=16), TextColumn("NODES", 70, right=False, least=12),
    text_column(RUN_BY_KEY["gpus"])._replace(keep=90), text_column(RUN_BY_KEY["epoch"])._replace(keep=85),
)  # fmt: skip
_IDLE = (TextColumn("ALLOCATED, IDLE", 100, right=False, most=24), TextColumn("NODE", 95, right=False, most=32),
         TextColumn("GPU", 90, right=False), TextColumn("IDLE FOR", 85))  # fmt: skip
_WRONG = (TextColumn("WHAT IS WRONG", 95, right=False, most=32, least=13),
          TextColumn("", 100, right=False, least=12))  # fmt: skip

_OF_NODES = ("NODES", "NODE", _WRONG[0].heading)
"""Headings of the columns that name nodes."""


def lines(
    snapshot: ClusterSnapshot, name: str, period: Period, width: int = 0, prices: Prices | None = None,
    groups: UserGroups | None = None, height: int = 0,
) -> Iterator[str]:  # fmt: skip
    """Yield the cluster at most `width` cells wide (0: as it comes); `name` is the engine's.

    With `prices` users have their cost, and with `groups` a table of these follows. Tables have fewer rows where all
    would be more than `height` lines (0: however many); what is free and what is wrong come first.
    """
    nodes, told = snapshot.nodes_now(), snapshot.nodes()
    answers = drop_stale(snapshot.answers(), told)
    above = [*wrapped(_head(nodes, answers, snapshot, name), width)]
    for line in _problems(snapshot):
        above += sentence(line, width)
    if model.has_no_series(answers) and not snapshot.is_dcgm:
        above += sentence(model.NO_SERIES, width)
    above += sentence(snapshot.clocks, width)
    if snapshot.is_dcgm:
        above += sentence(DCGM_ONLY, width)
    yield from above
    wrong = find_problems(told, answers, knows_states=not snapshot.is_dcgm)
    wrong = interleave_kinds(wrong) if height else wrong
    idle, runs = model.idle_holders(answers), model.runs(answers)
    names = NodeNames([node.name for node in told] + [one.node for one in wrong] + [one.node for one in idle])
    is_narrow = 0 < width < _NARROW
    tables = [
        Table(
            _naming(names, _FREE_NARROW if is_narrow else _FREE),
            [_free(one, names, is_narrow=is_narrow) for one in model.free_gpus(nodes)],
            least=_FIRST,
        ),
        Table(_naming(names, _WRONG), [(names.cell([one.node]), one.dated) for one in wrong], least=_FIRST),
        *_of_users(answers, snapshot, period, prices, groups),
        Table(_naming(names, _RUNS), [_run(one, names) for one in runs]),
        Table(_naming(names, _IDLE), [_idle(one, names) for one in idle]),
    ]
    yield from shared(tables, width, max(1, height - len(above)) if height else 0)


def _of_users(
    answers: Answers, snapshot: ClusterSnapshot, period: Period, prices: Prices | None, groups: UserGroups | None
) -> Iterator[Table]:
    """Users, and where there are groups these."""
    users, doubt = model.users(answers, period), coverage.uncertainty(answers, period)
    charges = cost.charges(answers, prices, period) if prices else {}
    more = columns(prices) if prices else ()
    names = distinct([one.name or "unknown" for one in users], _USERS[0].most)
    rows = [
        (*_user(one, name, is_complete=doubt.is_complete(one.name)), *_cost(charges.get(one.name), prices))
        for one, name in zip(users, names, strict=True)
    ]
    title = f"{'Time, energy and cost' if prices else 'Time and energy'} of users: {period.words}"
    title += f", {month_dates(period, snapshot.at)}" if period.is_dated else ""
    below = (
        coverage.gap_sentence(answers, period),
        unpriced_sentence(unpriced_seconds(answers, prices, period)),
        explained(charges.values()),
    )
    yield Table((*_USERS, *more), rows, title, " ".join(filter(None, below)))
    if groups:
        told = model.groups(users, groups)
        sums = []
        for one in told:
            is_complete, charge = doubt.is_group_complete(one.sums.name, groups), cost.total_charge(charges, one.users)
            held = _user(one.sums, one.sums.name, is_complete=is_complete)
            sums.append((*held, *_cost(charge if is_complete else cost.as_minimum(charge), prices)))
        yield Table((_USERS[0]._replace(heading="GROUP"), *_USERS[1:], *more), sums)


def _head(nodes: Sequence[model.Node], answers: Answers, snapshot: ClusterSnapshot, name: str) -> Iterator[str]:
    yield name
    if "gpus" not in answers or (model.has_no_series(answers) and not snapshot.is_dcgm):
        yield "GPUs unknown"
    else:
        seen = [node for node in nodes if not node.silent]
        total = sum(node.total for node in seen)
        gpus = units.counted(total, "GPU")
        if nodes and not total:
            yield "GPUs unknown"
        elif snapshot.is_dcgm:
            yield f"{sum(node.count('busy') for node in seen)} of {gpus} busy, whether the others are free is unknown"
        else:
            yield f"{sum(node.count('free') for node in seen)} of {gpus} free"
            if unknown := sum(node.count("unknown") for node in seen):
                yield f"{unknown} unknown"
        if idle := sum(node.count("held_idle") for node in seen):
            yield f"{idle} allocated, idle"
        silent = len(nodes) - len(seen)
        unseen = len(unseen_nodes(nodes, answers))
        yield (
            units.counted(len(nodes), "node") + (f", {silent} silent" if silent else "")
            + (f", {unseen} more {'does' if unseen == 1 else 'do'} not answer" if unseen else "")
        )  # fmt: skip
    if alone := model.dcgm_only_hosts(answers):
        yield f"{units.counted(alone, 'more node')} with NVIDIA's exporter alone"
    if unreal := model.simulated_nodes(answers):
        yield f"{units.counted(unreal, 'node')} SIMULATED or REPLAY"
    if is_known(power := single(answers, "power")) and not snapshot.is_old:
        yield " ".join(filter(None, (watts(power), staleness_note(nodes))))
    yield f"{'no answer since ' if snapshot.is_old and snapshot.answers() else ''}{units.moment(snapshot.newest_at)}"
    yield from filter(None, [snapshot.missing_rules])


def _problems(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Lines on what of each table failed, of when its last answers are, and why there are no newer ones."""
    why = {one.problem for one in snapshot.cached.values()} - {NOT_ASKED}
    if len(why) == 1 and "" not in why and not snapshot.answers():
        yield f"nothing was answered ({why.pop()})"
        return
    if snapshot.is_old and snapshot.answers():
        yield f"what stands here is of then ({next(iter(why - {''}), 'no answer')})"
        return
    if "seen" in snapshot.unanswered:
        yield "which nodes are silent is unknown, so no GPU is known to be free"
    found: dict[tuple[float, str], dict[str, list[str]]] = {}
    for name, one in snapshot.cached.items():
        if one.problem and (one.rows is not None or one.problem != RULES_MISSING):  # the head says that
            of = one.at if one.rows is not None else 0.0
            found.setdefault((of, one.problem), {}).setdefault(page_section(name), []).append(query_topic(name))
    for (at, problem), tables in found.items():
        what = "; ".join(_what(table, list(dict.fromkeys(answers))) for table, answers in tables.items())
        known = f"of {units.moment(at)}, {units.long_duration(snapshot.at - at)} ago" if at else "not answered"
        yield f"{what} {known} ({problem})"


def _what(table: str, answers: Sequence[str]) -> str:
    """Return the answers of a table by name; the table alone where its name says that."""
    return table if answers == [table] else f"{table}: {', '.join(answers)}"


def _free(one: model.FreeGpus, names: NodeNames, *, is_narrow: bool) -> Sequence[str]:
    model = ", ".join(map(short_name, one.model.split(", "))) if is_narrow else one.model
    together = f"whole node{'s' if len(one.nodes) > 1 else ''}" if one.is_whole else f"{one.together} together"
    return together, model, names.cell(one.nodes), units.count(one.gpus)


def _idle(one: model.IdleHolder, names: NodeNames) -> Sequence[str]:
    return one.user or "unknown", names.cell([one.node]), one.gpu, units.long_duration(one.seconds)


def _naming(names: NodeNames, columns: Sequence[TextColumn]) -> Sequence[TextColumn]:
    """Columns of which those of nodes are shortened so that these differ."""
    return [one._replace(shorten=names.shorten) if one.heading in _OF_NODES else one for one in columns]


def _user(one: model.ClusterUser, name: str, *, is_complete: bool) -> Sequence[str]:
    sums = (one.held_seconds, hours), (one.idle_seconds, hours), (one.energy, kwh)
    held, idle, energy = (coverage.format_sum(value, said, is_complete=is_complete) for value, said in sums)
    return name, _gpus(one.held), _gpus(one.idle), held, units.percent(one.used), idle, energy


def _cost(charge: Charge | None, prices: Prices | None) -> Sequence[str]:
    return cells(charge or NO_CHARGE, prices) if prices else ()


def _run(one: model.ClusterRun, names: NodeNames) -> Sequence[str]:
    epoch = units.rounded(one.epoch)
    return (
        one.name or one.run, one.user or "unknown", one.job, _places(one, names), units.count(one.gpus),
        f"{epoch}/{units.rounded(one.planned)}" if is_known(one.planned) else epoch,
    )  # fmt: skip


def _places(one: model.ClusterRun, names: NodeNames) -> str:
    """Nodes by name, or their number where nobody asked for names."""
    if one.nodes or not is_known(one.node_count):
        return names.cell(one.nodes)
    return units.counted(round(one.node_count), "node")


def _gpus(value: float) -> str:
    """GPUs of a mean over minutes, which need not be whole."""
    if not is_known(value):
        return units.MISSING
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"
