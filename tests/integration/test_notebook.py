"""`%load_ext gpumon` in a real kernel: cells run as without it, and each measured cell has one table."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import RunState
from tests.conftest import ROOT
from tests.notebooks import SOURCES, Notebook, tables, without_tables
from tests.nvml import Process, Stub
from tests.programs import PATIENCE, daemon, environment, gpumon, until
from tests.trainings import need

LOAD = "%load_ext gpumon"
HOSTILE = "<b>&'\""
SECOND = 1_000_000_000


class Lab:
    """A kernel with the extension, on the stub driver. The kernel uses GPU 0."""

    def __init__(self, stub: Stub, directory: Path) -> None:
        self.stub = stub
        self.live_dir = directory / "live"
        self.live_dir.mkdir(mode=0o700)
        self.env = {**environment(self.live_dir, stub.env()), "GPUMON_SOURCE": "nvml"}
        self.notebook = Notebook(self.env, directory)

    @property
    def sampler(self) -> int:
        """The pid of the running daemon; 0 if there is none."""
        live = follow(Places(explicit=str(self.live_dir)))
        return live.writer_pid() if live.is_alive() else 0

    def run(self, source: str) -> list[dict[str, Any]]:
        return self.notebook.run(source)

    def last_cell(self) -> dict[str, Any]:
        """Return the report of the last measured cell, once the sample after it has arrived."""
        self.run("%gpumon off")
        time.sleep(0.4)
        report: dict[str, Any] = self.notebook.value("gpumon.notebook.cells()[-1]")
        return report


@pytest.fixture(scope="module")
def shared(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A kernel for tests that leave nothing behind, since a kernel takes seconds to start."""
    with Stub(driver_library) as stub:
        stub.set_name(0, f"NVIDIA H100 {HOSTILE}")
        lab = Lab(stub, tmp_path_factory.mktemp("notebook"))
        with lab.notebook.started(), daemon("--interval", "0.1", env=lab.env):
            stub.set_processes(0, [Process(lab.notebook.pid, memory=2**30, sm=50)])
            lab.run("import asyncio, sys, time, gpumon.notebook")
            yield lab


@pytest.fixture
def lab(shared: Lab) -> Iterator[Lab]:
    """The shared kernel with the extension loaded."""
    assert shared.run(LOAD) == []
    yield shared
    shared.run("%unload_ext gpumon")


@pytest.fixture
def fresh(stub: Stub, tmp_path: Path) -> Iterator[Lab]:
    """A kernel of its own, without a daemon."""
    lab = Lab(stub, tmp_path)
    with lab.notebook.started():
        yield lab


CELLS = (
    "%%gpumon\nawait asyncio.sleep(0.01)\n'value'",
    "%%gpumon\nfor i in range(3):\n    1 / (2 - i)",
    "%%gpumon",
    "%%gpumon\nprint('out'); print('err', file=sys.stderr)",
    "%%gpumon\n!echo shell",
    "%%gpumon\nx = 3;\nx",
    "\n\n%%gpumon\n\ndef f():\n    raise ValueError('deep')\nf()",
    "%%gpumon\nif True\n    pass",
    "not_measured = 1\nnot_measured",
)
"""Cells of many kinds: with await, errors, magics, no code."""


class TestCells:
    def test_outputs_are_those_without_gpumon(self, shared: Lab) -> None:
        plain = [shared.run(source.replace("%%gpumon", "# %%gpumon", 1)) for source in CELLS]
        shared.run(LOAD)
        measured = [shared.run(source) for source in CELLS]
        shared.run("%unload_ext gpumon")
        for source, before, after in zip(CELLS, plain, measured, strict=True):
            assert comparable(without_tables(after)) == comparable(before), source
            assert len(tables(after)) == ("%%gpumon" in source), source

    @pytest.mark.parametrize("source", ["%%gpumon\n%%time\nsum([1])", "%%time\n%%gpumon\nsum([1])"])
    def test_other_cell_magics_work(self, lab: Lab, source: str) -> None:
        outputs = lab.run(source)
        assert len(tables(outputs)) == 1
        assert ["Wall time" in output["text"] for output in without_tables(outputs) if "text" in output] == [True]

    def test_all_cells_with_on(self, lab: Lab) -> None:
        assert [len(tables(lab.run(source))) for source in ("1", "%gpumon on", "2", "%gpumon", "%gpumon off", "3")] == [
            0, 0, 1, 1, 0, 0,
        ]  # fmt: skip

    def test_wrong_usage_is_one_line(self, lab: Lab) -> None:
        for source in ("%gpumon frob", "%gpumon live soon", "%gpumon live 0", "%gpumon runs x"):
            (output,) = lab.run(source)
            assert output["name"] == "stderr", source
            assert len(output["text"].splitlines()) == 1, source

    def test_added_time(self, lab: Lab) -> None:
        """CPU time of the kernel's main thread between two cells, because the machine may be busy."""
        added = {}
        for setting in ("off", "on"):
            lab.run(f"%gpumon {setting}")
            spans = []
            for _ in range(8):
                lab.run("began = time.thread_time()")
                (output, *_) = lab.run("print(time.thread_time() - began)")
                spans.append(float(output["text"]))
            added[setting] = min(spans)
        assert added["on"] - added["off"] < 0.02

    def test_a_fault_of_gpumon_is_one_line(self, lab: Lab) -> None:
        lab.run("import gpumon.notebook.extension as e; kept = e.CellCost; e.CellCost = None")
        outputs = lab.run("%%gpumon\n1 + 1")
        lab.run("e.CellCost = kept")
        assert [output["data"]["text/plain"] for output in outputs if "data" in output] == ["2"]
        (line,) = [output["text"] for output in outputs if "text" in output]
        assert len(line.splitlines()) == 1


