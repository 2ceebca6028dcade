"""The state of a cluster as text, for `gpumon top --prometheus`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix

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
from gpumon.reports.text_table import Table, TextColumn, distinct, draw_tables, sentence, text_column, wrapped

_MAX_NAMES = 4
"""Maximum number of node names in a table cell."""
_MAX_WIDTH = 32
"""Maximum width of a node name, in terminal columns."""
_DOMAIN_AND_PORT = re.compile(r"(?:\.[A-Za-z][\w-]*)*(?::\d+)?$")
_MIN_WIDTH = 4
"""Minimum width of a node name that is followed by the number of other nodes."""


class NodeNames:
    """Formats node names for table cells. Shortened names still differ from each other."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(set(names))
        ending = commonprefix([name[::-1] for name in self._names])[::-1]  # noqa: RUF071
        match = _DOMAIN_AND_PORT.search(ending)
        self._ending = match[0] if match else ""
        """Domain and port that all names have in common."""
        self._short: dict[int, Mapping[str, str]] = {}
        """Shortened names, by the width in terminal columns."""
        self._names_by_cell: dict[str, Sequence[str]] = {}

    def cell(self, names: Sequence[str]) -> str:
        """Return the text of a cell: the first few node names, and the number of further nodes."""
        text = self._first(names, min(len(names), _MAX_NAMES))
        self._names_by_cell[text] = names
        return text

    def shorten(self, text: str, width: int) -> str:
        """Shorten the text of a cell to `width` terminal columns, if possible by dropping whole names."""
        names = self._names_by_cell.get(text, ())
        if text_width(text) <= width or not names:
            return cut(text, width)
        for count in range(min(len(names), _MAX_NAMES) - 1, 0, -1):
            fewer = self._first(names, count)
            if text_width(fewer) <= width:
                return fewer
        others = f" +{units.count(len(names) - 1)}" if len(names) > 1 else ""
        room = width - len(others)
        return self.short(names[0], room) + others if room >= _MIN_WIDTH else cut(text, width)

    def short(self, name: str, width: int) -> str:
        """Return a name in at most `width` terminal columns.

        The domain and port that all names have in common are omitted first. Other omitted parts are shown as ….
        """
        if text_width(name) <= width:
            return name
        if width not in self._short:
            stems = [known.removesuffix(self._ending) for known in self._names]
            self._short[width] = dict(zip(self._names, distinct(stems, width), strict=True))
        return self._short[width].get(name) or cut(name, width)

    def _first(self, names: Sequence[str], count: int) -> str:
        more = len(names) - count
        shown = ", ".join(self.short(name, _MAX_WIDTH) for name in names[:count])
        return shown + (f" and {units.count(more)} more" if more else "")


_MIN_ROWS = 5
"""Minimum number of rows shown in the tables of free GPUs and of problems."""
_NARROW = 72
"""Width below which GPU models are shown without their vendor."""
_FREE = (TextColumn("FREE", 100, right=False), TextColumn("MODEL", 90, right=False, max_width=32, min_width=16),
         TextColumn("NODES", 80, right=False, min_width=12), TextColumn("GPUS", 95))  # fmt: skip
_FREE_NARROW = (_FREE[0], replace(_FREE[1], min_width=9), replace(_FREE[2], min_width=10), _FREE[3])
"""Columns on a narrow terminal. GPU models are shortened before node names, because models already differ in their
first letters."""
_USERS = (
    text_column(USER_BY_KEY["user"], max_width=24), text_column(USER_BY_KEY["now"]), TextColumn("IDLE NOW", 74),
    *(text_column(USER_BY_KEY[key]) for key in ("held", "used", "idle_held", "energy")),
)  # fmt: skip
_RUNS = (
    text_column(RUN_BY_KEY["id"], max_width=32), text_column(RUN_BY_KEY["user"], max_width=16),
    TextColumn("SLURM JOB", 60, right=False, max_width=16), TextColumn("NODES", 70, right=False, min_width=12),
    replace(text_column(RUN_BY_KEY["gpus"]), keep=90), replace(text_column(RUN_BY_KEY["epoch"]), keep=85),
)  # fmt: skip
_IDLE = (
    TextColumn("ALLOCATED, IDLE", 100, right=False, max_width=24), TextColumn("NODE", 95, right=False, max_width=32),
    TextColumn("GPU", 90, right=False), TextColumn("IDLE FOR", 85),
)  # fmt: skip
_PROBLEMS = (TextColumn("PROBLEM", 95, right=False, max_width=32, min_width=13),
             TextColumn("", 100, right=False, min_width=12))  # fmt: skip

