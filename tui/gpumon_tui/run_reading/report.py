"""The report of a run, written into a new file."""

from __future__ import annotations

import os

from gpumon.common.errors import GpumonError
from gpumon.common.paths import history_beside
from gpumon.reports.html import page
from gpumon.storage.history.open import open_history
from gpumon.storage.ledger.reader import Ledger

_LETTERS = 80
"""Of the name of a report's file."""


def write_report(ledger: Ledger, run_id: str, now: float, directory: str) -> str:
    """Write the page of `gpumon runs report` into a directory, in a file that is new; its path."""
    record = ledger.record(run_id)
    history = open_history()
    history.set_path(history_beside(ledger.path))
    try:
        made = page(record, ledger.traces(run_id), now, history)
    finally:
        history.close()
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in record.run.id)[:_LETTERS]
    number = 1
    while True:
        path = os.path.join(directory, f"gpumon-{plain.lstrip('.')}{f'-{number}' if number > 1 else ''}.html")
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(made)
            return path
        except FileExistsError:
            number += 1
        except OSError as error:
            where = f"start gpumon where you may write, or use 'gpumon runs report {record.run.id} -o FILE'"
            raise GpumonError(f"cannot write {path}: {error.strerror or error}; {where}") from error