class TestTable:
    def test_values_are_those_of_the_driver(self, lab: Lab) -> None:
        (table,) = tables(lab.run("%%gpumon\nbegan = time.monotonic_ns(); time.sleep(3); ended = time.monotonic_ns()"))
        began, ended = lab.notebook.value("(began, ended)")
        cell = lab.last_cell()
        (gpu,) = cell["gpus"]
        energy = [lab.stub.truth("gpu.energy", 0, at / SECOND) for at in (began, ended)]
        assert cell["seconds"] == pytest.approx((ended - began) / SECOND, abs=0.1)
        assert gpu["uuid"] == lab.stub.uuid(0)
        assert gpu["energy_joules"] == pytest.approx(energy[1] - energy[0], rel=0.02)
        assert gpu["utilization_mean_ratio"] == pytest.approx(lab.stub.mean_utilization(0, began, ended), abs=0.05)
        assert gpu["memory_used_peak_bytes"] > 2**30
        assert "H100" in table["text/plain"]
        assert "H100" in table["text/html"]

    def test_a_short_cell_has_only_its_time(self, lab: Lab) -> None:
        lab.run("%%gpumon\npass")
        cell = lab.last_cell()
        (gpu,) = cell["gpus"]
        assert 0 < cell["seconds"] < 1
        assert (gpu["energy_joules"], gpu["utilization_mean_ratio"]) == (None, None)

    def test_a_cell_without_a_gpu(self, lab: Lab) -> None:
        lab.stub.set_processes(0, [])
        try:
            until(lambda: not lab.run("%%gpumon\ntime.sleep(0.3)") or not lab.last_cell()["gpus"])
        finally:
            lab.stub.set_processes(0, [Process(lab.notebook.pid, memory=2**30, sm=50)])
        assert len(lab.last_cell()["notes"]) == 1

    def test_other_processes_are_named(self, lab: Lab) -> None:
        own = Process(lab.notebook.pid, memory=2**30, sm=50)
        lab.stub.set_processes(0, [own, Process(os.getpid(), memory=2**30)])
        try:
            until(lambda: not lab.run("%%gpumon\ntime.sleep(0.3)") or lab.last_cell()["notes"])
        finally:
            lab.stub.set_processes(0, [own])

    def test_framework_memory(self, lab: Lab) -> None:
        """The peak of a cell: exact if the cell raised it, an upper bound if it was reached before."""
        lab.run(FAKE_TORCH)
        (table,) = tables(lab.run("%%gpumon\npeak[0] = 3 << 30"))
        assert "3.0 GiB" in table["text/plain"]
        assert lab.last_cell()["gpus"][0]["framework_peak_bytes"] == 3 << 30
        (table,) = tables(lab.run("%%gpumon\npass"))
        assert "≤3.0 GiB" in table["text/plain"]
        lab.run("del sys.modules['torch']")

    def test_hostile_names_are_escaped(self, lab: Lab) -> None:
        (table,) = tables(lab.run("%%gpumon\ntime.sleep(0.2)"))
        (pane,) = tables(lab.run("%gpumon"))
        for shown in (table, pane):
            assert HOSTILE in shown["text/plain"]
            assert "&lt;b&gt;&amp;&#x27;&quot;" in shown["text/html"]
            assert "<b>" not in shown["text/html"]


FAKE_TORCH = """
import types
peak = [1 << 30]
def stats(index):
    return {key: {"all": {"current": peak[0], "peak": peak[0]}} for key in ("allocated_bytes", "reserved_bytes")}
cuda = types.SimpleNamespace(
    is_initialized=lambda: True, current_device=lambda: 0, device_count=lambda: 1, memory_stats_as_nested_dict=stats,
    get_device_properties=lambda index: types.SimpleNamespace(uuid="6770756d-6f6e-4000-8000-000000000001"),
)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
"""