_NODE_HEADINGS = ("NODES", "NODE", _PROBLEMS[0].heading)
"""Headings of the columns that name nodes."""


def lines(
    snapshot: ClusterSnapshot, name: str, period: Period, width: int = 0, prices: Prices | None = None,
    groups: UserGroups | None = None, height: int = 0,
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of the cluster view, at most `width` columns wide (0: unlimited).

    `name`: name of the server that was queried, such as Prometheus. `prices`: add the costs of users if not None.
    `groups`: add a table of user groups if not None. `height`: shorten tables to fit into this number of lines (0:
    unlimited).
    """
    nodes, nodes_then = snapshot.nodes_now(), snapshot.nodes()
    answers = drop_stale(snapshot.answers(), nodes_then)
    above = [*wrapped(_head(nodes, answers, snapshot, name), width)]
    for line in _query_problems(snapshot):
        above += sentence(line, width)
    if model.has_no_series(answers) and not snapshot.is_dcgm:
        above += sentence(model.NO_SERIES, width)
    above += sentence(snapshot.clocks, width)
    if snapshot.is_dcgm:
        above += sentence(DCGM_ONLY, width)
    yield from above
    problems = find_problems(nodes_then, answers, knows_states=not snapshot.is_dcgm)
    problems = interleave_kinds(problems) if height else problems
    idle, runs = model.idle_holders(answers), model.runs(answers)
    names = NodeNames(
        [node.name for node in nodes_then] + [problem.node for problem in problems] + [holder.node for holder in idle]
    )
    is_narrow = 0 < width < _NARROW
    tables = [
        Table(
            _with_short_names(names, _FREE_NARROW if is_narrow else _FREE),
            [_free_row(gpus, names, is_narrow=is_narrow) for gpus in model.free_gpus(nodes)],
            min_rows=_MIN_ROWS,
        ),
        Table(
            _with_short_names(names, _PROBLEMS),
            [(names.cell([problem.node]), problem.dated) for problem in problems],
            min_rows=_MIN_ROWS,
        ),
        *_user_tables(answers, snapshot, period, prices, groups),
        Table(_with_short_names(names, _RUNS), [_run_row(run, names) for run in runs]),
        Table(_with_short_names(names, _IDLE), [_idle_row(holder, names) for holder in idle]),
    ]
    yield from draw_tables(tables, width, max(1, height - len(above)) if height else 0)


def _user_tables(
    answers: Answers, snapshot: ClusterSnapshot, period: Period, prices: Prices | None, groups: UserGroups | None
) -> Iterator[Table]:
    """Yield the table of users and, if there are user groups, the table of groups."""
    users, uncertainty = model.users(answers, period), coverage.uncertainty(answers, period)
    charges = cost.charges(answers, prices, period) if prices else {}
    more = columns(prices) if prices else ()
    names = distinct([user.name or "unknown" for user in users], _USERS[0].max_width)
    rows = [
        (
            *_user_row(user, name, is_complete=uncertainty.is_complete(user.name)),
            *_cost(charges.get(user.name), prices),
        )
        for user, name in zip(users, names, strict=True)
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
        group_rows = []
        for group in model.groups(users, groups):
            is_complete = uncertainty.is_group_complete(group.sums.name, groups)
            charge = cost.total_charge(charges, group.users)
            group_rows.append(
                (
                    *_user_row(group.sums, group.sums.name, is_complete=is_complete),
                    *_cost(charge if is_complete else cost.as_minimum(charge), prices),
                )
            )
        yield Table((replace(_USERS[0], heading="GROUP"), *_USERS[1:], *more), group_rows)


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
            yield f"{sum(node.count('busy') for node in seen)} of {gpus} busy, free GPUs unknown"
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
    if dcgm_only := model.dcgm_only_hosts(answers):
        yield f"{units.counted(dcgm_only, 'more node')} with only NVIDIA's dcgm-exporter"
    if simulated := model.simulated_nodes(answers):
        yield f"{units.counted(simulated, 'node')} SIMULATED or REPLAY"
    if is_known(power := single(answers, "power")) and not snapshot.is_old:
        yield " ".join(filter(None, (watts(power), staleness_note(nodes))))
    yield f"{'no answer since ' if snapshot.is_old and snapshot.answers() else ''}{units.moment(snapshot.newest_at)}"
    yield from filter(None, [snapshot.missing_rules])


def _query_problems(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yield a line for each failed query, with its topic, the reason, and the age of its last answer."""
    reasons = {result.problem for result in snapshot.cached.values()} - {NOT_ASKED}
    if len(reasons) == 1 and "" not in reasons and not snapshot.answers():
        yield f"Prometheus answered no query ({reasons.pop()})"
        return
    if snapshot.is_old and snapshot.answers():
        yield f"values are of the last answer ({next(iter(reasons - {''}), 'no answer')})"
        return
    if "seen" in snapshot.unanswered:
        yield "it is unknown which nodes are silent, so no GPU counts as free"
    failed: dict[tuple[float, str], dict[str, list[str]]] = {}
    for name, result in snapshot.cached.items():
        # The header reports missing rules.
        if result.problem and (result.rows is not None or result.problem != RULES_MISSING):
            key = result.at if result.rows is not None else 0.0, result.problem
            failed.setdefault(key, {}).setdefault(page_section(name), []).append(query_topic(name))
    for (at, problem), tables in failed.items():
        what = "; ".join(_failed_topics(table, list(dict.fromkeys(topics))) for table, topics in tables.items())
        age = f"of {units.moment(at)}, {units.long_duration(snapshot.at - at)} ago" if at else "not answered"
        yield f"{what} {age} ({problem})"


def _failed_topics(table: str, topics: Sequence[str]) -> str:
    """Return the name of a table, followed by its topics unless the table itself is the only topic."""
    return table if topics == [table] else f"{table}: {', '.join(topics)}"


def _free_row(free: model.FreeGpus, names: NodeNames, *, is_narrow: bool) -> Sequence[str]:
    model = ", ".join(map(short_name, free.model.split(", "))) if is_narrow else free.model
    together = f"whole node{'s' if len(free.nodes) > 1 else ''}" if free.is_whole else f"{free.together} together"
    return together, model, names.cell(free.nodes), units.count(free.gpus)


def _idle_row(holder: model.IdleHolder, names: NodeNames) -> Sequence[str]:
    return holder.user or "unknown", names.cell([holder.node]), holder.gpu, units.long_duration(holder.seconds)


def _with_short_names(names: NodeNames, columns: Sequence[TextColumn]) -> Sequence[TextColumn]:
    """Return the columns with node names shortened in such a way that they stay distinct."""
    return [
        replace(column, shorten=names.shorten) if column.heading in _NODE_HEADINGS else column for column in columns
    ]


def _user_row(user: model.ClusterUser, name: str, *, is_complete: bool) -> Sequence[str]:
    sums = (user.held_seconds, hours), (user.idle_seconds, hours), (user.energy, kwh)
    held, idle, energy = (coverage.format_sum(value, to_text, is_complete=is_complete) for value, to_text in sums)
    return name, _gpus(user.held), _gpus(user.idle), held, units.percent(user.used), idle, energy


def _cost(charge: Charge | None, prices: Prices | None) -> Sequence[str]:
    return cells(charge or NO_CHARGE, prices) if prices else ()


def _run_row(run: model.ClusterRun, names: NodeNames) -> Sequence[str]:
    epoch = units.rounded(run.epoch)
    return (
        run.name or run.run, run.user or "unknown", run.job, _nodes(run, names), units.count(run.gpus),
        f"{epoch}/{units.rounded(run.planned)}" if is_known(run.planned) else epoch,
    )  # fmt: skip


def _nodes(run: model.ClusterRun, names: NodeNames) -> str:
    """Return the nodes of a run by name, or their number if the names were not queried."""
    if run.nodes or not is_known(run.node_count):
        return names.cell(run.nodes)
    return units.counted(round(run.node_count), "node")


def _gpus(value: float) -> str:
    """Return a number of GPUs as text. The number may have a decimal, because it is a mean over several minutes."""
    if not is_known(value):
        return units.MISSING
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"
