"""Print the status of GPUs, processes and runs repeatedly, until Ctrl-C.

For plain terminals and logs. Joins a running daemon; without one, samples in its own process. If the terminal can be
cleared, each status replaces the previous one; otherwise an empty line separates them. --interval is also the time
between two statuses. Under 'watch', gpumon top prints one status and exits. The exit code is 3 if no GPU could be read
in the last status. With --prometheus, show the whole cluster, from a Prometheus that scrapes the exporters of the
nodes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from gpumon.analysis.gpu_status import ANSWERS, no_gpu_reason
from gpumon.cli.options import (
    CLUSTER_TICK,
    DEFAULT_SOURCE,
    PERIODS,
    add_cluster,
    add_places,
    add_source,
    open_prometheus,
    reads_hardware,
    refuse_empty,
    require_partner,
    resolve_options,
)
from gpumon.cli.sampling import RecentFrames
from gpumon.cli.streams import output_width, terminal_size, terminal_width
from gpumon.common.clock import SECOND
from gpumon.common.errors import EXIT_NO_GPU, EXIT_OK, UsageError
from gpumon.common.numbers import NAN
from gpumon.common.paths import Places
from gpumon.common.procfs import read_stat
from gpumon.common.text import cut
from gpumon.live import Live, follow
from gpumon.model.frame import Frame
from gpumon.model.origin import Capability
from gpumon.reports.status_text import lines


@contextmanager
def cluster_status(
    arguments: argparse.Namespace, height: Callable[[], int]
) -> Iterator[Callable[[], tuple[list[str], int]]]:
    """Yield a function that queries the cluster and returns the lines to print and the exit code.

    `height`: function that returns the maximum number of lines, or 0 for no limit.
    """
    client, _ = open_prometheus(arguments)
    from gpumon.cluster.cost import cost_queries
    from gpumon.cluster.poller import ClusterPoller
    from gpumon.cluster.queries import QUERIES, Period, select_period, user_sum_queries
    from gpumon.reports.cluster_text import lines

    period = Period(arguments.period or PERIODS[1])
    prices, groups = arguments.prices, arguments.user_groups
    queries = (*select_period(QUERIES, period), *(user_sum_queries(period) if period.is_dated else ()))
    poller = ClusterPoller(client, (*queries, *cost_queries(prices, periods=(period,))))

    def status() -> tuple[list[str], int]:
        picture = poller.round()
        has_gpus = picture.answers().get("gpus") and not picture.is_old
        text = list(lines(picture, client.name, period, terminal_width(), prices, groups, height()))
        return text, EXIT_OK if has_gpus else EXIT_NO_GPU

    try:
        yield status
    finally:
        poller.close()
        client.close()


_HOME = "\x1b[H"
_CLEAR = "\x1b[2J"
_TO_END_OF_LINE = "\x1b[K"
_TO_END = "\x1b[J"
_DUMB = ("", "dumb", "unknown")
_MAX_ANCESTORS = 2
"""Number of ancestor processes that are checked for `watch`."""
_FIRST_TIMEOUT = 3.0
"""Seconds to wait for the first sample of this process. After that, the status says that there is none yet."""
_FIRST_TIMEOUT_SIMULATED = 30.0
"""Seconds to wait for the first frame of a source without a driver. A simulation first generates its past, which takes
long on a busy machine."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--count",
        type=int,
        metavar="COUNT",
        help="print the status COUNT times, then exit (default: until Ctrl-C)",
    )
    add_cluster(parser)
    parser.add_argument(
        "--period", choices=PERIODS,
        help="with --prometheus, the period of the usage by user: the last day, week or 30 days (month), or a calendar "
        f"month (default: {PERIODS[1]})",
    )  # fmt: skip
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.count is not None and arguments.count < 1:
        raise UsageError(f"invalid count {arguments.count}: give 1 or more")
    refuse_empty(arguments, "prometheus", "prometheus_config")
    require_partner(
        arguments, "--prometheus", "--prometheus-config", "--period", is_there=arguments.prometheus is not None
    )
    interval = arguments.interval
    places, arguments = resolve_options(arguments)
    if arguments.prometheus:
        with cluster_status(arguments, _max_lines) as status:
            tick = arguments.interval if interval else CLUSTER_TICK
            return _repeat(status, tick, arguments.count or 0, hint="print all with '-n 1 | less'")
    with _open_live(places, arguments) as live:
        deadline = time.monotonic() + (_FIRST_TIMEOUT if reads_hardware(arguments) else _FIRST_TIMEOUT_SIMULATED)
        while live.latest() is None and time.monotonic() < deadline and not live.has_failed():
            time.sleep(0.05)
        earlier = RecentFrames(live)
        if not sys.stdout.isatty() and is_watched():
            return _repeat(lambda: _status(live, earlier, output_width()), arguments.interval, 1)
        return _repeat(lambda: _status(live, earlier), arguments.interval, arguments.count or 0)


