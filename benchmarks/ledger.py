"""A ledger of years, 2 000 runs with 200 000 epochs: what it takes to list them and to show one.

Commands are started in turn, round after round, beside two floors: Python that only imports sqlite3, and one that asks
the file the same question itself.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Stage, tool
from benchmarks.usage import Figures, run_once
from gpumon.common.clock import SECOND
from gpumon.common.paths import LEDGER
from gpumon.model.columns import USAGE
from gpumon.storage.ledger.row_keys import WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.schema import LEDGER_FILE
from gpumon.storage.sqlite.write import open_to_write
from gpumon_web.stored.run_list import run_list_document

RUNS, EPOCHS = 2000, 100
"""Runs, and epochs of each."""
_PHASES = ((WHOLE_EPOCH, 1.0), ("train", 0.85), ("validate", 0.15))
_BEGAN = 1_700_000_000
_APART = 3600
_EPOCH = 30.0
_USAGE = ", ".join(column.key for column in USAGE)
_BARE = (
    "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); "
    "rows = db.execute('SELECT * FROM run ORDER BY started DESC LIMIT 50').fetchall(); "
    "[db.execute('SELECT count(DISTINCT ordinal) FROM epoch WHERE rank IN (SELECT key FROM rank WHERE run = ?)', "
    "(row[0],)).fetchall() for row in rows]"
)


def fill(path: Path, runs: int = RUNS, epochs: int = EPOCHS, *, first: int = 0) -> None:
    """Add so many runs to the ledger at `path`, each on one GPU, with parameters, tags and phases.

    `first` is the index of the first one.
    """
    with closing(open_to_write(str(path), LEDGER_FILE, shared=False, uid=path.parent.stat().st_uid, log=print)) as file:
        file.execute("BEGIN")
        for number_of_run in range(first, first + runs):
            _add_run(file, number_of_run, epochs)
        file.execute("COMMIT")


def measure(stage: Stage, effort: Effort) -> Result:
    """Time each command so often, in turn; the first round warms the caches."""
    place = stage.place("ledger")
    state = Path(place.env["GPUMON_STATE_DIR"])
    state.mkdir(parents=True, exist_ok=True)
    path = state / LEDGER
    begun = time.monotonic()
    fill(path)
    filled = time.monotonic() - begun
    gpumon = tool("gpumon")
    ours = [gpumon] if gpumon else [sys.executable, "-m", "gpumon"]
    commands = {
        "gpumon runs list": [*ours, "runs", "list"],
        "gpumon runs show last": [*ours, "runs", "show", "last"],
        "gpumon runs list --tag swept --where lr=0.5": [*ours, "runs", "list", "--tag", "swept", "--where", "lr=0.5"],
        "gpumon runs list --limit 0": [*ours, "runs", "list", "--limit", "0"],
        "python -c 'import sqlite3'": [sys.executable, "-c", "import sqlite3"],
        "python, the bare queries of the list": [sys.executable, "-c", _BARE, str(path)],
    }
    wall = {name: Figures() for name in commands}
    cpu = {name: Figures() for name in commands}
    page = Figures()
    for turn in range(effort.rounds + 1):
        for name, command in commands.items():
            once = run_once(command, place.env)
            if turn:
                wall[name].add(once.wall)
                cpu[name].add(once.cpu)
        since = time.perf_counter()
        run_list_document([str(path)], {}, time.time(), None)
        if turn:
            page.add(time.perf_counter() - since)

    result = Result("A ledger of 2 000 runs and 200 000 epochs", ("command", "wall s", "least", "CPU s", "least"))
    for name in commands:
        figures = wall[name].median, wall[name].least, cpu[name].median, cpu[name].least
        result.rows.append((name, *map(number, figures)))
    result.rows.append(("the list of the web's Runs page, made", number(page.median), number(page.least), "", ""))
    result.notes.append(f"{path.stat().st_size / 2**20:.0f} MiB, made in {filled:.0f} s")
    result.budgets += [
        Budget("wall of gpumon runs list", wall["gpumon runs list"].median, 0.3, " s"),
        Budget("wall of gpumon runs show last", wall["gpumon runs show last"].median, 0.3, " s"),
        Budget("the list of the web's Runs page", page.median, 0.5, " s"),
    ]
    return result


def _add_run(file: sqlite3.Connection, index: int, epochs: int) -> None:
    id, key, uuid = f"net-{index:08x}", f"tag.1000.{index}.{index:08x}", f"GPU-{index % 8:08d}"
    began = (_BEGAN + index * _APART) * SECOND
    ended = began + round(epochs * _EPOCH * SECOND)
    _insert(file, "run", {
        "id": id, "name": f"net{index % 7}", "user": f"user{index % 5}", "hostname": "node1", "framework": "torch",
        "source": "nvml", "label": "", "driver": "580.1", "world_size": 1, "epochs": epochs, "base": 0,
        "first_epoch": 0, "started": began, "ended": ended, "state": 1, "updated": ended, "seconds": epochs * _EPOCH,
    })  # fmt: skip
    _insert(file, "rank", {
        "key": key, "run": id, "rank": 0, "local_rank": 0, "pid": index, "started": began, "ended": ended, "state": 1,
        "steps": 100 * epochs, "wait": 3.0, "lost_events": 0, "peak": 3e10, "retries": 0.0, "ooms": 0.0, "batch": 32,
    })  # fmt: skip
    _insert(file, "device", {
        "rank": key, "uuid": uuid, "number": index % 8, "name": "NVIDIA H100 80GB HBM3", "memory_total": 8.5e10,
        "power_limit": 700.0,
    })  # fmt: skip
    for place, (name, value) in enumerate({"lr": 0.1 * (index % 9), "batch": 32, "model": "resnet50"}.items()):
        _insert(file, "parameter", {
            "run": id, "kind": 0, "name": name, "place": place, "value": json.dumps(value), "rank": 0,
        })  # fmt: skip
    if not index % 10:
        _insert(file, "tag", {"run": id, "tag": "swept", "removed": 0})
    file.executemany(
        "INSERT INTO epoch (rank, ordinal, epoch, begun, ended, seconds, steps, wait, metrics) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (key, i, i, began + round(i * _EPOCH * SECOND), began + round((i + 1) * _EPOCH * SECOND), _EPOCH, 100, 0.5,
             json.dumps({"loss": 1 / (i + 1), "accuracy": 1 - 1 / (i + 2)}))
            for i in range(epochs)
        ),
    )  # fmt: skip
    file.executemany(
        "INSERT INTO phase (rank, ordinal, phase, seconds, times, steps, wait, place) "
        "VALUES (?, ?, ?, ?, 1, ?, 0.5, ?)",
        ((key, i, phase, share * _EPOCH, 100, at)
         for i in range(epochs) for at, (phase, share) in enumerate(_PHASES[1:])),
    )  # fmt: skip
    file.executemany(
        f"INSERT INTO usage (rank, ordinal, phase, uuid, utilization_from, {_USAGE}) "
        f"VALUES (?, ?, ?, ?, 'driver'{', ?' * len(USAGE)})",
        _usage_rows(key, uuid, epochs),
    )


def _usage_rows(key: str, uuid: str, epochs: int) -> Iterator[tuple[Any, ...]]:
    values = [0.5] * len(USAGE)
    yield key, WHOLE_RUN, WHOLE_EPOCH, uuid, *values
    for i in range(epochs):
        for phase, share in _PHASES:
            values[0] = values[1] = share * _EPOCH
            yield key, i, phase, uuid, *values


def _insert(file: sqlite3.Connection, table: str, cells: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(cells))
    file.execute(f"INSERT INTO {table} ({', '.join(cells)}) VALUES ({marks})", tuple(cells.values()))