class TestPane:
    def test_is_updated_while_a_cell_computes_and_becomes_its_table(self, lab: Lab) -> None:
        lab.run("%gpumon live 0.2")
        outputs = lab.run(
            "print('first')\nuntil = time.monotonic() + 3\nwhile time.monotonic() < until: sum(range(999))"
        )
        shown = lab.notebook.updates
        (table,) = tables(outputs)
        assert [output.get("text") for output in outputs] == [None, "first\n"], "the pane is above"
        panes = [data["text/html"] for data in shown if "<svg" in data["text/html"]]
        assert len(panes) >= 8, "of 15 updates; the machine may be busy"
        assert len(set(panes)) > 1
        assert "<svg" not in table["text/html"]
        assert lab.last_cell()["gpus"][0]["energy_joules"] > 0

    def test_shows_the_runs_of_the_notebook(self, lab: Lab) -> None:
        lab.run("%gpumon live 0.2")
        lab.run("with gpumon.run('seen-run', epochs=3) as r:\n    for e in r.epochs(): time.sleep(0.6)")
        assert any("seen-run" in data["text/plain"] for data in lab.notebook.updates)

    def test_of_now(self, lab: Lab) -> None:
        (pane,) = tables(lab.run("%gpumon"))
        assert pane["text/html"].count("<tr>") == 3, "a heading and two GPUs; runs are not in the table"


class TestRuns:
    def test_are_listed(self, lab: Lab) -> None:
        lab.run("with gpumon.run('listed<i>', epochs=2) as r:\n    for e in r.epochs(): time.sleep(0.3)")
        output = until(lambda: next(iter(tables(lab.run("%gpumon runs 5"))), None))
        assert "listed" in output["text/plain"]
        assert "listed&lt;i&gt;" in output["text/html"]


class TestStopButton:
    """An interrupt ends the run with its cell."""

    @pytest.mark.parametrize(
        ("name", "source"),
        [
            ("in-with", "with gpumon.run('in-with', epochs=9) as r:\n    for e in r.epochs(): time.sleep(60)"),
            ("kept", "r = gpumon.run('kept', epochs=9)\nfor e in r.epochs(): time.sleep(60)"),
        ],
    )
    def test_run(self, lab: Lab, name: str, source: str) -> None:
        assert interrupted(lab, f"%%gpumon\n{source}") == ["KeyboardInterrupt"]
        until(lambda: state(lab, name) is RunState.INTERRUPTED)

    def test_a_run_that_does_not_train_goes_on(self, lab: Lab) -> None:
        source = "kept = gpumon.run('going-on')\nfor e in kept.epochs(2): pass\ntime.sleep(60)"
        assert interrupted(lab, source) == ["KeyboardInterrupt"]
        assert lab.notebook.value("kept.on")
        lab.run("kept.finish()")


class TestSampling:
    """Without a daemon, the notebook starts one, which lives as long as a notebook needs it."""

    def test_survives_the_stop_button_and_ends_with_the_kernel(self, fresh: Lab) -> None:
        fresh.run(LOAD)
        pid = until(lambda: fresh.sampler)
        assert interrupted(fresh, "import time; time.sleep(60)") == ["KeyboardInterrupt"]
        time.sleep(3)
        assert fresh.sampler == pid
        os.kill(fresh.notebook.pid, signal.SIGKILL)
        until(lambda: not os.path.exists(f"/proc/{pid}"))

    def test_is_shared(self, fresh: Lab, tmp_path: Path) -> None:
        fresh.run(LOAD)
        pid = until(lambda: fresh.sampler)
        with Notebook(fresh.env, tmp_path).started() as other:
            other.run(LOAD)
            fresh.run("%unload_ext gpumon")
            time.sleep(4)
            assert fresh.sampler == pid
        until(lambda: not fresh.sampler)

    def test_begins_again(self, fresh: Lab) -> None:
        """As after a restart of the kernel, or if the daemon was stopped."""
        fresh.run(f"{LOAD}\n%gpumon on")
        os.kill(until(lambda: fresh.sampler), signal.SIGTERM)
        until(lambda: not fresh.sampler)
        until(lambda: fresh.run("1") and fresh.sampler)

    def test_without_a_gpu(self, stub: Stub, tmp_path: Path) -> None:
        lab = Lab(stub, tmp_path)
        lab.stub.driver_error = 9
        with lab.notebook.started():
            lab.run(f"{LOAD}\nimport gpumon.notebook")
            until(lambda: lab.sampler)
            outputs = lab.run("%%gpumon\n6 * 7")
            assert outputs[0]["data"]["text/plain"] == "42"
            assert len(tables(outputs)) == 1
            assert lab.last_cell()["notes"] == [follow(Places(explicit=str(lab.live_dir))).origin().problem]

    def test_without_a_daemon_there_is_a_note_and_no_ledger(self, stub: Stub, tmp_path: Path) -> None:
        lab = Lab(stub, tmp_path)
        lab.live_dir.rmdir()
        lab.live_dir.write_text("not a directory")
        with lab.notebook.started():
            lab.run(f"{LOAD}\nimport gpumon.notebook")
            (table,) = tables(lab.run("%%gpumon\npass"))
            (note,) = lab.last_cell()["notes"]
            (output,) = lab.run("%gpumon runs")
            assert len(output["text"].splitlines()) == 1
        assert str(lab.live_dir) in note
        assert note in table["text/plain"]


