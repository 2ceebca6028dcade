"""Columns and rows of the tables of a cluster: free GPUs, users, idle holders and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpumon.cluster.cost import as_minimum, total_charge
from gpumon.cluster.coverage import Uncertainty, format_sum
from gpumon.cluster.model import ClusterRun, ClusterUser, FreeGpus, IdleHolder, UserGroup
from gpumon.cluster.queries import Period
from gpumon.cluster.snapshot import hours, kwh
from gpumon.common.config import NO_GROUP, Prices, UserGroups
from gpumon.common.numbers import exact, is_known, shown
from gpumon.cost import Charge
from gpumon.model import units
from gpumon.model.columns import RUN_BY_KEY, USER_BY_KEY
from gpumon.reports.charges import FIELDS
from gpumon_web.cluster.words import gpus, node_link, nodes, user_address
from gpumon_web.components.costs import COSTS, cost_cells
from gpumon_web.components.page import Cells, Column, Rows, table_column
from gpumon_web.components.tokens import bar, line, person, share, tag, text

FREE = (
    Column("together", "Together", falls=True, is_head=True, sorts_by="size"),
    Column("model", "Model", css="c-model"),
    Column("nodes", "Nodes", "rich", sort=False, css="c-nodes"),
    Column("gpus", "GPUs", "count", css="c-free"),
)
USERS = (
    table_column(USER_BY_KEY["user"], "rich", is_head=True, sorts_by="name", titled="user_title", csv="name", css=""),
    table_column(USER_BY_KEY["now"], "text", sorts_by="held", csv="gpus_now", css=""),
    table_column(USER_BY_KEY["held"], key="time", css=""),
    Column("part", "Held, used", "rich", sort=False, css="c-part", sorts_by="basis", csv="basis"),
    table_column(USER_BY_KEY["used"], css=""),
    table_column(USER_BY_KEY["idle_held"], key="idle", csv="idle_seconds", css=""),
    table_column(USER_BY_KEY["energy"], css=""),
    *(column._replace(csv=field) for column, field in zip(COSTS, FIELDS[1:], strict=True)),
)
"""CSV files have base units; `basis` has the period, the currency, and whether sums are lower bounds."""
IDLE = (
    table_column(USER_BY_KEY["user"], "rich", css="", is_head=True, sorts_by="name"),
    Column("node", "Node", "rich", sorts_by="node_name", css="c-node"),
    Column("gpu", "GPUs", is_number=True, sorts_by="count"),
    Column("lasts", "Idle for", is_number=True, sorts_by="seconds", css="c-lasts"),
)
RUNS = (
    table_column(RUN_BY_KEY["id"], "mono", key="run", css="", is_head=True),
    table_column(RUN_BY_KEY["user"], "rich", sorts_by="name", css="c-user"),
    Column("job", "Slurm job", "mono", css="c-job"),
    Column("nodes", "Nodes", "rich", sort=False, css="c-nodes"),
    table_column(RUN_BY_KEY["gpus"], css="c-gpus"),
    table_column(RUN_BY_KEY["epoch"], "rich", sorts_by="reached", css="c-epoch")._replace(is_number=False),
)
IDLE_OF_ONE = (IDLE[1]._replace(is_head=True), *IDLE[2:])
RUNS_OF_ONE = tuple(column for column in RUNS if column.key != "user")
"""Columns on the page of a user, without the user."""
_TINT = 0.28
"""Opacity of held but unused time."""
_NOTED = 0.25
"""Fraction of held time from which idle time is marked, if it is also at least `_NOTED_SECONDS`."""
_NOTED_SECONDS = 36_000.0


def who(user: str) -> list[Cells]:
    """Return a user in the user's color, with a link to the user's page."""
    return [line(person(user, user_address(user)) if user else text("unknown", "mut"), css="who")]


def free_rows(found: Sequence[FreeGpus]) -> Rows:
    """Return the rows of free GPUs, the most on one node first."""
    return Rows(
        {
            "key": f"{one.together} {one.is_whole} {one.model}",
            "together": _together(one),
            "size": one.together + (0.5 if one.is_whole else 0.0), "model": one.model or units.MISSING,
            "nodes": [line(*nodes(one.nodes), css="nodes")], "gpus": one.gpus,
        }
        for one in found
    )  # fmt: skip


def _together(one: FreeGpus) -> str:
    if one.is_whole:
        return "whole nodes" if len(one.nodes) > 1 else "whole node"
    return units.counted(one.together, "GPU") + " of a node"


def user_rows(
    found: Sequence[ClusterUser], charges: Mapping[str, Charge] | None = None, prices: Prices | None = None,
    *, period: Period, doubt: Uncertainty, dates: str = "",
) -> Rows:  # fmt: skip
    """Return the rows of users: GPUs held now, time held in the period, and its cost.

    `doubt`: which users' sums are only lower bounds; `dates`: the dates of a month.
    """
    priced = charges or {}
    most = _most(found)
    return Rows(
        {"key": one.name or " ", "user": who(one.name), "name": one.name or None, "search": one.name.lower(),
         "basis": _basis(period, dates, priced.get(one.name), prices, is_complete=doubt.is_complete(one.name)),
         **_sums(one, most, doubt.is_complete(one.name)), **cost_cells(priced.get(one.name), prices)}
        for one in found
    )  # fmt: skip


def group_rows(
    found: Sequence[UserGroup], groups: UserGroups, charges: Mapping[str, Charge] | None = None,
    prices: Prices | None = None, *, period: Period, doubt: Uncertainty, dates: str = "",
) -> Rows:  # fmt: skip
    """Return the rows of groups: GPUs held now, time held in the period, and its cost."""
    most, rows = _most([one.sums for one in found]), Rows()
    for one in found:
        name, is_complete = one.sums.name, doubt.is_group_complete(one.sums.name, groups)
        charge = total_charge(charges or {}, one.users)
        charge = charge if is_complete else as_minimum(charge)
        rows.append({
            "key": name, "user": [line(_group(name), text(_members(one.users), "mut"), css="who")],
            "name": name, "search": " ".join((name, *one.users)).lower(),
            "basis": _basis(period, dates, charge, prices, is_complete=is_complete),
            **_sums(one.sums, most, is_complete), **cost_cells(charge, prices),
        })  # fmt: skip
    return rows


def _basis(period: Period, dates: str, charge: Charge | None, prices: Prices | None, *, is_complete: bool) -> str:
    """Return the text in CSV files that explains the numbers of a row."""
    is_priced_whole = all(one.complete for one in charge or () if is_known(one.value))
    minimum = "" if is_complete and is_priced_whole else f"{'costs' if is_complete else 'sums'} are at least so much"
    about = "cost of energy is about so much" if charge is not None and charge.energy.about else ""
    return ", ".join(filter(None, (f"{period} {dates}".strip(), prices.currency if prices else "", minimum, about)))


def _group(name: str) -> Cells:
    return text(name, "mut") if name == NO_GROUP else person(name)


def _members(users: Sequence[str]) -> str:
    return units.counted(len(users), "user")


def _most(found: Sequence[ClusterUser]) -> float:
    return max((one.held_seconds for one in found if is_known(one.held_seconds)), default=0.0)


def _sums(one: ClusterUser, most: float, is_complete: bool) -> Cells:
    """Return the cells common to users and groups."""

    def sum_of(value: float, said: Callable[[float], str]) -> str:
        return format_sum(value, said, is_complete=is_complete)

    return {
        "now": gpus(one.held), "held": shown(one.held),
        "time": sum_of(one.held_seconds, hours), "held_seconds": exact(one.held_seconds), "part": _part(one, most),
        "used": shown(one.used),
        "idle": sum_of(one.idle_seconds, hours), "idle_held_seconds": exact(one.idle_seconds),
        "energy": sum_of(one.energy, kwh), "energy_joules": exact(one.energy),
    }  # fmt: skip


def _part(one: ClusterUser, most: float) -> list[Cells]:
    """Return a bar of held time relative to `most`; the used part is solid."""
    if not (most > 0 and is_known(one.held_seconds)):
        return []
    used = min(one.busy_seconds, one.held_seconds) if is_known(one.busy_seconds) else 0.0
    held = share((one.held_seconds - used) / most, user=one.name, title="held")
    return [bar(share(used / most, user=one.name, title="used"), {**held, "opacity": _TINT}, css="bar held")]


def idle_rows(found: Sequence[IdleHolder]) -> Rows:
    """Return the rows of idle holders, by user and node."""
    groups: dict[tuple[str, str], list[IdleHolder]] = {}
    for one in found:
        groups.setdefault((one.user, one.node), []).append(one)
    return Rows(
        {
            "key": f"{node} {user}", "user": who(user), "name": user or None, "node": [node_link(node)],
            "node_name": node, "gpu": ", ".join(sorted((one.gpu for one in held), key=lambda gpu: (len(gpu), gpu))),
            "count": len(held), "seconds": max(one.seconds for one in held),
            "lasts": units.long_duration(max(one.seconds for one in held)), "search": f"{user} {node}".lower(),
        }
        for (user, node), held in groups.items()
    )  # fmt: skip


def run_rows(found: Sequence[ClusterRun]) -> Rows:
    """Return the rows of runs with their progress."""
    return Rows(
        {
            "key": one.run, "run": one.name or one.run, "user": who(one.user), "name": one.user or None,
            "job": one.job or units.MISSING, "nodes": [line(*nodes(one.nodes, one.node_count), css="nodes")],
            "gpus": one.gpus, "epoch": epoch(one), "reached": shown(one.epoch),
            "search": " ".join((one.name, one.run, one.user, one.job, *one.nodes)).lower(),
        }
        for one in found
    )  # fmt: skip


def epoch(one: ClusterRun) -> list[Cells]:
    """Return the current epoch of a run, the planned number, and a bar of the share that is done at least.

    It is not known whether the framework counts from 0 or from 1: `epoch 2 of 3` may be the last one.
    """
    if not is_known(one.epoch):
        return [line(text("no epochs logged" if one.has_epoch_info else units.MISSING, "mut"))]
    if not is_known(one.planned) or one.planned <= 0:
        return [line(text(f"epoch {units.rounded(one.epoch)}"))]
    done = bar(share(max(0.0, one.epoch - 1) / one.planned, user=one.user), css="bar thin")
    return [line(text(f"epoch {units.rounded(one.epoch)}, {units.rounded(one.planned)} planned"), done, css="progress")]


def marked(rows: Rows) -> Rows:
    """Mark users who leave much of their held time unused."""
    for row in rows:
        held, idle = row["held_seconds"] or 0.0, row["idle_held_seconds"] or 0.0
        if idle >= _NOTED_SECONDS and idle >= _NOTED * held:
            row["user"][0]["line"].append(tag("idle", "warn"))
    return rows
