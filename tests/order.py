"""In which order test files run: one that takes long does not begin when all others are nearly done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

LONG_FILES = (
    "integration/test_auto.py", "integration/test_loggers.py", "integration/test_callback_keras.py",
    "integration/test_examples_ranks.py", "tui/test_runs_page.py", "tui/test_golden_screens.py",
    "integration/test_ranks_joined.py", "integration/test_faults.py", "integration/test_examples.py",
    "integration/test_between_truth.py", "tui/test_processes_page.py", "integration/test_daemon.py",
    "integration/test_truth.py", "integration/test_gpm.py", "integration/test_run_command.py",
    "integration/test_status.py", "integration/test_whole_runs.py", "tui/test_first_picture.py",
    "unit/test_history_columns.py", "tui/test_unknown_values.py", "integration/test_totals_truth.py",
    "engines/test_scraped.py", "tui/test_terminal.py", "tui/test_screen.py",
    "tui/test_header.py", "integration/test_outputs.py", "integration/test_top.py", "integration/test_ledger.py",
    "tui/test_events_page.py", "tui/test_chart_page.py", "tui/test_guard.py", "unit/test_sim.py",
    "web/test_trainings.py", "web/test_matrix_made.py", "web/test_matrix_real.py", "web/test_page_states.py",
    "web/test_notifications.py", "web/test_page_unknown.py", "web/test_pages.py", "web/test_player.py",
    "web/test_recordings.py",
)  # fmt: skip
"""Files below tests/ that take ten seconds and more, the longest first."""


def arranged(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests file by file, those that share a browser behind all others: it keeps an event loop in its worker."""
    with_browser = {_file(item) for item in items if _shares_browser(item)}
    rank = {name: place for place, name in enumerate(LONG_FILES)}
    # Sorting keeps the order of those that are equal.
    return sorted(items, key=lambda item: (_file(item) in with_browser, rank.get(_file(item), len(LONG_FILES))))


def _shares_browser(item: pytest.Item) -> bool:
    return item.path.parent.name == "web" and "browser" in getattr(item, "fixturenames", ())


def _file(item: pytest.Item) -> str:
    return f"{item.path.parent.name}/{item.path.name}"
