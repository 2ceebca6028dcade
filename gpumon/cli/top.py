"""Print the status of GPUs, processes and runs repeatedly, until Ctrl-C.

For plain terminals and logs. Joins a running daemon; without one, samples in its own process. Each status replaces the
previous one if the terminal can be cleared; otherwise an empty line separates them. --interval is also the time between
two of them. Under 'watch' it prints one and exits. The exit code is 3 if no GPU could be read in the last one.
With --prometheus, show the whole cluster, from a Prometheus that scrapes the exporters of the nodes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from gpumon.analysis.gpu_status import ANSWERS, no_gpu_reason
from gpumon.cli.options import (
    CLUSTER_TICK,
    DEFAULT_SOURCE,
    PERIODS,
    add_cluster,
    add_places,
    add_source,
    open_engine,
    reads_hardware,
    resolve_options,
)
from gpumon.cli.sampling import FollowedFrames
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
def cluster_pictures(
    arguments: argparse.Namespace, height: Callable[[], int]
) -> Iterator[Callable[[], tuple[list[str], int]]]:
    """A function that asks the engine, and returns the lines of the picture with the exit code for it.

    `height`: tells how many lines there is room for; 0 for any number.
    """
    engine, _ = open_engine(arguments)
    from gpumon.cluster.cost import cost_queries
    from gpumon.cluster.poller import ClusterPoller
    from gpumon.cluster.queries import QUERIES, Period, select_period, user_sum_queries
    from gpumon.reports.cluster_text import lines

    period = Period(arguments.period)
    prices, groups = arguments.prices, arguments.user_groups
    asked = (*select_period(QUERIES, period), *(user_sum_queries(period) if period.is_dated else ()))
    poller = ClusterPoller(engine, (*asked, *cost_queries(prices, periods=(period,))))

    def picture() -> tuple[list[str], int]:
        found = poller.round()
        answered = found.answers().get("gpus") and not found.is_old
        text = list(lines(found, engine.name, period, terminal_width(), prices, groups, height()))
        return text, EXIT_OK if answered else EXIT_NO_GPU

    try:
        yield picture
    finally:
        poller.close()
        engine.close()


_HOME = "\x1b[H"
_CLEAR = "\x1b[2J"
_TO_END_OF_LINE = "\x1b[K"
_TO_END = "\x1b[J"
_DUMB = ("", "dumb", "unknown")
_SHELLS = 2
"""Parents among which `watch` is looked for."""
_FIRST = 3.0
"""Seconds that the first sample of this process may take before a picture says that it is awaited."""
_FIRST_SIMULATED = 30.0
"""The same where no driver is asked that might hang: a simulation makes up its past, on a busy machine for long."""


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
        "--period", choices=PERIODS, default=PERIODS[1],
        help="with --prometheus, the period of the usage by user: the last day, week or 30 days (month), or a calendar "
        f"month (default: {PERIODS[1]})",
    )  # fmt: skip
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.count is not None and arguments.count < 1:
        raise UsageError(f"invalid count {arguments.count}: give 1 or more")
    interval = arguments.interval
    where, arguments = resolve_options(arguments)
    if arguments.prometheus:
        with cluster_pictures(arguments, _room) as picture:
            tick = arguments.interval if interval else CLUSTER_TICK
            return _repeat(picture, tick, arguments.count or 0, instead="print all with '-n 1 | less'")
    with _followed(where, arguments) as live:
        deadline = time.monotonic() + (_FIRST if reads_hardware(arguments) else _FIRST_SIMULATED)
        while live.latest() is None and time.monotonic() < deadline and not live.has_failed():
            time.sleep(0.05)
        earlier = FollowedFrames(live)
        if not sys.stdout.isatty() and is_watched():
            return _repeat(lambda: _picture(live, earlier, output_width()), arguments.interval, 1)
        return _repeat(lambda: _picture(live, earlier), arguments.interval, arguments.count or 0)


def _followed(where: Places, arguments: argparse.Namespace) -> AbstractContextManager[Live]:
    """The ring of the daemon, also of one that is silent; else one of our own."""
    live = follow(where)
    if arguments.source is None and live.has_writer():
        return nullcontext(live)
    live.close()
    from gpumon.cli.sampling import private_sampler

    return private_sampler(where, arguments)


def _repeat(
    picture: Callable[[], tuple[list[str], int]], interval: float, count: int, instead: str = "see 'gpumon status'"
) -> int:
    """Show pictures, `count` of them or without end where it is 0; return the code of the last one.

    `instead`: what helps, beside a larger window, where a picture has more lines than the terminal.
    """
    clears = _clears()
    number, due, code = 0, time.monotonic(), EXIT_OK
    while True:
        text, code = picture()
        number += 1
        if clears:
            _draw(text, instead, first=number == 1)
        else:
            print(*([""] if number > 1 else []), *text, sep="\n", flush=True)
        if number == count:
            return code
        due = max(due + interval, time.monotonic())  # pictures that were late are left out
        time.sleep(max(0.0, due - time.monotonic()))


def is_watched(pid: int | None = None, proc: str = "/proc") -> bool:
    """Whether `watch` runs this process, by itself or through a shell: it waits for the end, and shows that."""
    pid = os.getpid() if pid is None else pid
    for _ in range(_SHELLS):
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


def can_clear(env: Mapping[str, str]) -> bool:
    """Whether the terminal that `env` names knows how to clear its screen."""
    return env.get("TERM", "") not in _DUMB


def _clears() -> bool:
    """Whether each picture takes the place of the one before."""
    return can_clear(os.environ) and sys.stdout.isatty()


def _room() -> int:
    """Lines of a picture that all are seen at once; 0 for any number."""
    return max(1, _height() - 1) if _clears() and _height() else 0


def _draw(text: list[str], instead: str, *, first: bool) -> None:
    """One write for all: what stays the same does not flicker. What has no room is counted."""
    width, height = terminal_width(), _height()
    if height and len(text) >= height:
        text = with_hint(text, width, height, instead)
    body = "\n".join(cut(line, width) + _TO_END_OF_LINE for line in text)
    sys.stdout.write((_HOME + _CLEAR if first else _HOME) + body + "\n" + _TO_END)
    sys.stdout.flush()


def with_hint(text: list[str], width: int, height: int, instead: str) -> list[str]:
    """As many lines as there is room for, and how many more there are, with what helps."""
    from gpumon.reports.text_table import sentence

    hint: list[str] = []
    while True:
        hidden = len(text) - height + 1 + len(hint)
        told = list(sentence(f"and {hidden} more lines: enlarge the window, or {instead}", width))
        if len(told) <= len(hint) or len(told) >= height:
            return [*text[: max(0, height - 1 - len(told))], *told]
        hint = told


def _height() -> int:
    """Lines of the terminal; 0 where it does not tell."""
    try:
        return terminal_size(sys.stdout.fileno())[1]
    except (OSError, ValueError):
        return 0


def _picture(live: Live, earlier: FollowedFrames, width: int | None = None) -> tuple[list[str], int]:
    """The lines, and the exit code of `gpumon status` for them; `width` in the place of the terminal's."""
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
    why = state.text if not state.live else no_gpu_reason(frame, origin.problem)
    return [*text, f"gpumon: {why}"], EXIT_OK if origin.ended else EXIT_NO_GPU


def _lines(
    live: Live, frame: Frame, earlier: FollowedFrames, note: str, *, is_live: bool, age: float, width: int
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