def _open_live(places: Places, arguments: argparse.Namespace) -> AbstractContextManager[Live]:
    """Return the ring of the daemon, even if the daemon does not respond. Without a daemon, sample in this process."""
    live = follow(places)
    if arguments.source is None and live.has_writer():
        return nullcontext(live)
    live.close()
    from gpumon.cli.sampling import private_sampler

    return private_sampler(places, arguments)


def _repeat(
    status: Callable[[], tuple[list[str], int]], interval: float, count: int, hint: str = "see 'gpumon status'"
) -> int:
    """Print the status `count` times, or without end if `count` is 0. Return the exit code of the last status.

    `hint`: what to do instead of enlarging the window, for a terminal that has too few lines.
    """
    clears = _clears_screen()
    number, due, code = 0, time.monotonic(), EXIT_OK
    while True:
        text, code = status()
        number += 1
        if clears:
            _draw(text, hint, first=number == 1)
        else:
            print(*([""] if number > 1 else []), *text, sep="\n", flush=True)
        if number == count:
            return code
        due = max(due + interval, time.monotonic())  # skips statuses that are overdue
        time.sleep(max(0.0, due - time.monotonic()))


def is_watched(pid: int | None = None, proc: str = "/proc") -> bool:
    """Whether `watch` runs this process, directly or through a shell.

    `watch` shows output only after the process exits.
    """
    pid = os.getpid() if pid is None else pid
    for _ in range(_MAX_ANCESTORS):
        stat = read_stat(pid, proc)
        if stat is None or stat.parent <= 1:
            return False
        pid = stat.parent
        try:
            with open(f"{proc}/{pid}/comm", "rb") as file:
                if file.read(64).strip() == b"watch":
                    return True
        except OSError:
            return False
    return False


def _clears_screen() -> bool:
    """Whether each status replaces the previous one on the terminal."""
    return os.environ.get("TERM", "") not in _DUMB and sys.stdout.isatty()


def _max_lines() -> int:
    """Return the number of lines that fit on the terminal; 0 for no limit."""
    return max(1, _height() - 1) if _clears_screen() and _height() else 0


def _draw(text: list[str], hint: str, *, first: bool) -> None:
    """Draw a status over the previous one, in a single write to avoid flicker.

    If some lines do not fit, a note at the end says how many.
    """
    width, height = terminal_width(), _height()
    if height and len(text) >= height:
        text = with_hint(text, width, height, hint)
    body = "\n".join(cut(line, width) + _TO_END_OF_LINE for line in text)
    sys.stdout.write((_HOME + _CLEAR if first else _HOME) + body + "\n" + _TO_END)
    sys.stdout.flush()


def with_hint(text: list[str], width: int, height: int, hint: str) -> list[str]:
    """Return the lines that fit. If there are more, the last line is a note with their number and `hint`."""
    from gpumon.reports.text_table import sentence

    lines: list[str] = []
    while True:
        hidden = len(text) - height + 1 + len(lines)
        note = list(sentence(f"and {hidden} more lines: enlarge the window, or {hint}", width))
        if len(note) <= len(lines) or len(note) >= height:
            return [*text[: max(0, height - 1 - len(note))], *note]
        lines = note


def _height() -> int:
    """Return the number of lines of the terminal; 0 if the terminal does not report it."""
    try:
        return terminal_size(sys.stdout.fileno())[1]
    except (OSError, ValueError):
        return 0


def _status(live: Live, earlier: RecentFrames, width: int | None = None) -> tuple[list[str], int]:
    """Return the lines of the status and the exit code.

    `width`: width in cells, by default the width of the terminal.
    """
    state, frame, origin = live.state(), live.latest(), live.origin()
    if frame is None:
        return [f"gpumon: {origin.problem or state.text}"], EXIT_NO_GPU
    is_live = state.live and not (origin.ended or origin.unanswered)
    pid = live.writer_pid()
    sampler = f"daemon, pid {pid}" if pid != os.getpid() else "sampled by this command"
    age = NAN
    if Capability.NOW in origin.capabilities:
        age = max(0.0, (time.monotonic_ns() - frame.monotonic_ns) / SECOND)
    text = list(
        _lines(
            live,
            frame,
            earlier,
            sampler if state.live else f"{sampler}, {state.text}",
            is_live=is_live,
            age=age,
            width=terminal_width() if width is None else width,
        )
    )
    if state.live and not origin.problem and any(sample.state in ANSWERS for sample in frame.samples):
        return text, EXIT_OK
    reason = state.text if not state.live else no_gpu_reason(frame, origin.problem)
    return [*text, f"gpumon: {reason}"], EXIT_OK if origin.ended else EXIT_NO_GPU


def _lines(
    live: Live, frame: Frame, earlier: RecentFrames, note: str, *, is_live: bool, age: float, width: int
) -> Iterator[str]:
    origin = live.origin()
    yield from lines(
        frame,
        origin,
        live.driver(),
        live.hostname(),
        note,
        before=earlier.until(frame),
        epochs=earlier.epochs,
        live=is_live,
        age=age,
        width=width,
    )
    for part in origin.parts:
        if part.origin.problem and not origin.problem:
            yield f"{part.origin.source}: {part.origin.problem}"
