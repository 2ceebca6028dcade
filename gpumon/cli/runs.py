"""List, show, compare, report, export and change the runs that the daemon has recorded.

Without a subcommand, list the runs. RUN is the id or name of a run, or an unambiguous prefix of either. A name that
several runs have means the newest of them. 'last' is the newest run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.cli.daemon_lookup import why_no_runs, why_not_recording
from gpumon.cli.options import add_commands, add_places, resolve_options
from gpumon.cli.streams import output_width, print_json, print_lines, print_message, write_output
from gpumon.common.errors import EXIT_OK, GpumonError, LimitError, UsageError
from gpumon.common.paths import Places, history_beside, ledger_paths
from gpumon.live import follow
from gpumon.model import units
from gpumon.reports.run_export import FORMATS
from gpumon.storage.ledger.reader import NOTHING, Ledger, Ledgers, resolve_run
from gpumon.storage.ledger.records import Record, RunRow, RunSummary, RunTrace

if TYPE_CHECKING:
    from gpumon.common.config import Prices
    from gpumon.cost import Charge
    from gpumon.reports.compare_limits import Limit
    from gpumon.storage.ledger.change import LedgerChange


_Command = Callable[[Ledgers, argparse.Namespace, float], None]
"""Function of a subcommand. Its arguments are the ledgers, the parsed options and the current time (s since 1970)."""
_OWN_RUN = "id, name or unambiguous prefix of one of your runs; 'last' is the newest"


def _rename_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_OWN_RUN)
    parser.add_argument("new_name", metavar="NAME", help="new name; the id stays the same")


def _note_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_OWN_RUN)
    parser.add_argument(
        "text", metavar="TEXT", nargs="+", help="one line of text; your name and the time are kept with it"
    )


def _tag_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_OWN_RUN)
    parser.add_argument("tags", metavar="TAG", nargs="+", help="tags of the run, for 'gpumon runs list --tag'")
    parser.add_argument("--remove", action="store_true", help="remove these tags instead of adding them")


def _delete_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=_OWN_RUN)
    parser.add_argument("--yes", action="store_true", help="delete without asking")


def _rename(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    ledger, run = resolve_run(ledgers, arguments.run, now, print_message)
    with _changing(ledger) as change:
        change.rename(run, arguments.new_name)
    print(f"renamed {run.id}, which was '{run.name}'")


def _note(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    from gpumon.tracking.secrets import masked_text  # only this command uses it

    ledger, run = resolve_run(ledgers, arguments.run, now, print_message)
    with _changing(ledger) as change:
        change.note(run, masked_text(" ".join(arguments.text)), time.time_ns())
    print(f"added a note to {run.id}")


def _tag(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    ledger, run = resolve_run(ledgers, arguments.run, now, print_message)
    remove = getattr(arguments, "remove", False)
    with _changing(ledger) as change:
        change.tag(run, arguments.tags, remove=remove)
        tags = ", ".join(ledger.summary(run).tags)
    print(f"tags of {run.id}: {tags}" if tags else f"{run.id} has no tags now")


def _delete(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    """Delete runs, after all of them have been checked and the user has confirmed."""
    matches = {run.id: (ledger, run) for ledger, run in (_find_exact(ledgers, word, now) for word in arguments.runs)}
    hostname = os.uname().nodename
    for ledger, run in matches.values():
        with _changing(ledger) as change:
            change.may_delete(run, now, hostname)
    if not getattr(arguments, "yes", False) and not _is_confirmed(list(matches.values()), now):
        raise GpumonError("nothing was deleted")
    for ledger, run in matches.values():
        with _changing(ledger) as change:
            change.delete(run, now, hostname)
        print(f"deleted {run.id}")


def _changing(ledger: Ledger) -> LedgerChange:
    from gpumon.storage.ledger.change import LedgerChange  # not needed by `runs list` and `runs show`

    return LedgerChange(ledger.path, os.geteuid())


def _find_exact(ledgers: Ledgers, word: str, now: float) -> tuple[Ledger, RunRow]:
    """Return the run with this id, name or prefix, and its ledger. Raises UsageError if several runs have the name."""
    ledger, run = resolve_run(ledgers, word, now)
    if run.id != word:
        ids = [candidate.id for _, candidate in ledgers.candidates(word) if candidate.name == word]
        if len(ids) > 1:
            raise UsageError(f"{len(ids)} runs are named '{run.name}': pass ids, such as {ids[0]}")
    return ledger, run


def _is_confirmed(matches: list[tuple[Ledger, RunRow]], now: float) -> bool:
    """Print the runs and ask whether to delete them. Raises UsageError if stdin is not a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("deletion must be confirmed: pass --yes")
    for ledger, run in matches:
        done = ledger.summary(run).done
        epochs = "no epoch seen" if done is None else f"{units.count(done)} epochs ended"
        print(f"{run.id}: {run.name}, {units.age(run.started, now)}, {epochs}")
    runs = "this run" if len(matches) == 1 else f"these {len(matches)} runs"
    try:
        return input(f"Delete {runs} forever? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


_REPLACED = "overwritten if it exists"
_RUN = "id, name or unambiguous prefix of a run; 'last' is the newest"
_OF_LIST = ("user", "name", "running", "tag", "where", "limit")
"""Options that only `runs list` has. The parser accepts them before any subcommand."""
_WITH_JSON = ("show", "compare")
CARD_FORMATS = {
    "hf": "metadata for a model card on Hugging Face (YAML)",
    "spdx": "SPDX 3.0.1 with the AI profile (JSON-LD)",
    "cyclonedx": "CycloneDX 1.6 (JSON)",
}
"""Formats of `runs card`, with their help. The default is plain text."""
_MAX_LIMIT = 1 << 62
"""Largest limit of a list. A larger number would not fit into SQLite's integers."""
_DEFAULT_LIMIT = 50
"""Maximum number of runs in the list unless `--limit` is passed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(action="list")
    _list_options(parser)
    add_places(parser)
    add_commands(parser, {name: (text, options) for name, (text, options, _) in _COMMANDS.items()})


def _list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="USER", help="only runs of this user")
    parser.add_argument("--name", metavar="NAME", help="only runs whose name starts with NAME")
    parser.add_argument("--running", action="store_true", help="only running runs")
    parser.add_argument("--tag", metavar="TAG", action="append", help="only runs with this tag; repeatable")
    parser.add_argument(
        "--where",
        metavar="NAME=VALUE",
        action="append",
        help="only runs with this parameter, such as lr=0.1; repeatable",
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help=f"list at most N runs; 0 for all (default: {_DEFAULT_LIMIT})"
    )
    _json_option(parser)


def _show_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_RUN)
    parser.add_argument("--phases", action="store_true", help="add a row for each phase of an epoch")
    parser.add_argument("--ranks", action="store_true", help="add a table of the processes of a distributed run")
    parser.add_argument(
        "--tail", type=int, metavar="N", help="show only the last N epochs or rows of steps; totals still include all"
    )
    _json_option(parser)


def _compare_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=f"baseline: {_RUN}")
    parser.add_argument("others", metavar="OTHER", nargs="+", help="runs to compare with the baseline")
    parser.add_argument(
        "--fail-if", metavar="LIMIT", action="append", default=[], type=_limit,
        help="exit with 4 if a run differs clearly by more than LIMIT, such as energy_per_step>+5%%, in quotes "
        "(repeatable)",
    )  # fmt: skip
    _json_option(parser)


def _limit(text: str) -> Limit:
    from gpumon.reports.compare_limits import parse_limit

    try:
        return parse_limit(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_RUN)
    parser.add_argument("-o", "--output", metavar="FILE.html", required=True, help=f"output file ({_REPLACED})")


def _export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_RUN)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        required=True,
        help="; ".join(f"{name}: {kind.content}" for name, kind in FORMATS.items()),
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="", help=f"output file ({_REPLACED}); default: stdout"
    )


def _card_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_RUN)
    formats = parser.add_mutually_exclusive_group()
    for name, text in CARD_FORMATS.items():
        formats.add_argument(f"--{name}", dest="format", action="store_const", const=name, help=text)
    parser.add_argument(
        "--country", metavar="CODE",
        help="country of the electricity, such as FR, EU or WORLD (default: co2 in [cost] of the settings)",
    )  # fmt: skip
    parser.add_argument(
        "--fine-tuning", action="store_true", help="the run is a fine-tuning (default: training from scratch)"
    )


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs")


def run(arguments: argparse.Namespace) -> int:
    unused = () if arguments.action == "list" else _OF_LIST if arguments.action in _WITH_JSON else (*_OF_LIST, "json")
    for name in unused:
        value = getattr(arguments, name)
        if value is not None and value is not False:
            raise UsageError(f"'gpumon runs {arguments.action}' has no --{name}: omit it")
    places, arguments = resolve_options(arguments)
    with Ledgers(ledger_paths(places)) as ledgers:
        arguments.problem = problem = _ledger_problem(places)
        absent = "" if ledgers else why_no_runs(places)
        if absent and (arguments.action != "list" or not (problem or absent == NOTHING)):
            raise GpumonError(problem or absent)
        if problem:
            print_message(f"gpumon: {problem}")
        _COMMANDS[arguments.action][2](ledgers, arguments, time.time())
    return EXIT_OK


def _ledger_problem(places: Places) -> str:
    """Return why the running daemon does not record runs. Empty if it records them, or if no daemon is running."""
    live = follow(places)
    problem = live.not_kept()[0] or why_not_recording(live)
    live.close()
    return f"runs are not being recorded: {problem}" if problem else ""


def _list(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    limit = _DEFAULT_LIMIT if arguments.limit is None else min(arguments.limit, _MAX_LIMIT)
    if limit < 0:
        raise UsageError(f"--limit must be 0 or more, not {limit}")
    tags, parameters = arguments.tag or (), [_parse_parameter(text) for text in arguments.where or ()]
    rows = ledgers.runs_with_ledger(
        user=arguments.user or "", name=arguments.name or "", running=arguments.running, limit=limit and limit + 1,
        tags=tags, where=parameters,
    )  # fmt: skip
    has_more, rows = bool(limit) and len(rows) > limit, rows[: limit or None]
    runs, prices = [run for _, run in rows], arguments.prices
    if arguments.json:
        from gpumon.reports.run_json import listing

        print_json(listing(runs, now, prices, _costs(rows, prices)))
    elif runs:
        from gpumon.reports.run_list import lines

        print_lines(lines(runs, now, output_width(), prices, _costs(rows, prices)))
        if has_more:
            print(f"Only the newest {limit} are listed; --limit 0 lists all.")
    else:
        is_filtered = arguments.user or arguments.name or arguments.running or tags or parameters
        if (is_filtered and ledgers) or not arguments.problem:  # otherwise, the printed problem may be the reason
            print("no matching runs; 'gpumon runs' lists all" if is_filtered and ledgers else NOTHING)


def _costs(rows: Sequence[tuple[Ledger, RunSummary]], prices: Prices | None) -> Mapping[str, Charge] | None:
    """Return the cost of each listed run by its id; None if no prices are configured.

    Without prices, no record is read. Computing a cost requires the full record of the run.
    """
    if prices is None:
        return None
    from gpumon.cost import price_record

    costs = {}
    for ledger, listed in rows:
        with suppress(GpumonError):  # the run may have been deleted since it was listed
            costs[listed.run.id] = price_record(ledger.record(listed.run.id, phases=False), prices)
    return costs


def _parse_parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--where takes NAME=VALUE, such as lr=0.1, not '{text}'")
    return name, value


def _show(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    phases, ranks = (getattr(arguments, name, False) for name in ("phases", "ranks"))
    tail = getattr(arguments, "tail", None)
    if tail is not None and tail < 1:
        raise UsageError(f"--tail must be 1 or more, not {tail}")
    ledger, run = resolve_run(ledgers, arguments.run, now, print_message)
    record = ledger.record(run.id, phases=phases or arguments.json, times=True)
    if arguments.json:
        from gpumon.reports.run_json import run_document

        print_json(run_document(record, now, arguments.prices))
    else:
        from gpumon.reports.run_text import lines

        print_lines(lines(record, now, output_width(), phases=phases, ranks=ranks, tail=tail, prices=arguments.prices))


def _compare(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    from gpumon.reports import compare, gains
    from gpumon.reports.text_table import wrapped

    records = []
    for word in (arguments.run, *arguments.others):
        ledger, run = resolve_run(ledgers, word, now, print_message)
        records.append(ledger.record(run.id, phases=False, times=True))
    comparison = compare.compare(records)
    if arguments.json:
        print_json({**compare.document(comparison), "gains": gains.gains_json(gains.compare_gains(records))})
    else:
        width = output_width()
        print_lines(compare.lines(comparison, width))
        for line in gains.gain_lines(gains.compare_gains(records), compare.letters(len(records))):
            print_lines(wrapped([line], width))
    if arguments.fail_if:
        from gpumon.reports.compare_limits import broken_limits

        sys.stdout.flush()
        if broken := list(broken_limits(comparison, arguments.fail_if)):
            raise LimitError(". ".join(broken))


def _report(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    from gpumon.reports.html import page
    from gpumon.storage.history.open import open_history

    ledger, record, traces = _read_run(ledgers, arguments.run, now)
    history = open_history()
    history.set_path(history_beside(ledger.path))
    html = page(record, traces, now, history, arguments.prices)
    history.close()
    _write(arguments.output, html.encode())
    print(f"wrote {arguments.output}")


def _export(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    kind = FORMATS[arguments.format]
    if kind.is_binary and arguments.output in ("", "-"):
        raise UsageError(f"{arguments.format} is binary: pass -o FILE")
    _, record, traces = _read_run(ledgers, arguments.run, now)
    _write(arguments.output, kind.make(record, traces, now, arguments.prices))


def _card(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    from gpumon.reports.run_card import make_card, render

    ledger, run = resolve_run(ledgers, arguments.run, now, print_message)
    card = make_card(
        ledger.record(run.id), now, arguments.prices, getattr(arguments, "country", "") or "",
        is_fine_tuning=getattr(arguments, "fine_tuning", False),
    )  # fmt: skip
    sys.stdout.write(render(card, getattr(arguments, "format", "") or ""))


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], _Command]] = {
    "list": ("list runs, newest first: user, duration, epochs, energy", _list_options, _list),
    "show": ("show one run: epochs, totals and problems", _show_options, _show),
    "compare": (
        "compare runs and mark differences larger than the variation between epochs", _compare_options, _compare,
    ),
    "report": ("write one run as a self-contained HTML page", _report_options, _report),
    "export": ("export one run as CSV, JSON or Parquet", _export_options, _export),
    "card": ("print energy and emissions of one run for a model card", _card_options, _card),
    "rename": ("give one of your runs another name", _rename_options, _rename),
    "note": ("add a note, a line of text, to one of your runs", _note_options, _note),
    "tag": ("add or remove tags of one of your runs", _tag_options, _tag),
    "delete": ("delete your runs that have ended", _delete_options, _delete),
}  # fmt: skip
"""Help, options and function of each subcommand."""


def _read_run(ledgers: Ledgers, word: str, now: float) -> tuple[Ledger, Record, list[RunTrace]]:
    ledger, run = resolve_run(ledgers, word, now, print_message)
    return ledger, ledger.record(run.id), ledger.traces(run.id)


def _write(path: str, content: bytes) -> None:
    if path in ("", "-"):
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    write_output(path, content)
