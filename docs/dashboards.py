"""Writes the Grafana dashboards of `deploy/grafana` from the tables of metrics and of charts.

    python docs/dashboards.py [DIRECTORY]

A test compares the files with what this makes, and asks a real Prometheus each of their expressions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from grafana import Asked, Board, Chart, Choice, Row, text_of

from gpumon.export.family import EXPORTED
from gpumon.model.metrics import BY_NAME, Metric, Unit
from gpumon.model.panels import GPU_PANELS, HOST_PANELS, Panel

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"
UNITS = {
    Unit.RATIO: "percentunit", Unit.BYTES: "bytes", Unit.WATTS: "watt", Unit.JOULES: "joule", Unit.CELSIUS: "celsius",
    Unit.HERTZ: "hertz", Unit.SECONDS: "s", Unit.COUNT: "short", Unit.BITS: "short", Unit.BYTES_PER_SECOND: "Bps",
    Unit.PER_SECOND: "short",
}  # fmt: skip
"""As Grafana calls them."""
RATES = {Unit.BYTES: "Bps", Unit.SECONDS: "percentunit", Unit.JOULES: "watt"}
"""Of a counter's growth by second."""
EXACT = {"gpu.utilization": ("gpumon_gpu_utilization_seconds_total", "gpumon_gpu_utilization_observed_seconds_total")}
"""Metrics of which counters give the mean of all samples, where a gauge has that of a scrape."""
JOB = 'job=~"$job"'
NODE = f'{JOB},instance=~"$instance"'
GPU = f'{NODE},gpu=~"$gpu"'
IN_FORCE = (
    "* on (instance, uuid) group_left (run, name, user)"
    " max by (instance, uuid, run, name, user) (gpumon_run_info{{{}}})"
)
"""Joins the run in force on a GPU, though two jobs scrape its node."""
OF_RUN = IN_FORCE.format('run=~"$run",user=~"$user"')
BY_HOLDER = "max by (instance, uuid, user)"
"""Of a node that two jobs scrape, once."""
STATES = (("free", "free"), ("busy", "busy"), ("held_idle", "held, idle"), ("lost", "lost"), ("unknown", "unknown"))
JOBS = Choice("job", "Job", "label_values(gpumon_up, job)")
INSTANCES = Choice("instance", "Node", 'label_values(gpumon_up{job=~"$job"}, instance)')


def expression(metric: Metric, labels: str) -> str:
    """Return what a chart of a metric asks: its value, or a counter's growth by second."""
    if metric.name in EXACT:
        part, whole = (f"rate({name}{{{labels}}}[$__rate_interval])" for name in EXACT[metric.name])
        return f"{part} / {whole}"
    name = f"{EXPORTED[metric.name]}{{{labels}}}"
    return f"rate({name}[$__rate_interval])" if Panel(metric).is_rate else name


def charted(panel: Panel, labels: str, legend: str, join: str = "") -> Chart:
    """Return the chart of a row of the table."""
    metric, asked = panel.metric, expression(panel.metric, labels)
    unit = RATES[metric.unit] if panel.is_rate else UNITS[metric.unit]
    top = 1.0 if metric.unit is Unit.RATIO else None
    return Chart(panel.title, metric.help, [Asked(f"({asked}) {join}" if join else asked, legend)], unit, top=top)


def stat(title: str, help: str, asked: str, unit: str = "short", width: int = 4) -> Chart:
    return Chart(title, help, [Asked(asked)], unit, "stat", width, 4)


def of_nodes(state: str, labels: str = JOB) -> str:
    """Return what asks for the GPUs in a state; a node that two jobs scrape counts once."""
    return f'sum(max by (instance) (gpumon_gpus{{{labels},state="{state}"}}))'


