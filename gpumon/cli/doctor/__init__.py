"""Check driver, GPUs, daemon, files and packages, and suggest fixes.

The first line says whether GPUs can be read, and if not, why. Nothing is changed, and a hanging driver is left alone.
The exit code is 3 if no GPU can be read, 1 for another fault, and 0 if there are only warnings or none.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.cli.doctor.bundle import write_bundle
from gpumon.cli.doctor.computing import FRAMEWORKS, framework_checks
from gpumon.cli.doctor.environment import environment_checks
from gpumon.cli.doctor.files import daemon_checks, file_checks, running_daemon
from gpumon.cli.doctor.gpus import GPUS, check_gpus
from gpumon.cli.doctor.host import host_checks
from gpumon.cli.doctor.kernel_log import kernel_log_checks
from gpumon.cli.doctor.machine import Machine
from gpumon.cli.doctor.packages import package_checks
from gpumon.cli.options import add_places, chosen_source, reads_hardware, refuse_empty, resolve_options
from gpumon.cli.streams import terminal_width
from gpumon.common.check_result import Check, CheckSection, Condition
from gpumon.common.errors import EXIT_FAILED, EXIT_NO_GPU, EXIT_OK, UsageError
from gpumon.common.paths import places as default_places
from gpumon.common.program import callable_commands
from gpumon.common.text import clean, wrap_words
from gpumon.model.units import counted
from gpumon.sources.registry import examine_hardware

if TYPE_CHECKING:
    from argparse import ArgumentParser


_NAME_WIDTH = 14
"""Cells for the name of a check."""
_REMEDY = "→ "
_MIN_TEXT_WIDTH = 30
"""Minimum width of a text next to its name, in terminal cells. If there is less room, the text starts on the next
line."""
_INDENT = 4
_MAX_TEXT = 1024


def lines(sections: Sequence[CheckSection], first: str, width: int) -> Iterator[str]:
    """Yield `first`, then each section; `width` in cells, 0 for no limit."""
    yield from _wrap("", first, width)
    for section in sections:
        if not section.checks:
            continue
        yield ""
        yield section.title
        for check in section.checks:
            head = f"  {check.condition.word:<8} {check.name:<{_NAME_WIDTH}} "
            if width and width - len(head) < _MIN_TEXT_WIDTH:
                yield head.rstrip()
                head = " " * _INDENT
            yield from _wrap(head, check.text, width)
            if check.remedy:
                yield from _wrap(" " * len(head) + _REMEDY, check.remedy, width)


def _wrap(head: str, text: str, width: int) -> Iterator[str]:
    """Yield a text after its head, wrapped at words and indented below its first line."""
    first, *others = wrap_words(clean(callable_commands(text), _MAX_TEXT), width and width - len(head))
    yield head + first
    yield from (" " * len(head) + line for line in others)


SCHEMA = 1
_SETTINGS = "settings"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs")
    parser.add_argument(
        "--bundle", metavar="FILE", help="also write a file for bug reports, without names, addresses and UUIDs"
    )
    parser.add_argument(
        "--framework", choices=FRAMEWORKS,
        help="also multiply matrices for two seconds on each visible GPU, and compare with the card's peak",
    )  # fmt: skip
    add_places(parser)


def run(arguments: Namespace) -> int:
    refuse_empty(arguments, "bundle")
    sections = _sections(arguments)
    checks = [check for section in sections for check in section.checks]
    can_read = not any(check.condition is Condition.FAULT for check in sections[0].checks)
    verdict = first_line(checks, can_read=can_read)
    document = _document(sections, verdict, can_read=can_read)
    if arguments.bundle:
        write_bundle(arguments.bundle, document, Machine())
    if arguments.json:
        print(json.dumps(document, allow_nan=False))
    else:
        print(*lines(sections, f"gpumon {__version__} on {os.uname().nodename}: {verdict}", terminal_width()), sep="\n")
    sys.stdout.flush()
    if not can_read:
        return EXIT_NO_GPU
    return EXIT_FAILED if any(check.condition is Condition.FAULT for check in checks) else EXIT_OK


def _sections(arguments: Namespace) -> list[CheckSection]:
    flags = Namespace(**vars(arguments))
    settings: list[Check] = []
    try:
        places, arguments = resolve_options(arguments)
        if not reads_hardware(arguments):
            text = f"the source is {chosen_source(arguments)}: views and daemon show no GPU of this machine"
            settings.append(Check(_SETTINGS, Condition.NOTE, text))
    except UsageError as error:  # so that faulty settings do not hide the other checks
        settings.append(
            Check(_SETTINGS, Condition.FAULT, str(error), "views and daemon do not start until it is fixed")
        )
        places, arguments = default_places(flags.dir, flags.state_dir), resolve_options(flags, {})[1]
    gpus = check_gpus(places, arguments)
    daemon, no_daemon_reason = running_daemon(places)
    files = file_checks(places, arguments.history_size, daemon)
    computing = framework_checks(flags.framework) if flags.framework else []
    host, environment, packages = machine_sections(Machine(gpus=gpus.facts), encoding=sys.stdout.encoding or "")
    return [
        CheckSection("GPUs", [*examine_hardware(gpus.readable), *gpus.checks]),
        host,
        environment,
        CheckSection("Computing", computing),
        CheckSection("Daemon and files", [*settings, *daemon_checks(places, daemon, no_daemon_reason), *files]),
        packages,
    ]


def machine_sections(machine: Machine, encoding: str = "utf-8") -> tuple[CheckSection, CheckSection, CheckSection]:
    """Return the checks of host, environment and packages. `encoding`: encoding of the output."""
    return (
        CheckSection("Host", [*kernel_log_checks(machine), *host_checks(machine)]),
        CheckSection("Environment", list(environment_checks(machine))),
        CheckSection("Packages", package_checks(machine, encoding)),
    )


def first_line(checks: Sequence[Check], *, can_read: bool) -> str:
    """Return the result in one clause, with the first fault or warning, which usually causes the others."""
    fault = next((check for check in checks if check.condition is Condition.FAULT), None)
    if fault is not None and not can_read:
        return f"no GPU can be read: {fault.text}"
    gpus = next(check.text for check in checks if check.name == GPUS)
    if fault is not None:
        return f"{gpus}, but {fault.text}"
    warnings = [check for check in checks if check.condition is Condition.WARNING]
    if not warnings:
        return f"all is well: {gpus}"
    others = f" (and {counted(len(warnings) - 1, 'other warning')})" if len(warnings) > 1 else ""
    return f"{gpus}, but {warnings[0].text}{others}"


def _document(sections: Sequence[CheckSection], verdict: str, *, can_read: bool) -> dict[str, object]:
    """Return the report as the JSON object of `--json`."""
    checks = [
        {
            "section": section.title,
            "name": check.name,
            "condition": check.condition.word,
            "text": clean(check.text, 1024),
            "remedy": clean(check.remedy, 1024),
        }
        for section in sections
        for check in section.checks
    ]
    return {
        "schema": SCHEMA,
        "version": __version__,
        "hostname": os.uname().nodename,
        "verdict": clean(verdict, 1024),
        "can_read_gpus": can_read,
        "checks": checks,
    }
