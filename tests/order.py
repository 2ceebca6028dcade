"""In which order test files run: one that takes long does not begin when all others are nearly done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

LONG_FILES = (
    "tui/test_golden_screens.py", "tui/test_runs_page.py", "integration/test_callback_keras.py", "web/test_serve.py",
    "integration/test_ranks_joined.py", "integration/test_examples.py", "integration/test_outputs.py",
    "integration/test_auto.py", "integration/test_daemon.py", "integration/test_loggers.py",
    "integration/test_totals_truth.py", "web/test_positions.py", "integration/test_without_frameworks.py",
    "integration/test_between_truth.py", "tui/test_chart_page.py", "integration/test_truth.py",
    "unit/test_history_columns.py", "tui/test_screen.py", "integration/test_examples_ranks.py",
    "integration/test_run_command.py", "tui/test_header.py", "tui/test_first_picture.py", "tui/test_terminal.py",
    "web/test_api.py", "tui/test_processes_page.py", "integration/test_record.py", "unit/test_window.py",
    "unit/test_recording_positions.py", "unit/test_recording.py", "integration/test_gpm.py",
    "tui/test_unknown_values.py", "unit/test_history_earlier.py", "unit/test_exporter_exact.py",
    "integration/test_ledger.py", "integration/test_daemon_control.py", "unit/test_kept_frames.py",
    "integration/test_nvml_codes.py", "integration/test_status.py", "integration/test_callback_transformers.py",
    "tui/test_events_page.py", "unit/test_gpm.py", "integration/test_whole_runs.py",
    "integration/test_callback_lightning.py", "unit/test_sim.py", "integration/test_nvml_states.py",
    "integration/test_replay_truth.py", "unit/test_history_damage.py", "integration/test_top.py",
    "unit/test_history_clock.py", "unit/test_history_tiers.py", "unit/test_past.py", "engines/test_rules.py",
    "engines/test_cost.py", "integration/test_nvml_fields.py", "unit/test_history_recorder.py",
    "web/test_named_tokens.py", "unit/test_step_rows.py", "integration/test_callbacks_tabular.py",
    "integration/test_runs_command.py", "integration/test_export.py", "engines/test_scraped.py",
    "integration/test_faults.py", "integration/test_counter_truth.py", "web/test_page_routes.py",
    "integration/test_callbacks_engines.py", "web/test_scripts.py", "web/test_claims.py", "web/test_page_modules.py",
    "web/test_matrix_made.py", "web/test_matrix_real.py", "web/test_firefox.py", "web/test_page_states.py",
    "web/test_page_unknown.py", "web/test_pages.py",
    "web/test_first_screen.py", "web/test_notifications.py", "web/test_player.py",
    "web/test_users_page.py", "web/test_unreadable.py", "web/test_compare.py", "web/test_cluster_faults.py",
    "web/test_print.py", "web/test_trainings.py", "web/test_recordings.py", "web/test_time_zones.py",
    "web/test_cluster_looks.py", "web/test_tick_work.py", "web/test_signing_in.py", "web/test_csv.py",
    "web/test_proxy.py", "web/test_run_zoom.py", "web/test_hostile.py", "web/test_events_page.py",
    "web/test_whole_runs.py", "web/test_month.py", "web/test_chart_text.py", "web/test_run_noted.py",
    "web/test_holder_words.py", "web/test_focus.py", "web/test_run_choice.py", "web/test_unknown_values.py",
)  # fmt: skip
"""Files below tests/ that take long, the longest first; those with a browser stand behind all others."""


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