class TestTerminal:
    """IPython in a terminal, which cannot replace an output."""

    def test_tables_are_text(self, shared: Lab) -> None:
        lines = [LOAD, "%gpumon on", "import time", "time.sleep(0.3)", "%gpumon live", "1 + 1", "%gpumon", "1 / 0"]
        words = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"]
        env = {**shared.env, "PYTHONPATH": SOURCES, "IPYTHONDIR": str(shared.live_dir / "ipython")}
        done = subprocess.run(
            words, env=env, input="\n".join([*lines, ""]), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.stdout.count("ALLOC MAX") == 4, done.stdout
        assert done.stdout.count("ZeroDivisionError") == 2, "in the heading and at the end of one traceback"
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "<" not in done.stdout.replace(HOSTILE, "").replace("<module>", "").replace("<cell", "")


class TestKeras:
    """The example, and what people do to a `fit` in a notebook."""

    def test_example_stop_button_and_nested_fit(self, fresh: Lab) -> None:
        need("torch", "keras")
        fresh.run("import os; os.environ.update(EPOCHS='2', IMAGES='256')")
        cells = json.loads((ROOT / "examples" / "keras_notebook.ipynb").read_text(encoding="utf-8"))["cells"]
        outputs = [fresh.run("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
        assert [output for cell in outputs for output in cell if output["output_type"] == "error"] == []
        assert [len(tables(cell)) for cell in outputs] == [0, 1, 1, 1, 1, 2, 1]
        assert "notebook-cifar" in outputs[5][-1]["data"]["text/plain"]
        assert "2 rows" in outputs[6][-1]["data"]["text/plain"]
        fresh.run("%gpumon off")
        fresh.run(KERAS)
        assert interrupted(fresh, "fit('stopped', epochs=10**6)") == ["KeyboardInterrupt"]
        assert [output["output_type"] for output in fresh.run(NESTED)] == []
        until(lambda: state(fresh, "stopped") is RunState.INTERRUPTED)
        fresh.run("fit('next', epochs=1)")  # until then, an evaluation could continue the runs
        until(lambda: (state(fresh, "outer"), state(fresh, "inner")) == (RunState.FINISHED, RunState.FINISHED))
        shown = json.loads(gpumon("runs", "show", "outer", "--json", env=fresh.env).stdout)
        assert [epoch["epoch"] for epoch in shown["epochs"]] == [1, 2, 3]


KERAS = """
import keras, numpy as np
from gpumon.callbacks.keras import GpuMonitor
def fit(name, epochs, *callbacks):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.fit(np.ones((64, 4)), np.ones(64), epochs=epochs, verbose=0, callbacks=[GpuMonitor(name), *callbacks])
"""
NESTED = """
class Probe(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None): fit("inner", 1)
fit("outer", 3, Probe())
"""


def interrupted(lab: Lab, source: str) -> list[str]:
    """Press the stop button while a cell sleeps, and return the names of the errors that the cell shows."""
    import threading

    timer = threading.Timer(1.5, lab.notebook.interrupt)
    timer.start()
    outputs = lab.run(source)
    timer.join()
    return [output["ename"] for output in outputs if output["output_type"] == "error"]


def state(lab: Lab, name: str) -> RunState | None:
    frame = follow(Places(explicit=str(lab.live_dir))).latest()
    return next((run.state for run in frame.runs if run.name == name), None) if frame else None


def comparable(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return outputs without execution counts, without colors, and without names that IPython derives from the code."""
    names = re.compile(r"In\[\d+\]|\d+\.py|\x1b\[[0-9;]*m")
    kept = []
    for output in outputs:
        fields = {key: value for key, value in output.items() if key != "execution_count"}
        if output["output_type"] == "error":
            fields["evalue"] = names.sub("", output["evalue"])
            fields["traceback"] = names.sub("", "\n".join(output["traceback"]))
        kept.append(fields)
    return kept
