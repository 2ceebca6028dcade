"""The time limit of a run: from `gpumon run --time-limit` and from Slurm."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpumon.cli import main
from gpumon.common.clock import later_time
from gpumon.common.errors import EXIT_USAGE, UsageError
from gpumon.tracking.context import time_limit

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("env", "limit"),
    [
        ({}, 0.0),
        ({"SLURM_JOB_END_TIME": "1700003600"}, 1_700_003_600.0),
        ({"GPUMON_TIME_LIMIT": "1700000060", "SLURM_JOB_END_TIME": "1700003600"}, 1_700_000_060.0),
        ({"SLURM_JOB_END_TIME": "NONE"}, 0.0), ({"SLURM_JOB_END_TIME": ""}, 0.0), ({"SLURM_JOB_END_TIME": "-1"}, 0.0),
        ({"SLURM_JOB_END_TIME": "9" * 400}, 0.0), ({"SLURM_JOB_END_TIME": "١٧"}, 0.0),
    ],
)  # fmt: skip
def test_the_earliest_time_limit_is_used(env: dict[str, str], limit: float) -> None:
    assert time_limit(env) == limit


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8h", NOW + 8 * 3600), ("90s", NOW + 90), (datetime.fromtimestamp(NOW + 60, UTC).isoformat(), NOW + 60)],
)
def test_a_time_limit_is_a_duration_or_a_date(text: str, expected: float) -> None:
    assert later_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "0", "8", "nan", "soon", "tomorrow", "0h", "-1h", "nanh", "2020-01-01"])
def test_invalid_and_past_time_limits_are_errors(text: str) -> None:
    with pytest.raises(UsageError) as error:
        later_time(text, NOW)
    assert "7d" not in str(error.value)  # 7 days ago for other options


def test_a_wrong_limit_is_refused_before_the_command_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--time-limit", "soon", "--", "false"]) == EXIT_USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1
