"""Ledgers of made-up runs, written by the schema's own SQL: for tests of what reads them."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.paths import LEDGER
from gpumon.model.columns import USAGE
from gpumon.model.frame import Mark, RunState
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.row_keys import WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.schema import TABLES, VERSION
from gpumon.storage.ledger.trace import pack_trace

BEGAN = 1_790_000_000
"""Seconds since 1970 at which a made-up run begins."""
GIB = 2.0**30
HOSTILE = "<script>alert(1)</script>[red]\x1b[31m%{x}$&lt;"


class Book:
    """A ledger file that is being filled."""

    def __init__(self, state_dir: Path, version: int = VERSION) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        self.path = state_dir / LEDGER
        # Whichever thread looks for garbage closes it.
        self.db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA foreign_keys = ON")
        self.db.executescript(TABLES)
        self.db.execute(f"PRAGMA user_version = {version:d}")
        self._phases: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Book:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def __del__(self) -> None:
        """Close the file also where no block does: from 3.13 on, Python warns of a connection that it has to close."""
        self.db.close()

    def add(self, table: str, **cells: Any) -> None:
        """One row."""
        names, marks = ", ".join(cells), ", ".join("?" * len(cells))
        self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(cells.values()))

    def run(self, run_id: str = "resnet50-1a2b", **cells: Any) -> str:
        """A row of `run`; gives its id."""
        began = cells.pop("started", BEGAN * SECOND)
        self.add(
            "run",
            **{
                "id": run_id, "name": "resnet50", "user": "alice", "hostname": "node1", "framework": "torch",
                "source": "nvml", "label": "", "driver": "550.54.15", "world_size": 1, "epochs": 3, "base": 0,
                "first_epoch": 0, "started": began, "ended": None, "state": RunState.RUNNING, "updated": began,
                "resumes": None, **cells,
            },
        )  # fmt: skip
        return run_id

    def rank(self, run_id: str, rank: int = 0, **cells: Any) -> str:
        """A row of `rank`; gives its key."""
        key: str = cells.pop("key", f"tag.1000.{4711 + rank}.{run_id}")
        self.add(
            "rank",
            **{
                "key": key, "run": run_id, "rank": rank, "local_rank": rank, "pid": 4711 + rank,
                "started": BEGAN * SECOND, "ended": None, "state": RunState.RUNNING, "steps": 0, "wait": None,
                "lost_events": 0, "peak": None, "retries": None, "ooms": None, **cells,
            },
        )  # fmt: skip
        return key

    def device(self, key: str, number: int = 0, **cells: Any) -> str:
        """A row of `device`; gives its UUID."""
        uuid: str = cells.pop("uuid", uuid_of(number))
        named = {"name": "NVIDIA H100 80GB HBM3", "memory_total": 80 * GIB, "power_limit": 700.0}
        self.add("device", rank=key, uuid=uuid, number=number, **{**named, **cells})
        return uuid

    def epoch(self, key: str, ordinal: int, **cells: Any) -> None:
        """A row of `epoch`, of ten seconds, one behind the other."""
        begun = (BEGAN + 10 * ordinal) * SECOND
        self.add(
            "epoch",
            **{
                "rank": key, "ordinal": ordinal, "epoch": ordinal, "begun": begun, "ended": begun + 10 * SECOND,
                "seconds": 10.0, "steps": 100, "wait": 0.5, "metrics": "{}", **cells,
            },
        )  # fmt: skip

    def lose(self, key: str, numbers: Collection[int]) -> None:
        """Remove these epochs of a rank, as if their boundaries had been lost before the recorder counted them."""
        rows = self.db.execute("SELECT ordinal, epoch FROM epoch WHERE rank = ? ORDER BY ordinal", (key,)).fetchall()
        kept = [ordinal for ordinal, number in rows if number not in numbers]
        self.db.execute("PRAGMA foreign_keys = OFF")
        for table in ("epoch", "phase", "usage"):
            for ordinal in {ordinal for ordinal, _ in rows} - {*kept}:
                self.db.execute(f"DELETE FROM {table} WHERE rank = ? AND ordinal = ?", (key, ordinal))
            for place, ordinal in enumerate(kept):
                moved = (place, key, ordinal)
                self.db.execute(f"UPDATE {table} SET ordinal = ? WHERE rank = ? AND ordinal = ?", moved)
        self.db.execute("PRAGMA foreign_keys = ON")

    def phase(self, key: str, ordinal: int, phase: str, seconds: float, **cells: Any) -> None:
        """A row of `phase`."""
        place = self._phases[key, ordinal] = self._phases.get((key, ordinal), -1) + 1
        row = {"rank": key, "ordinal": ordinal, "phase": phase, "seconds": seconds, "times": 1, "steps": 0, "wait": 0.0,
               "place": place}  # fmt: skip
        self.add("phase", **{**row, **cells})

    def usage(self, key: str, ordinal: int, uuid: str, phase: str = WHOLE_EPOCH, **values: Any) -> None:
        """A row of `usage`; what is not named is NULL."""
        origin = values.pop("utilization_from", "driver")
        self.add("usage", rank=key, ordinal=ordinal, phase=phase, uuid=uuid, utilization_from=origin, **values)

    def trace(
        self, key: str, uuid: str, columns: Mapping[str, Sequence[Sequence[float]]], step: float = 1.0, **cells: Any
    ) -> None:
        """A row of `trace`; each column is a list of (minimum, mean, maximum)."""
        points = len(next(iter(columns.values())))
        packed = pack_trace([Envelope(*zip(*course, strict=True)) for course in columns.values()])
        row = {"begun": BEGAN * SECOND, "points": points, "columns": json.dumps(list(columns))}
        self.add("trace", rank=key, uuid=uuid, step=step, cells=packed, **{**row, **cells})

    def out_of_memory(self, key: str, number: int = 1, asked: float | None = 2 * GIB, free: float | None = GIB) -> None:
        """A mark in the middle of epoch 1."""
        time = (BEGAN + 15) * SECOND
        self.add("mark", rank=key, number=number, mark=Mark.OUT_OF_MEMORY, time=time, epoch=1, step=150,
                 asked=asked, free=free)  # fmt: skip


def uuid_of(number: int) -> str:
    """The UUID of a made-up device."""
    return f"GPU-{number:08d}-aaaa-bbbb-cccc-dddddddddddd"


def measured(seconds: float = 10.0, utilization: float = 0.9, **values: float | None) -> dict[str, Any]:
    """Every column of `usage`, as of a GPU that works."""
    found: dict[str, Any] = dict.fromkeys(column.key for column in USAGE) | {
        "seconds": seconds, "sampled": seconds, "utilization_mean": utilization, "utilization_p5": utilization - 0.2,
        "utilization_p95": min(1.0, utilization + 0.08), "idle_share": max(0.0, 1 - utilization) / 2,
        "energy": 500.0 * seconds, "power_mean": 500.0, "memory_used_peak": 42 * GIB, "memory_used_mean": 41 * GIB,
        "run_used_peak": 41.5 * GIB, "run_reserved_peak": 40 * GIB, "run_allocated_peak": 31 * GIB,
        "run_allocated_mean": 26 * GIB, "run_inactive_split_peak": 1.2 * GIB, "throttled_share": 0.0,
        "capped_share": 0.3, "temperature_start": 58.0, "temperature_mean": 62.0, "temperature_peak": 66.0,
        "clock_sm_mean": 1.755e9, "tensor_throughput_mean": 0.42, "sm_activity_mean": 0.71, "fp32_activity_mean": 0.08,
        **values,
    }  # fmt: skip
    assert set(found) == {column.key for column in USAGE}
    return found


def training(
    book: Book,
    run_id: str = "resnet50-1a2b",
    epochs: int = 3,
    *,
    gpus: int = 1,
    seconds: float = 10.0,
    utilization: float = 0.9,
    state: RunState = RunState.FINISHED,
    began: float = BEGAN,
    phases: bool = True,
    course: bool = True,
    seed: int = 1,
    device: Mapping[str, Any] | None = None,
    usage: Mapping[str, float] | None = None,
    **run: Any,
) -> str:
    """A whole run that worked: one rank on each GPU, `epochs` epochs of about `seconds`; gives its id.

    The first epoch takes half as long again, as first epochs do.
    """
    random = Random(seed)
    lengths = [seconds * (1 + 0.04 * random.random()) * (1.5 if i == 0 else 1) for i in range(epochs)]
    over = state is not RunState.RUNNING
    end = round((began + sum(lengths)) * SECOND)
    book.run(
        run_id, **{
            "name": run_id.rpartition("-")[0] or run_id, "epochs": epochs, "world_size": gpus,
            "started": round(began * SECOND), "ended": end if over else None, "updated": end, "state": state, **run,
        },
    )  # fmt: skip
    with_phases = (("train", 0.85), ("validate", 0.15)) if phases else ()
    book.db.execute("BEGIN")
    for rank in range(gpus):
        key = book.rank(run_id, rank, started=round(began * SECOND), ended=end if over else None, state=state,
                        steps=100 * epochs, wait=0.05 * sum(lengths), retries=0.0, ooms=0.0, peak=31 * GIB)  # fmt: skip
        uuid = book.device(key, rank, **(device or {}))
        time = began
        for i, length in enumerate(lengths):
            logged = {"loss": 2.3 * math.exp(-3 * i / epochs) + 0.1, "accuracy": 1 - 0.8 * math.exp(-4 * i / epochs)}
            book.epoch(key, i, begun=round(time * SECOND), ended=round((time + length) * SECOND), seconds=length,
                       wait=0.05 * length, metrics=json.dumps(logged if rank == 0 else {}),
                       peak=31 * GIB, peak_reached=int(i == 0))  # fmt: skip
            worked = utilization + 0.02 * random.random() - 0.05 * (i == 0)
            book.usage(key, i, uuid, **measured(length, worked, **(usage or {})))
            for phase, share in with_phases:
                book.phase(key, i, phase, share * length, steps=round(100 * share), wait=0.05 * share * length,
                           peak=31 * GIB, peak_reached=int(i == 0))  # fmt: skip
                book.usage(key, i, uuid, phase, **measured(share * length, worked * (0.5 + share / 2), **(usage or {})))
            time += length
        book.usage(key, WHOLE_RUN, uuid, **measured(sum(lengths), utilization, **(usage or {})))
        if course:
            _course(book, key, uuid, lengths, began, utilization, random)
            _logged(book, key, lengths, began)
    book.db.execute("COMMIT")
    return run_id


def _course(
    book: Book, key: str, uuid: str, lengths: Sequence[float], began: float, utilization: float, random: Random
) -> None:
    points = 1500
    step = sum(lengths) / points
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    columns: dict[str, list[tuple[float, float, float]]] = {}
    for point in range(points):
        time = point * step
        i = next((i for i, end in enumerate(ends) if time < end), len(ends) - 1)
        share = 1 - (ends[i] - time) / lengths[i]
        load = utilization * (0.6 if share > 0.85 else 0.15 if share < 0.03 else 1.0)
        warm = min(1.0, time / max(1.0, lengths[0] * 0.4))
        live = GIB * (warm * 24 + (7 * abs(math.sin(share * 40)) if share < 0.85 else 2))
        held = max(live, GIB * 34 * warm)
        other = GIB * (3.0 if 0.3 < time / sum(lengths) < 0.6 else 0.0)
        for name, mean, spread in (
            ("gpu.utilization", load, 0.08), ("gpu.memory_used", held + 1.4 * GIB + other, 0),
            ("gpu.power", 110 + 540 * load, 25), ("gpu.temperature", 45 + 24 * load * warm, 1),
            ("gpu.run_allocated", live, 0.3 * GIB), ("gpu.run_reserved", held, 0),
            ("gpu.run_used", held + 1.4 * GIB, 0), ("gpu.memory_total", 80 * GIB, 0),
        ):  # fmt: skip
            wide = spread * random.random()
            top = mean + wide
            columns.setdefault(name, []).append((max(0.0, mean - wide), mean, min(1.0, top) if spread == 0.08 else top))
    book.trace(key, uuid, columns, step, begun=round(began * SECOND))


def _logged(book: Book, key: str, lengths: Sequence[float], began: float) -> None:
    """By step, from the value of the epoch before to its own, which it has as it ends."""
    points, epochs, total = 400, len(lengths), sum(lengths)
    ends = [sum(lengths[: i + 1]) for i in range(epochs)]
    loss, accuracy = [], []
    for point in range(points):
        time = (point + 0.5) * total / points
        i = next((i for i, end in enumerate(ends) if time < end), epochs - 1)
        done = max(0.0, i - (ends[i] - time) / lengths[i])
        loss.append(2.3 * math.exp(-3 * done / epochs) + 0.1)
        accuracy.append(1 - 0.8 * math.exp(-4 * done / epochs))
    columns = {"loss": [(v, v, v) for v in loss], "accuracy": [(v, v, v) for v in accuracy]}
    book.trace(key, "", columns, total / points, begun=round(began * SECOND))
