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
from gpumon_web.cluster.data import gpus, node_link, nodes, user_address
from gpumon_web.components.costs import COSTS, cost_cells
from gpumon_web.components.page import Cells, Column, Rows, table_column
from gpumon_web.components.tokens import bar, line, person, share, tag, text

FREE = (
    Column("together", "Free per node", falls=True, is_head=True, sorts_by="size"),
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
"""Columns of the table of users. In CSV files, values are in base units, and the column `basis` has the period, the
currency, and whether sums are lower bounds."""
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
"""Columns of runs on the page of a user: `RUNS` without the column of the user."""
_TINT = 0.28
"""Opacity of held but unused time."""
_MIN_IDLE_SHARE = 0.25
"""Fraction of held time from which idle time is marked, if it is also at least `_MIN_IDLE_SECONDS`."""
_MIN_IDLE_SECONDS = 36_000.0


def user_cell(user: str) -> list[Cells]:
    """Return a user in the user's color, with a link to the user's page."""
    return [line(person(user, user_address(user)) if user else text("unknown", "mut"), css="who")]


def free_rows(free: Sequence[FreeGpus]) -> Rows:
    """Return the rows of free GPUs, the most on one node first."""
    return Rows(
        {
            "key": f"{entry.together} {entry.is_whole} {entry.model}",
            "together": _size_text(entry),
            "size": entry.together + (0.5 if entry.is_whole else 0.0), "model": entry.model or units.MISSING,
            "nodes": [line(*nodes(entry.nodes), css="nodes")], "gpus": entry.gpus,
        }
        for entry in free
    )  # fmt: skip


def _size_text(entry: FreeGpus) -> str:
    if entry.is_whole:
        return "whole nodes" if len(entry.nodes) > 1 else "whole node"
    return units.counted(entry.together, "GPU") + " of a node"


def user_rows(
    users: Sequence[ClusterUser], charges: Mapping[str, Charge] | None = None, prices: Prices | None = None,
    *, period: Period, uncertainty: Uncertainty, dates: str = "",
) -> Rows:  # fmt: skip
    """Return the rows of users: GPUs held now, time held in the period, and its cost.

    `uncertainty`: which users' sums are only lower bounds; `dates`: the dates of a month.
    """
    priced = charges or {}
    longest = _longest_held(users)
    return Rows(
        {"key": user.name or " ", "user": user_cell(user.name), "name": user.name or None, "search": user.name.lower(),
         "basis": _basis(period, dates, priced.get(user.name), prices, is_complete=uncertainty.is_complete(user.name)),
         **_sums(user, longest, uncertainty.is_complete(user.name)), **cost_cells(priced.get(user.name), prices)}
        for user in users
    )  # fmt: skip


def group_rows(
    user_groups: Sequence[UserGroup], groups: UserGroups, charges: Mapping[str, Charge] | None = None,
    prices: Prices | None = None, *, period: Period, uncertainty: Uncertainty, dates: str = "",
) -> Rows:  # fmt: skip
    """Return the rows of groups: GPUs held now, time held in the period, and its cost."""
    longest, rows = _longest_held([group.sums for group in user_groups]), Rows()
    for group in user_groups:
        name, is_complete = group.sums.name, uncertainty.is_group_complete(group.sums.name, groups)
        charge = total_charge(charges or {}, group.users)
        charge = charge if is_complete else as_minimum(charge)
        rows.append({
            "key": name, "user": [line(_group(name), text(_members(group.users), "mut"), css="who")],
            "name": name, "search": " ".join((name, *group.users)).lower(),
            "basis": _basis(period, dates, charge, prices, is_complete=is_complete),
            **_sums(group.sums, longest, is_complete), **cost_cells(charge, prices),
        })  # fmt: skip
    return rows


def _basis(period: Period, dates: str, charge: Charge | None, prices: Prices | None, *, is_complete: bool) -> str:
    """Return the text in CSV files that explains the numbers of a row."""
    is_priced_whole = all(amount.complete for amount in charge or () if is_known(amount.value))
    minimum = "" if is_complete and is_priced_whole else f"{'costs' if is_complete else 'sums'} are lower bounds"
    about = "cost of energy is approximate" if charge is not None and charge.energy.about else ""
    return ", ".join(filter(None, (f"{period} {dates}".strip(), prices.currency if prices else "", minimum, about)))


def _group(name: str) -> Cells:
    return text(name, "mut") if name == NO_GROUP else person(name)


def _members(users: Sequence[str]) -> str:
    return units.counted(len(users), "user")


def _longest_held(users: Sequence[ClusterUser]) -> float:
    return max((user.held_seconds for user in users if is_known(user.held_seconds)), default=0.0)


def _sums(user: ClusterUser, longest: float, is_complete: bool) -> Cells:
    """Return the cells common to users and groups."""

    def sum_text(value: float, format_value: Callable[[float], str]) -> str:
        return format_sum(value, format_value, is_complete=is_complete)

    return {
        "now": gpus(user.held), "held": shown(user.held),
        "time": sum_text(user.held_seconds, hours), "held_seconds": exact(user.held_seconds),
        "part": _part(user, longest), "used": shown(user.used),
        "idle": sum_text(user.idle_seconds, hours), "idle_held_seconds": exact(user.idle_seconds),
        "energy": sum_text(user.energy, kwh), "energy_joules": exact(user.energy),
    }  # fmt: skip


def _part(user: ClusterUser, longest: float) -> list[Cells]:
    """Return a bar of held time relative to `longest`; the used part is solid."""
    if not (longest > 0 and is_known(user.held_seconds)):
        return []
    used = min(user.busy_seconds, user.held_seconds) if is_known(user.busy_seconds) else 0.0
    held = share((user.held_seconds - used) / longest, user=user.name, title="held")
    return [bar(share(used / longest, user=user.name, title="used"), {**held, "opacity": _TINT}, css="bar held")]


def idle_rows(holders: Sequence[IdleHolder]) -> Rows:
    """Return the rows of idle holders, by user and node."""
    groups: dict[tuple[str, str], list[IdleHolder]] = {}
    for holder in holders:
        groups.setdefault((holder.user, holder.node), []).append(holder)
    return Rows(
        {
            "key": f"{node} {user}", "user": user_cell(user), "name": user or None, "node": [node_link(node)],
            "node_name": node, "gpu": ", ".join(sorted((gpu.gpu for gpu in idle), key=lambda gpu: (len(gpu), gpu))),
            "count": len(idle), "seconds": max(gpu.seconds for gpu in idle),
            "lasts": units.long_duration(max(gpu.seconds for gpu in idle)), "search": f"{user} {node}".lower(),
        }
        for (user, node), idle in groups.items()
    )  # fmt: skip


def run_rows(runs: Sequence[ClusterRun]) -> Rows:
    """Return the rows of runs with their progress."""
    return Rows(
        {
            "key": run.run, "run": run.name or run.run, "user": user_cell(run.user), "name": run.user or None,
            "job": run.job or units.MISSING, "nodes": [line(*nodes(run.nodes, run.node_count), css="nodes")],
            "gpus": run.gpus, "epoch": epoch(run), "reached": shown(run.epoch),
            "search": " ".join((run.name, run.run, run.user, run.job, *run.nodes)).lower(),
        }
        for run in runs
    )  # fmt: skip


def epoch(run: ClusterRun) -> list[Cells]:
    """Return the current epoch of a run, the planned number, and a bar of the minimum share that is done.

    The framework may count from 0 or from 1, so `epoch 2 of 3` may be the last epoch.
    """
    if not is_known(run.epoch):
        return [line(text("no epochs logged" if run.has_epoch_info else units.MISSING, "mut"))]
    if not is_known(run.planned) or run.planned <= 0:
        return [line(text(f"epoch {units.rounded(run.epoch)}"))]
    done = bar(share(max(0.0, run.epoch - 1) / run.planned, user=run.user), css="bar thin")
    return [line(text(f"epoch {units.rounded(run.epoch)}, {units.rounded(run.planned)} planned"), done, css="progress")]


def mark_idle(rows: Rows) -> Rows:
    """Mark users who leave much of their held time unused."""
    for row in rows:
        held, idle = row["held_seconds"] or 0.0, row["idle_held_seconds"] or 0.0
        if idle >= _MIN_IDLE_SECONDS and idle >= _MIN_IDLE_SHARE * held:
            row["user"][0]["line"].append(tag("idle", "warn"))
    return rows
