"""In which order test files run: one that takes long does not begin when all others are nearly done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

LONG_FILES = (
    "tui/test_golden_screens.py", "tui/test_runs_page.py", "integration/test_callback_keras.py",
    "integration/test_run_command.py", "web/test_serve.py", "integration/test_ranks_joined.py",
    "integration/test_examples.py", "integration/test_outputs.py", "integration/test_auto.py",
    "integration/test_framework_memory.py", "integration/test_daemon.py", "integration/test_loggers.py",
    "engines/test_dashboards.py", "integration/test_totals_truth.py", "integration/test_doctor.py",
    "integration/test_slow_calls.py", "web/test_positions.py", "engines/test_told.py",
    "integration/test_without_frameworks.py", "integration/test_between_truth.py", "integration/test_status_hung.py",
    "tui/test_chart_page.py", "tui/test_accounts.py", "integration/test_truth.py", "integration/test_run_api.py",
    "unit/test_history_columns.py", "tui/test_screen.py", "engines/test_node_gaps.py",
    "integration/test_examples_ranks.py", "tui/test_header.py", "engines/test_clock_changes.py",
    "tui/test_terminal.py", "integration/test_mig.py", "web/test_api.py",
    "tui/test_processes_page.py", "integration/test_driver_faults.py", "integration/test_record.py",
    "unit/test_window.py", "integration/test_tagging.py", "unit/test_recording_positions.py", "unit/test_recording.py",
    "engines/test_cluster_reader.py", "integration/test_gpm.py", "tui/test_unknown_values.py",
    "integration/test_lost_at_start.py", "unit/test_history_earlier.py", "unit/test_exporter_exact.py",
    "engines/test_tariff_borders.py", "integration/test_ledger.py", "integration/test_daemon_control.py",
    "integration/test_jobs.py", "unit/test_kept_frames.py", "integration/test_nvml_codes.py",
    "integration/test_ledger_of_root.py", "integration/test_status.py", "integration/test_callback_transformers.py",
    "web/test_run_values.py", "tui/test_events_page.py", "unit/test_gpm.py", "integration/test_tags_reader.py",
    "integration/test_whole_runs.py", "integration/test_callback_lightning.py", "integration/test_config_recorded.py",
    "unit/test_sim.py", "integration/test_nvml_states.py", "engines/test_exact.py", "integration/test_replay_truth.py",
    "unit/test_history_damage.py", "integration/test_top.py", "integration/test_completion.py",
    "unit/test_history_clock.py", "web/test_work.py", "unit/test_history_tiers.py", "unit/test_past.py",
    "integration/test_service.py", "engines/test_rules.py", "engines/test_cost.py", "integration/test_activity.py",
    "integration/test_nvml_fields.py", "unit/test_history_recorder.py", "web/test_named_tokens.py",
    "unit/test_step_rows.py", "integration/test_callbacks_tabular.py", "integration/test_runs_command.py",
    "integration/test_export.py", "engines/test_scraped.py", "integration/test_faults.py",
    "integration/test_counter_truth.py", "web/test_page_routes.py", "integration/test_callbacks_engines.py",
    "web/test_scripts.py",
    "web/test_page_states.py", "web/test_matrix_real.py", "web/test_first_screen.py", "web/test_matrix_made.py",
    "web/test_unreadable.py", "web/test_pages.py", "web/test_firefox.py", "web/test_player.py",
    "web/test_notifications.py", "web/test_page_unknown.py", "web/test_compare.py", "web/test_users_page.py",
    "web/test_cluster_looks.py", "web/test_recordings.py", "web/test_cluster_faults.py", "web/test_trainings.py",
    "web/test_tick_work.py", "web/test_page_modules.py", "web/test_run_zoom.py", "web/test_claims.py",
    "web/test_month.py", "web/test_signing_in.py", "web/test_time_zones.py", "web/test_print.py",
    "web/test_events_page.py", "web/test_csv.py", "web/test_proxy.py", "web/test_whole_runs.py",
    "web/test_unknown_values.py", "web/test_hostile.py", "web/test_holder_words.py", "web/test_run_noted.py",
    "web/test_chart_text.py", "web/test_run_choice.py", "web/test_focus.py",
)  # fmt: skip
"""Files below tests/ that take long, the longest first; those with a browser stand behind all others.

Files that mostly wait stand between those that compute: all at once they would leave the processors nothing to do.
"""


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
