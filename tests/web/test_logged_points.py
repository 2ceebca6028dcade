"""What a run logged, by time: up to the end that the epochs have, and nothing of an epoch that logged nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState
from tests.runs import BEGAN, GIB, Book, training, uuid_of
from tests.web.charted import points
from tests.web.served import Served


def chart(
    path: Path, losses: Sequence[float | None], seen: Sequence[float], state: RunState, *, late: int = 0
) -> dict[str, Any]:
    """The chart of a run whose epochs of 10 s logged these losses; `seen`: the loss of each second.

    All epochs of a finished run ended, of others the last one did not. Each moment lies `late` ns behind its second.
    """
    with Book(path) as book:
        zero = BEGAN * SECOND + late
        ended = None if state is RunState.RUNNING else zero + len(seen) * SECOND
        rank = book.rank(book.run("net-1a2b", started=zero, ended=ended, state=state), state=state)
        for ordinal, loss in enumerate(losses):
            begun = zero + 10 * ordinal * SECOND
            is_over = ordinal < len(losses) - 1 or state is RunState.FINISHED
            book.epoch(rank, ordinal, begun=begun, ended=begun + 10 * SECOND if is_over else None, seconds=10.0,
                       metrics="{}" if loss is None else f'{{"loss": {loss}}}')  # fmt: skip
        book.trace(rank, "", {"loss": [(value,) * 3 for value in seen]}, begun=zero)
        served = Served((), [str(book.path)])
    found: dict[str, Any] = served.json("/api/kept?page=run&id=net-1a2b")["figures"]["course"]
    return found


@pytest.mark.parametrize("late", [400_000, 500_001, 600_000, 999_999])
def test_the_loss_of_the_last_epoch_lies_within_the_chart_whatever_part_of_a_millisecond_it_ended_at(
    tmp_path: Path, late: int
) -> None:
    found = chart(tmp_path, [2.0, 1.0], [2.0] * 20, RunState.FINISHED, late=late)
    *_, (time, loss) = points(found, "logged.loss")
    assert loss == 1.0
    assert found["begin"] < time <= found["end"]
    ((_, held_until, _),) = found["held"]
    assert time <= held_until, "it has the color of its user"


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.DIED, RunState.RUNNING])
def test_an_epoch_that_logged_nothing_has_no_value_though_samples_still_see_that_of_the_one_before(
    tmp_path: Path, state: RunState
) -> None:
    found = chart(tmp_path, [2.0, 1.0, None], [2.0] * 20 + [1.0] * 10, state)
    after = [(round(time - BEGAN), loss) for time, loss in points(found, "logged.loss") if time >= BEGAN + 10]
    assert after == [(10, 2.0), (20, 1.0)]


def test_the_last_value_is_that_of_the_last_epoch_though_a_rank_died_in_an_earlier_one(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        ended = (BEGAN + 40) * SECOND
        book.run("net-1a2b", started=BEGAN * SECOND, ended=ended, state=RunState.DIED, world_size=2, epochs=4)
        first = book.rank("net-1a2b", 0, state=RunState.FINISHED, ended=ended)
        died = book.rank("net-1a2b", 1, state=RunState.DIED, ended=(BEGAN + 15) * SECOND)
        for ordinal, loss in enumerate((1.0, 0.5, 0.375, 0.25)):
            book.epoch(first, ordinal, metrics=json.dumps({"loss": loss}))
        book.epoch(died, 0)
        book.epoch(died, 1, ended=None, seconds=5.0)
        seen = [*[1.0] * 20, *[0.5] * 10, *[0.375] * 10]
        book.trace(first, "", {"loss": [(value,) * 3 for value in seen]}, begun=BEGAN * SECOND)
        served = Served((), [str(book.path)])
    found = served.json("/api/kept?page=run&id=net-1a2b")["figures"]["course"]
    assert points(found, "logged.loss")[-1] == (BEGAN + 40, 0.25)


def test_a_constant_that_an_open_epoch_logs_anew_is_drawn_up_to_its_newest_sample(tmp_path: Path) -> None:
    found = chart(tmp_path, [2.0, 2.0, 2.0], [2.0] * 30, RunState.RUNNING)
    assert points(found, "logged.loss")[-1] == (BEGAN + 29.5, 2.0)


def test_a_new_value_of_an_open_epoch_is_drawn_from_where_it_was_logged(tmp_path: Path) -> None:
    found = chart(tmp_path, [2.0, 1.0, 0.5], [2.0] * 20 + [1.0] * 5 + [0.5] * 5, RunState.RUNNING)
    after = [(time - BEGAN, loss) for time, loss in points(found, "logged.loss") if time > BEGAN + 20]
    assert after[-1] == (29.5, 0.5)


def test_the_mean_that_an_epoch_logs_by_the_name_of_its_steps_is_a_mark_and_no_tooth_in_their_line(
    tmp_path: Path,
) -> None:
    steps = [3.0 - 0.05 * second for second in range(30)]
    seen = [*steps[:8], 2.83, 2.83, *steps[10:18], 2.37, 2.37, *steps[20:]]  # it validates for 2 s, and then goes on
    found = chart(tmp_path, [2.83, 2.37, None], seen, RunState.RUNNING)
    losses = [loss for _, loss in points(found, "logged.loss") if loss is not None]
    assert losses == sorted(losses, reverse=True)
    assert not {2.83, 2.37} & {*losses}
    (panel,) = [one for one in found["panels"] if one["key"] == "logged.loss"]
    _, at_end = panel["lines"]
    assert (at_end["label"], at_end["look"], at_end["mean"]) == ("loss, end of epoch", "dots", [2.83, 2.37])


def told(found: dict[str, Any]) -> list[float | None]:
    """The line of a loss without points that say what the one before says."""
    losses = [loss for _, loss in points(found, "logged.loss")]
    return [loss for place, loss in enumerate(losses) if place == 0 or loss != losses[place - 1]]


def test_a_value_within_each_epoch_and_one_at_its_end_are_never_joined_however_few_they_are(tmp_path: Path) -> None:
    seen = [*[math.nan] * 2, *[3.0] * 6, *[2.0] * 5, *[2.6] * 5, *[1.9] * 2]
    found = chart(tmp_path, [2.0, 1.9], seen, RunState.FINISHED)
    assert told(found) == [3.0, 2.6]
    (panel,) = [one for one in found["panels"] if one["key"] == "logged.loss"]
    assert (panel["lines"][1]["look"], panel["lines"][1]["mean"]) == ("dots", [2.0, 1.9])


def test_what_may_be_of_a_step_or_of_an_epoch_is_joined_to_nothing_while_no_epoch_shows_which(tmp_path: Path) -> None:
    only = chart(tmp_path / "one", [2.0], [*[3.0] * 8, *[2.0] * 2], RunState.FINISHED)
    assert told(only) == [3.0, None, 2.0]
    goes_on = chart(tmp_path / "two", [2.0, None], [*[math.nan] * 9, *[2.0] * 5, *[1.7] * 6], RunState.RUNNING)
    assert told(goes_on) == [2.0, None, 1.7]


def test_a_value_of_an_epoch_that_comes_some_time_after_its_end_makes_none_of_steps(tmp_path: Path) -> None:
    seen = [*[math.nan] * 12, *[3.0] * 10, *[2.0] * 8]  # each is seen two seconds after its epoch
    found = chart(tmp_path, [3.0, 2.0, 1.0], seen, RunState.FINISHED)
    (panel,) = [one for one in found["panels"] if one["key"] == "logged.loss"]
    assert len(panel["lines"]) == 1
    assert told(found) == [3.0, 2.0, 1.0]


@pytest.mark.parametrize("has_samples", [True, False])
def test_no_line_leads_from_before_an_epoch_that_broke_off_to_behind_it(tmp_path: Path, has_samples: bool) -> None:
    with Book(tmp_path) as book:
        end = (BEGAN + 30) * SECOND
        rank = book.rank(book.run("net-1a2b", ended=end, state=RunState.FINISHED), ended=end, state=RunState.FINISHED)
        book.epoch(rank, 0, metrics='{"loss": 2.0}')
        book.epoch(rank, 1, ended=None, metrics="{}")
        book.epoch(rank, 2, epoch=1, metrics='{"loss": 1.0}')
        if has_samples:
            book.trace(rank, "", {"loss": [(2.0,) * 3] * 25 + [(1.0,) * 3] * 5})
        found = Served((), [str(book.path)]).json("/api/kept?page=run&id=net-1a2b")["figures"]["course"]
    after = [(time - BEGAN, loss) for time, loss in points(found, "logged.loss") if time >= BEGAN + 9.75]
    assert after[:2] == [(10.0, 2.0), (20.0, None)]
    assert after[-1] == (30.0, 1.0)


def test_the_mean_of_a_whole_run_is_the_one_of_its_headline_and_a_line_without_values_is_none(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3, utilization=0.36, course=False)
        (key,) = (row[0] for row in book.db.execute("SELECT key FROM rank"))
        nothing = (math.nan,) * 3
        columns = {"gpu.utilization": [(0.33,) * 3] * 35, "gpu.memory_used": [(4e9,) * 3] * 35,
                   "gpu.run_allocated": [nothing] * 35}  # fmt: skip
        book.trace(key, uuid_of(0), columns)
        found = Served((), [str(book.path)]).json("/api/kept?page=run&id=net-1a2b")
    panels = {one["key"]: one for one in found["figures"]["course"]["panels"]}
    assert f"{panels['gpu.utilization']['whole']:.0%}".replace("%", " %") == found["values"]["utilization"] == "36 %"
    assert len(panels["gpu.memory_used"]["lines"]) == 1


def test_watts_and_peaks_beside_the_chart_of_a_run_are_those_of_all_its_samples(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3, gpus=2)
        served = Served((), [str(book.path)])
    found = served.json("/api/kept?page=run&id=net-1a2b")
    panels = {one["key"]: one for one in found["figures"]["course"]["panels"]}
    assert f"{panels['gpu.power']['whole']:,.0f} W on average" == found["values"]["power"] == "1,000 W on average"
    assert panels["gpu.memory_used"]["whole"] == 42 * GIB
    assert panels["gpu.temperature"]["whole"] == 66.0
    one = served.json(f"/api/kept?page=run&id=net-1a2b&gpu={uuid_of(1)}")["figures"]["course"]["panels"]
    assert not any("whole" in panel for panel in one), "one GPU of several is not the whole"


def test_a_loss_that_is_no_number_any_more_is_told_since_when_and_marked_once_however_many_epochs_it_lasts(
    tmp_path: Path,
) -> None:
    losses = [2.0, 1.0, *[math.nan] * 30]
    with Book(tmp_path) as book:
        end = (BEGAN + 10 * len(losses)) * SECOND
        rank = book.rank(book.run("net-1a2b", ended=end, state=RunState.FINISHED), ended=end, state=RunState.FINISHED)
        for ordinal, loss in enumerate(losses):
            begun = (BEGAN + 10 * ordinal) * SECOND
            book.epoch(rank, ordinal, begun=begun, ended=begun + 10 * SECOND, seconds=10.0,
                       metrics=json.dumps({"loss": loss}))  # fmt: skip
        served = Served((), [str(book.path)])
        found = served.json("/api/kept?page=run&id=net-1a2b")["figures"]["course"]
    (panel,) = [one for one in found["panels"] if one["key"] == "logged.loss"]
    assert panel["lines"][0]["odd"] == [BEGAN + 30, "NaN"]
    assert [(one["time"] - BEGAN, one["text"]) for one in found["events"]] == [(30.0, "loss is NaN")]


def test_a_loss_that_is_a_number_again_is_none_that_was_not(tmp_path: Path) -> None:
    found = chart(tmp_path, [2.0, None, 1.0], [2.0] * 10 + [math.nan] * 10 + [1.0] * 10, RunState.FINISHED)
    (panel,) = [one for one in found["panels"] if one["key"] == "logged.loss"]
    assert "odd" not in panel["lines"][0]


def test_what_epochs_logged_while_nothing_was_sampled_is_drawn_where_they_ended(tmp_path: Path) -> None:
    losses = [4.0, 3.0, 2.0, 1.5, 1.0]
    seen = [*[math.nan] * 10, *[4.0] * 5, *[math.nan] * 28, *[1.5] * 7]  # no daemon from second 15 to 43
    found = chart(tmp_path, losses, seen, RunState.FINISHED)
    told = {round(time - BEGAN): loss for time, loss in points(found, "logged.loss") if loss is not None}
    assert [told.get(second) for second in (10, 20, 30, 40, 50)] == losses


def test_the_time_that_a_chart_hatches_is_what_no_gpu_was_sampled_in_and_no_epoch_of_it(tmp_path: Path) -> None:
    nothing = math.nan
    with Book(tmp_path) as book:
        end = (BEGAN + 60) * SECOND
        rank = book.rank(book.run("net-1a2b", ended=end, state=RunState.FINISHED), ended=end, state=RunState.FINISHED)
        for ordinal, loss in enumerate((3.0, 2.0, 1.0)):
            begun = (BEGAN + 20 * ordinal) * SECOND
            book.epoch(
                rank, ordinal, begun=begun, ended=begun + 20 * SECOND, seconds=20.0, metrics=f'{{"loss": {loss}}}'
            )
        for gpu, missed in enumerate(((25, 32), (26, 45))):
            seen = [nothing if missed[0] <= second < missed[1] else 0.5 for second in range(50)]
            book.trace(rank, book.device(rank, gpu), {"gpu.memory_used": [(value,) * 3 for value in seen]})
        served = Served((), [str(book.path)])
        found = served.json("/api/kept?page=run&id=net-1a2b")["figures"]["course"]
    assert found["unseen"] == [[BEGAN + 26, BEGAN + 32], [BEGAN + 50, BEGAN + 60]]
