"""Measure the budgets of gpumon beside their peers: python -m benchmarks --help"""

from __future__ import annotations

import argparse
import compileall
import sys
import time
from importlib import import_module

from benchmarks import core, report
from benchmarks.stage import QUICK, Effort, stage
from benchmarks.usage import ROOT

PROGRAMS = {
    "nvml_calls": "driver calls per GPU and second",
    "drm": "reading AMD GPUs from files",
    "daemon_cpu": "CPU and memory of the daemon",
    "status": "`gpumon status` from start to end",
    "ledger": "a ledger of 2000 runs and 200 000 epochs",
    "tags": "what a tag costs a training",
    "callbacks": "what a callback adds, for each framework",
    "loggers": "what writing values of epochs to a logger adds",
    "ring": "frames in and out of the ring",
    "history": "a month of history, and a day of it beside its peers",
    "recording": "recordings, next to compressed JSON lines",
    "tui": "the terminal view",
    "web": "the web view and its viewers",
    "large": "both views with much data",
    "long_run": "the web view while a crowd opens one long run",
    "exporter": "a scrape of the exporter",
    "soak": "a daemon at 100 Hz while the driver fails at random",
    "page": "the pages of the web view in a browser",
    "lab": "the pages as a lab has them open",
    "hostile": "the web view under hostile requests",
    "cluster": "the page of 1,000 nodes on a real Prometheus",
}


def main() -> int:
    options = parser().parse_args()
    effort = QUICK if options.quick else Effort()
    if options.seconds:
        effort = effort._replace(seconds=options.seconds)
    effort = effort._replace(prepared=options.prepared)
    names = options.programs or list(PROGRAMS)
    for package in ("gpumon", "tui", "web"):  # as pip does when it installs one: a peer's byte code lies there, too
        compileall.compile_dir(ROOT / package, quiet=2)
    results = []
    for name in names:
        begun = time.monotonic()
        print(f"measuring {PROGRAMS[name]} ({name}) ...", file=sys.stderr, flush=True)
        before = core.pass_cpu()
        with stage() as here:
            found: report.Result = import_module(f"benchmarks.{name}").measure(here, effort)
        after = core.pass_cpu()
        found.scale = core.scale(before, after)
        found.notes.append(core.note(before, after))
        results.append(found)
        print(f"{found.text()}\n", flush=True)
        print(f"... took {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    where = report.machine(options.date, quick=options.quick)
    print(where)
    if options.write:
        report.write(results, where)
    over = [what for result in results for what in result.over]
    for what in over:
        print(f"over its budget: {what}", file=sys.stderr)
    return 1 if over else 0


def parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<12} {text}" for name, text in PROGRAMS.items())
    found = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Measure the budgets of gpumon beside their peers.\n\nprograms:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="The exit code is 1 when a budget is missed.",
    )
    found.add_argument("programs", nargs="*", metavar="PROGRAM", choices=[[], *PROGRAMS], help="default: all of them")
    found.add_argument("--seconds", type=float, metavar="S", help="length of a window (60; 12 with --quick)")
    found.add_argument("--quick", action="store_true", help="under two minutes: to see that it works")
    found.add_argument(
        "--prepared",
        metavar="DIR",
        default="",
        help="keep and reuse a whole month of history there (once: ten minutes)",
    )
    found.add_argument("--write", action="store_true", help="put their tables into benchmarks/README.md")
    found.add_argument("--date", default=time.strftime("%Y-%m-%d"), help="default: today")
    return found


if __name__ == "__main__":
    sys.exit(main())
