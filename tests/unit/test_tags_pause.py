"""A paused run has ended, unless a phase or an epoch continues it."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import gpumon
from gpumon.model.frame import Mark, RunState
from gpumon.tracking.active_run import ActiveRun
from gpumon.tracking.lifetime import close_all
from gpumon.tracking.tag_reader import Poll


def trained() -> ActiveRun:
    run = gpumon.run("net", epochs=1)
    run.must_end()
    run.begin_epoch(0)
    run.pause()
    return run


def test_a_paused_run_has_finished_at_the_time_of_the_pause(look: Callable[[], Poll]) -> None:
    run = trained()
    (paused,) = look().runs
    assert (paused.state, paused.phase) == (RunState.RUNNING, "paused")
    close_all()
    poll = look()
    assert poll.runs[0].state is RunState.FINISHED
    assert not run.on
    (end,) = poll.boundaries
    assert end.mark is Mark.RUN_END
    assert end.time_ns / 1e9 <= paused.updated


def test_a_phase_continues_a_paused_run(look: Callable[[], Poll]) -> None:
    run = trained()
    assert run.begin_phase("validate") == "paused"
    run.log({"val_loss": 0.5})
    run.end(ValueError())
    poll = look()
    assert poll.runs[0].state is RunState.FAILED
    assert [b.phase for b in poll.boundaries] == ["", "train", "", "paused", "validate", "validate", ""]


def test_an_epoch_continues_a_paused_run(look: Callable[[], Poll]) -> None:
    run = trained()
    run.begin_epoch(1)
    assert look().runs[0].phase == "train"
    run.end()


def test_a_plan_does_not_replace_earlier_plans(look: Callable[[], Poll]) -> None:
    with gpumon.run("net", epochs=3) as run:
        run.plan(epochs=9, steps=-1)
        run.plan(steps=300.0)
        run.plan(steps=400)
        (found,) = look().runs
        assert (found.epochs, found.facts.planned_steps) == (3, 300)
    with gpumon.run("net", steps=12) as run:
        run.plan(epochs=2, steps=5)
        found = look().runs[-1]
        assert (found.epochs, found.facts.planned_steps) == (2, 12)


def test_an_invalid_plan_is_ignored(look: Callable[[], Poll]) -> None:
    with gpumon.run("net", steps=-1):
        assert look().runs[0].facts.planned_steps == 0


def test_the_end_of_a_run_has_its_cpu_time(look: Callable[[], Poll]) -> None:
    with gpumon.run("net"):
        assert look().runs[0].facts.cpu_seconds == 0.0
        until = process_time() + 0.1
        while process_time() < until:
            pass
    assert look().runs[0].facts.cpu_seconds >= 0.08