def cluster() -> Board:
    """The whole: what is free, who holds what, and what is wrong."""
    states = [Asked(of_nodes(state), name) for state, name in STATES]
    seconds = "sum_over_time(user:gpumon_{}:rate5m[$__range]) * 60"  # the rules record each minute
    users = [Asked("user:gpumon_gpus_held:count"), Asked("user:gpumon_gpus_idle_held:count")]
    users += [Asked(seconds.format(name)) for name in ("gpus_held", "gpus_busy", "gpus_idle_held", "power_watts")]
    holders = Asked(f"topk(50, max by (instance, gpu, user) (gpumon_gpu_user_idle_seconds{{{JOB}}}) > 1800)")
    runs = [Asked("run:gpumon_gpus:count"), Asked("run:gpumon_nodes:count"), Asked("run:gpumon_epoch:max")]
    xids = Asked(f"sort_desc(max by (instance, gpu, xid) (gpumon_gpu_xid_last_timestamp_seconds{{{JOB}}}) * 1000)")
    wrong = Asked(f'max by (instance, gpu, reason) (gpumon_gpu_unavailable{{{JOB},metric="all"}})')
    silent = Asked(f"max by (instance) (up{{{JOB}}}) == 0 or max by (instance) (gpumon_up{{{JOB}}}) == 0")
    now = [
        stat("Free", "GPUs that nobody holds.", of_nodes("free")),
        stat("GPUs", "A MIG instance counts as a GPU.", f"sum(max by (instance, state) (gpumon_gpus{{{JOB}}}))"),
        stat("Held, idle", "GPUs that are held and do nothing.", of_nodes("held_idle")),
        stat(
            "Nodes",
            "Nodes whose daemon samples now.",
            f"sum(max by (instance) (gpumon_up{{{JOB}}} and on (instance, job) gpumon_gpus))",
        ),
        stat("Power", "Of all boards.", "sum(instance:gpumon_gpu_power_watts:sum)", "watt"),
        stat("Busy", "Share of five minutes.", "avg(job:gpumon_gpu_busy:ratio_rate5m)", "percentunit"),
    ]
    over_time = [
        Chart("GPUs by state", "Of all nodes.", states, stacked=True),
        Chart("GPUs by user", "GPUs that each user holds: held seconds by second, in five minutes.",
              [Asked("user:gpumon_gpus_held:rate5m > 0", "{{user}}")], stacked=True),
        Chart("Busy by node", "Share of five minutes in which the node's GPUs were busy.",
              [Asked("instance:gpumon_gpu_busy:ratio_rate5m", "{{instance}}")], "percentunit", top=1.0),
        Chart("Power by node", "Of all boards of a node.",
              [Asked("instance:gpumon_gpu_power_watts:sum", "{{instance}}")], "watt", stacked=True),
    ]  # fmt: skip
    people = [
        Chart("Users",
              "GPUs now, and GPU time in the time shown. Each of several users of a GPU holds it all the time.",
              users, kind="table", width=14, columns=(
                  ("user", "User", ""), ("A", "GPUs now", ""), ("B", "Idle now", ""), ("C", "GPU time", "s"),
                  ("D", "Used", "s"), ("E", "Idle", "s"), ("F", "Energy", "joule"))),
        Chart("Held and idle", "For more than half an hour.", [holders], kind="table", width=10, columns=(
            ("user", "User", ""), ("instance", "Node", ""), ("gpu", "GPU", ""), ("A", "For", "s"))),
        Chart("Runs", "Trainings that publish their epochs.", runs, kind="table", width=14, columns=(
            ("name", "Run", ""), ("run", "Id", ""), ("user", "User", ""), ("slurm_job", "Job", ""), ("A", "GPUs", ""),
            ("B", "Nodes", ""), ("C", "Epoch", ""))),
        Chart("Free by node", "Those with the most first.",
              [Asked("sort_desc(instance:gpumon_gpus_free:count > 0)")], kind="table", width=10,
              columns=(("instance", "Node", ""), ("A", "Free GPUs", ""))),
    ]  # fmt: skip
    faults = [
        Chart("Do not answer", "GPUs that the driver lost, or that must be reset.", [wrong], kind="table", width=8,
              columns=(("instance", "Node", ""), ("gpu", "GPU", ""), ("reason", "Why", ""))),
        Chart("XID errors", "Time of the newest of each code.", [xids], kind="table", width=8, columns=(
            ("instance", "Node", ""), ("gpu", "GPU", ""), ("xid", "XID", ""), ("A", "Last", "dateTimeAsIso"))),
        Chart("Silent nodes", "Their exporter or their daemon does not answer.", [silent], kind="table", width=8,
              columns=(("instance", "Node", ""),)),
    ]  # fmt: skip
    rows = Row("Now", now), Row("Over time", over_time), Row("Who", people), Row("What is wrong", faults)
    return Board("gpumon-cluster", "gpumon: cluster", "All nodes that gpumon's exporters tell of.", (JOBS,), rows)


def node() -> Board:
    """One node or a few, GPU by GPU."""
    gpus = Choice("gpu", "GPU", f"label_values(gpumon_gpu_info{{{NODE}}}, gpu)")
    legend = "{{instance}} GPU {{gpu}}"
    holders = [
        Asked(f"max by (instance, gpu, user) ({name}{{{GPU}}})")
        for name in ("gpumon_gpu_user_memory_bytes", "gpumon_gpu_user_idle_seconds")
    ]
    runs = [Asked(f"gpumon_run_epoch {_joined(NODE)}"), Asked(f"gpumon_run_step {_joined(NODE)}")]
    missing = Asked(f"gpumon_gpu_unavailable{{{GPU}}}")
    now = [
        *(stat(name.capitalize(), f"GPUs that are {name}.", of_nodes(state, NODE), width=3)
          for state, name in STATES),
        stat("Power", "Of all boards.", f"sum(max by (instance, uuid) (gpumon_gpu_power_watts{{{NODE}}}))", "watt", 3),
        stat("Hottest", "GPU core.", f"max(gpumon_gpu_temperature_celsius{{{NODE}}})", "celsius", 3),
        stat("Newest sample", "Seconds ago.", f"time() - max(gpumon_last_sample_timestamp_seconds{{{NODE}}})", "s", 3),
    ]  # fmt: skip
    who = [
        Chart("Holders", "Users with processes or runs on a GPU, and for how long they have held it idle.", holders,
              kind="table", columns=(("instance", "Node", ""), ("gpu", "GPU", ""), ("user", "User", ""),
                                     ("A", "Memory", "bytes"), ("B", "Idle for", "s"))),
        Chart("Runs", "The run in force on each GPU.", runs, kind="table", columns=(
            ("name", "Run", ""), ("user", "User", ""), ("instance", "Node", ""), ("uuid", "GPU", ""),
            ("A", "Epoch", ""), ("B", "Step", ""))),
    ]  # fmt: skip
    health = [
        charted(Panel(BY_NAME[name]), GPU, legend)
        for name in ("gpu.throttled_hw_thermal", "gpu.throttled_sw_thermal", "gpu.throttled_hw_power_brake",
                     "gpu.throttled_sw_power", "gpu.temperature_margin", "gpu.ecc_uncorrected")
    ]  # fmt: skip
    columns = ("instance", "Node", ""), ("gpu", "GPU", ""), ("metric", "Metric", ""), ("reason", "Why", "")
    lacks = "Metrics that a GPU does not have, and why."
    unavailable = Chart("Not available", lacks, [missing], kind="table", width=24, columns=columns)
    rows = (
        Row("Now", now), Row("Who", who), Row("GPUs", [charted(panel, GPU, legend) for panel in GPU_PANELS]),
        Row("Health", [*health, unavailable]),
        Row("Host", [charted(panel, NODE, "{{instance}}") for panel in HOST_PANELS]),
    )  # fmt: skip
    help = "The GPUs of the chosen nodes, with the charts that gpumon's own views have."
    return Board("gpumon-node", "gpumon: node", help, (JOBS, INSTANCES, gpus), rows)


