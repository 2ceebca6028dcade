"""The machine that the documentation shows, and the commands and outputs on its pages.

`GPUMON_REWRITE_DOCS=1 python -m pytest tests/contracts/test_documentation.py` writes the outputs of the commands
into the pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpumon.common.clock import SECOND
from gpumon.launcher import summary
from gpumon.launcher.child_process import ExitStatus
from gpumon.launcher.watcher import CommandReport
from gpumon.model.frame import RunState
from gpumon.storage.history.tiers import SHAPES
from gpumon.storage.ledger.row_keys import STEP_ROWS, WHOLE_RUN
from tests import months
from tests.activity import keep
from tests.builders import device, sample
from tests.conftest import ROOT
from tests.runs import GIB, Book, measured, training
from tests.web.states import DOWN, STEP, lab_tick

SKILL = ROOT / "skills" / "gpumon" / "SKILL.md"
PAGES = (ROOT / "README.md", SKILL, *sorted((ROOT / "docs").rglob("*.md")))
NOW = 1_795_795_200
"""2026-11-27 16:00 UTC, when the commands of the documentation run, on a machine with nine days of history."""
COLUMNS = "110"
"""Width of the outputs."""
SHORT = (SHAPES[-1]._replace(keep=2 * 86400),)
"""Tiers of the history of GPU 0: two days of the coarsest one."""
HOUR = 3600
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Shown:
    """A command on a page with the output below it."""

    page: Path
    command: str
    output: str

    @property
    def is_simulated(self) -> bool:
        """True for outputs of the simulation, whose numbers differ from run to run."""
        return "--source sim" in self.command

    def __str__(self) -> str:
        return f"{self.page.stem}: {self.command}"


def blocks(page: Path, kinds: str) -> Iterator[str]:
    """The blocks of code of some languages on a page."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(rf"^ *```(?:{kinds})\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


def outputs(page: Path) -> Iterator[Shown]:
    """The commands of a page whose output it shows: blocks `console`, in which commands stand behind `$`."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield Shown(page, command, output)


def commands(page: Path) -> Iterator[str]:
    """The command lines of gpumon in a page's blocks for a shell."""
    lines = [shown.command for shown in outputs(page)]
    for block in blocks(page, "sh"):
        lines += block.replace("\\\n", " ").splitlines()
    for line in lines:
        if match := re.match(r"(?:sudo |.*\$\()*((?:\.venv/bin/)?gpumon\b.*)", line.strip()):
            yield match[1]


def mentions(page: Path) -> Iterator[str]:
    """Commands of gpumon in the text of a page, which may lack arguments."""
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`(?:sudo )?(gpumon [a-z][^`]*)`", prose.replace("\n", " "))


def masked(text: str) -> str:
    """An output of the simulation without its numbers, bars and spaces."""
    return " ".join(re.sub(r"[0-9][0-9:.,e-]*|[█▉▊▋▌▍▎▏·]{2,}", "0", text).split())


def fill(state_dir: Path) -> None:
    """Write the ledger and the history of the machine that the pages show."""
    with Book(state_dir) as book:
        runs(book)
    begin = NOW - 9 * DAY
    ticks = (lab_tick(1, second, begin + second, STEP) for second in range(0, 9 * DAY, STEP) if second not in DOWN)
    keep(state_dir / "history.sqlite", ticks, stopped=lambda: NOW * SECOND)
    months.fill(str(state_dir / "history.sqlite"), [device(0).uuid], NOW, months.training(NOW), SHORT)


def runs(book: Book) -> None:
    """The runs of the machine, the oldest first."""
    training(book, "resnet50-5e1f07aa", 4, seconds=170, utilization=0.55, began=NOW - 28 * HOUR, seed=2)
    for table, share in (("epoch", "0.41"), ("phase", "CASE phase WHEN 'train' THEN 0.41 / 0.85 ELSE 0 END")):
        book.db.execute(f"UPDATE {table} SET wait = {share} * seconds")
    book.db.execute("UPDATE rank SET wait = (SELECT sum(wait) FROM epoch WHERE epoch.rank = rank.key)")
    keras(book)
    boosting(book)
    training(book, "resnet50-1a2b3c4d", 4, seconds=120, began=NOW - 5 * HOUR, seed=3)
    training(
        book, "vit-tiny-0c9d11e2", 5, gpus=2, seconds=180, user="bob", state=RunState.RUNNING, began=NOW - 960, seed=4
    )
    book.db.execute("UPDATE run SET epochs = 30, updated = ? WHERE id = 'vit-tiny-0c9d11e2'", (NOW * SECOND,))
    for run, rate, workers in (
        ("resnet50-5e1f07aa", 0.1, 0),
        ("resnet50-1a2b3c4d", 0.1, 8),
        ("vit-tiny-0c9d11e2", 0.003, 8),
    ):
        for place, (name, value) in enumerate((("lr", rate), ("batch", 256), ("workers", workers))):
            book.add("parameter", run=run, kind=0, name=name, place=place, value=json.dumps(value), rank=0)
        book.add("tag", run=run, tag="sweep", removed=0)
    book.add(
        "note", run="resnet50-1a2b3c4d", time=(NOW - 4 * HOUR) * SECOND, text="with loader workers", author="alice"
    )


def keras(book: Book) -> None:
    """A training with Keras, whose epochs count from 1."""
    run = training(
        book, "cifar-7c01beef", 5, seconds=20, utilization=0.7, user="carol", framework="keras/torch", base=1,
        first_epoch=1,
        began=NOW - 26 * HOUR, seed=5,
    )  # fmt: skip
    book.db.execute("UPDATE epoch SET epoch = epoch + 1 WHERE rank LIKE ?", (f"%{run}",))
    held = "json_insert(metrics, '$.val_loss', round(json_extract(metrics, '$.loss') * 1.08 + 0.03, 4))"
    book.db.execute(f"UPDATE epoch SET metrics = {held} WHERE rank LIKE ?", (f"%{run}",))


def boosting(book: Book) -> None:
    """A training with XGBoost: no epochs, and rows of ten rounds."""
    began, rounds, rows, seconds = NOW - 24 * HOUR, 200, 20, 3.2
    end = (began + round(rows * seconds)) * SECOND
    run = book.run(
        "higgs-0badcafe", name="higgs", user="carol", framework="xgboost", epochs=None, started=began * SECOND,
        ended=end, updated=end, state=RunState.FINISHED,
    )  # fmt: skip
    key = book.rank(run, started=began * SECOND, ended=end, state=RunState.FINISHED, steps=rounds, planned_steps=rounds)
    uuid = book.device(key)
    for row in range(rows):
        begun = round((began + row * seconds) * SECOND)
        book.add(
            "step_row", rank=key, ordinal=row, first_step=10 * row, steps=10, begun=begun,
            ended=begun + round(seconds * SECOND), seconds=seconds, trained=seconds,
            metrics=json.dumps({"train-logloss": round(0.34 + 0.35 * 0.9**row, 4)}),
        )  # fmt: skip
        book.usage(key, STEP_ROWS - row, uuid, **measured(seconds, 0.53, run_allocated_peak=None))
    book.usage(key, WHOLE_RUN, uuid, **measured(rows * seconds, 0.53, run_allocated_peak=None))


def run_summary() -> str:
    """What `gpumon run --auto --name resnet50` prints at the end of a training of four epochs."""
    seconds = 549.0
    cost = summary.DeviceCost(device(0)._replace(name="NVIDIA H100 80GB HBM3"))
    cost.add(sample(0, utilization=0.9, memory_total=80 * GIB), seconds, seconds)
    cost.add_energy(76.3 * 3600, seconds)
    cost.add_memory(42 * GIB)
    training = summary.Training("resnet50-1a2b3c4d", "resnet50", 4, seconds / 4, {"loss": 0.3424})
    status = ExitStatus(0, cpu=2.1 * seconds, memory=6.4 * GIB)
    report = CommandReport([cost], [training], devices=1, shown_as="resnet50-1a2b3c4d")
    return summary.text("resnet50", status, seconds, report, color=False)


def rewrite(shown: Shown, output: str) -> None:
    """Write a new output into its page."""
    text = shown.page.read_text(encoding="utf-8")
    before = f"$ {shown.command}\n{shown.output}"
    assert before in text, str(shown)
    end = "\n" if shown.output.endswith("\n\n") else ""
    shown.page.write_text(text.replace(before, f"$ {shown.command}\n{output.rstrip()}\n{end}", 1), encoding="utf-8")
