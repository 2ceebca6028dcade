"""The table of routes. A route that is not here does not exist; nothing else names one."""

from __future__ import annotations

from gpumon_web.api import accounts, events, now, runs, series
from gpumon_web.api.route import ApiRoute

ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "status", "GPUs, processes and runs now",
        "The object that `gpumon status --json` prints, of the newest sample: docs/json.md has its keys.",
        "status", now.status,
    ),
    ApiRoute(
        "findings", "What needs attention now", "The findings of the newest sample, the most severe first.",
        "findings", now.findings, now.FINDINGS,
    ),
    ApiRoute(
        "users", "Users who hold GPUs now",
        "A user holds a GPU while a process of theirs is on it, or a running run of theirs claims it.",
        "users", now.users,
    ),
    ApiRoute(
        "series", "Metrics over time",
        "Lowest, mean and highest value of each stretch of a window, of up to 31 days. Where there is no value they "
        "are null, and `gaps` says why. Counters are rates.",
        "series", series.start, series.PARAMETERS, "this", has_missing=True,
    ),
    ApiRoute(
        "runs", "Runs, the newest first", "Runs of the ledger, as `gpumon runs list --json` has them, in pages.",
        "runs", runs.start_list, runs.LIST,
    ),
    ApiRoute(
        "run", "One run", "The run as `gpumon runs show --json` has it, without its epochs.",
        "run_whole", runs.start_one, runs.ONE, "this run", has_missing=True,
    ),
    ApiRoute(
        "epochs", "Epochs of a run, the oldest first", "As `gpumon runs show --json` has them, in pages.",
        "epochs", runs.start_epochs, runs.EPOCHS, "this run", has_missing=True,
    ),
    ApiRoute(
        "events", "Events of a window",
        "As `gpumon history events --json` has them, in pages: the newest first, each page in the order of time.",
        "events", events.start, events.PARAMETERS,
    ),
    ApiRoute(
        "accounts", "Users' time on the GPUs",
        "As `gpumon history accounts --json` has it, in whole hours: held, busy and idle time and energy of each user, "
        "with what is not known of holders, and the time of which nothing was seen.",
        "accounts", accounts.start, accounts.PARAMETERS,
    ),
)  # fmt: skip