def user() -> Board:
    """A user's GPUs and runs."""
    choices = (
        Choice("user", "User", "label_values(gpumon_user_held_seconds_total, user)"),
        Choice("run", "Run", 'label_values(gpumon_run_info{user=~"$user"}, run)'),
    )
    of = 'user=~"$user"'
    hours = f"sum({BY_HOLDER} " + "(increase(gpumon_user_{}_seconds_total" + f"{{{{{of}}}}}[$__range])))"
    legend = "{{name}} {{instance}} GPU {{gpu}}"
    now = [
        stat("GPU time", "Seconds in which they held a GPU, in the time shown.", hours.format("held"), "s", 6),
        stat("Used", "Seconds in which it was busy for them.", hours.format("busy"), "s", 6),
        stat("Held, idle", "Seconds in which it did nothing.", hours.format("idle_held"), "s", 6),
        stat("Energy", "Of several users of a GPU by their kernel time: an estimate.",
             f"sum({BY_HOLDER} (increase(gpumon_user_energy_joules_total{{{of}}}[$__range])))", "joule", 6),
    ]  # fmt: skip
    over_time = [
        Chart(title, help, [Asked(f"sum by (user) ({BY_HOLDER} (rate({name}{{{of}}}[$__rate_interval])))", "{{user}}")],
              unit, width=8, stacked=True)
        for title, help, name, unit in (
            ("GPUs held", "Held seconds by second.", "gpumon_user_held_seconds_total", "short"),
            ("GPUs held and idle", "Of these, those that do nothing.", "gpumon_user_idle_held_seconds_total", "short"),
            ("Power", "Of the GPUs while they held them.", "gpumon_user_energy_joules_total", "watt"),
        )
    ]  # fmt: skip
    progress = [Asked(f"gpumon_run_{name} {OF_RUN}") for name in ("epoch", "epochs", "step")]
    progress.append(Asked(f"gpumon_run_start_timestamp_seconds {OF_RUN} * 1000"))
    runs = [
        Chart("Runs", "Now, on each of their GPUs.", progress, kind="table", width=24, columns=(
            ("name", "Run", ""), ("user", "User", ""), ("instance", "Node", ""), ("uuid", "GPU", ""),
            ("A", "Epoch", ""), ("B", "Of", ""), ("C", "Step", ""), ("D", "Since", "dateTimeAsIso"))),
        Chart("Epoch", "As the framework counts.",
              [Asked(f"max by (run, name) (gpumon_run_epoch {OF_RUN})", "{{name}} {{run}}")]),
        Chart("Steps", "By second.", [Asked(f"max by (run, name) (deriv(gpumon_run_step[$__rate_interval]) {OF_RUN})",
                                            "{{name}} {{run}}")]),
    ]  # fmt: skip
    charts = [charted(panel, "", legend, OF_RUN) for panel in GPU_PANELS[:12]]
    mark = "Epochs", 'max by (run) (changes(gpumon_run_epoch{run=~"$run"}[2m])) > 0', "epoch of {{run}}"
    rows = Row("In the time shown", now), Row("Over time", over_time), Row("Runs", runs), Row("GPUs of runs", charts)
    help = "What users and their runs hold and use; begins of epochs are marked."
    return Board("gpumon-user", "gpumon: user and run", help, choices, rows, (mark,))


def _joined(labels: str) -> str:
    return IN_FORCE.format(labels)


BOARDS = {"cluster.json": cluster, "node.json": node, "user.json": user}


def main(words: Sequence[str]) -> None:
    folder = Path(words[0]) if words else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in BOARDS.items():
        (folder / name).write_text(text_of(make()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
