"""Sends queries to Prometheus in rounds and publishes the results as snapshots, as long as there are viewers.

If Prometheus does not answer in time, the remaining queries of the round are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from math import inf
from threading import Event, Lock, Thread
from time import monotonic
from time import time as wall_clock
from typing import Protocol

from gpumon.cluster.client import Answers, PrometheusAnswer, PrometheusError, PrometheusTimeoutError
from gpumon.cluster.coverage import absence_queries, has_all_samples
from gpumon.cluster.period_queries import (
    PHASE_QUERY,
    HourlySums,
    insert_clock,
    insert_months,
    insert_windows,
    parse_phase,
)
from gpumon.cluster.queries import DCGM_QUERIES, GPUS_PER_NODE, HOURS_QUERY, QUERIES, SERIES_QUERY, SMALL, Query
from gpumon.cluster.rules import DCGM, GPUMON, RULE_FILES
from gpumon.cluster.snapshot import (
    NOT_ASKED,
    NOT_YET,
    RULES_MISSING,
    TICK,
    Batch,
    CachedAnswer,
    ClusterSnapshot,
    batches,
    due,
    keep_consistent,
    longest_postponed,
    missing_rules,
    update_answer,
)
from gpumon.common.numbers import is_known

_WORKERS = 4
_MAX_TIMEOUTS = 4
"""After this many consecutive timeouts, a round sends no more queries except for one batch."""


class QueryClient(Protocol):
    """The methods of a Prometheus client that the poller needs. Tests pass a fake client."""

    name: str

    def clock_offset(self) -> float:
        """Return how many seconds Prometheus's clock is ahead of this machine's clock. Raises PrometheusError."""

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        """Return the value of a PromQL expression at a time (s since 1970). Raises PrometheusError."""


class QueryRunner:
    """Sends the queries of a round to a Prometheus server, one round at a time."""

    def __init__(self, client: QueryClient, zone: tzinfo | None = None) -> None:
        """`zone`: time zone of the site's months and hours, by default the time zone of this process."""
        self._client = client
        self._zone = zone
        self._timeouts = 0
        """Number of consecutive queries of this round that were not answered in time."""
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="gpumon-cluster")

    def close(self) -> None:
        """Stop sending queries. A query in flight is not interrupted."""
        self._pool.shutdown(cancel_futures=True)

    def answers(
        self, batches: Sequence[Batch], guaranteed: Batch, at: float, hours: HourlySums, rules_problem: str = ""
    ) -> Mapping[str, tuple[PrometheusAnswer | None, str]]:
        """Send the queries of these batches, and return an answer and a problem for each query, by name.

        Without an answer, the first value is None. Without a problem, the second one is empty. `guaranteed`: a batch
        that is sent even if Prometheus is late. `at`: time for which queries are evaluated (s since 1970). `hours`: the
        hourly sums that Prometheus has. `rules_problem`: why queries that need recording rules cannot be sent, empty if
        they can.
        """
        self._timeouts = 0
        queries = [query for batch in batches for query in batch]

        def answer(query: Query) -> tuple[PrometheusAnswer | None, str]:
            if rules_problem and query.needs_rules:
                return None, rules_problem
            return self._run(query, at, hours, is_guaranteed=query in guaranteed)

        return dict(zip((query.name for query in queries), self._pool.map(answer, queries), strict=True))

    def _run(
        self, query: Query, at: float, hours: HourlySums, *, is_guaranteed: bool
    ) -> tuple[PrometheusAnswer | None, str]:
        if self._timeouts >= _MAX_TIMEOUTS and not is_guaranteed:
            return None, NOT_ASKED
        expression = query.expression(hours.periods)
        if not query.is_single:  # in a query about one node or user, the name may look like a placeholder
            expression = insert_windows(expression, at, hours.phase, self._zone)
            expression = insert_clock(insert_months(expression, at, self._zone), at, self._zone)
        try:
            answer = self._client.query(expression, at)
        except PrometheusError as error:
            self._timeouts += isinstance(error, PrometheusTimeoutError) and not is_guaranteed
            return None, str(error)
        self._timeouts = 0
        return answer, ""


_MAX_CLOCK_OFFSET = 10.0
"""If Prometheus's clock differs from this machine's clock by more seconds than this, Prometheus's time is used."""
_CHECK_INTERVAL = 300.0
_MISSING_RULES_INTERVAL = 2 * TICK
"""Seconds between checks while rules are missing."""


class ServerCapabilities:
    """The exporters and recording rules that Prometheus has.

    Both are checked from time to time, and after a failed query.
    """

    def __init__(self, client: QueryClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._due = 0.0
        self.series_counts: Mapping[str, float] = {}
        """Number of series with each name."""
        self.problem = "not queried yet"
        """Why the last check failed. Empty if it succeeded."""
        self.hours = HourlySums()

    @property
    def is_dcgm(self) -> bool:
        """True if Prometheus has data only from NVIDIA's exporter."""
        return DCGM in self.series_counts and GPUMON not in self.series_counts

    @property
    def missing_files(self) -> Sequence[str]:
        """Rule files that Prometheus has not loaded.

        Empty without gpumon's exporters, because no rules are needed then.
        """
        if GPUMON not in self.series_counts:
            return []
        return [file for proof, file in RULE_FILES.items() if proof not in self.series_counts]

    @property
    def rules_problem(self) -> str:
        """Why queries that need recording rules cannot be sent. Empty if they can be sent."""
        if not self.series_counts and self.problem:
            return self.problem
        return RULES_MISSING if self.missing_files else ""

    @property
    def is_small(self) -> bool:
        """True if the cluster is small enough to query each GPU. False while its size has not been read."""
        return 0 < self.series_counts.get(GPUMON, self.series_counts.get(DCGM, 0.0) / GPUS_PER_NODE) <= SMALL

    def clock_offset(self, previous: float) -> float:
        """Return how many seconds Prometheus's clock is ahead, or 0 if the difference is small.

        `previous`: the last result, which is returned again if the clock cannot be read.
        """
        try:
            offset = self._client.clock_offset()
        except PrometheusError:
            return previous  # the queries will report the reason
        return round(offset) if abs(offset) > _MAX_CLOCK_OFFSET else 0.0

    def update(self, at: float) -> bool:
        """Check for rules and exporters if the next check is due. Return True if they have changed.

        `at`: current time (s since 1970).
        """
        if self._clock() < self._due:
            return False
        before = self.series_counts.keys(), self.is_small
        try:
            rows = self._client.query(SERIES_QUERY, at).rows
        except PrometheusError as error:
            self.problem = str(error)
            return False  # the queries will report the reason
        self.series_counts = {row.labels.get("__name__", ""): row.value for row in rows}
        self.problem = ""
        has_rules = all(proof in self.series_counts for proof in RULE_FILES)
        self._due = self._clock() + (_CHECK_INTERVAL if has_rules else _MISSING_RULES_INTERVAL)
        self.hours = self._read_hours(at) if has_rules else HourlySums()
        return before != (self.series_counts.keys(), self.is_small)

    def expire(self) -> None:
        """Make the next round check again. Another server may answer now, or rules may have been removed."""
        self._due = 0.0

    def _read_hours(self, at: float) -> HourlySums:
        """Return the hourly sums that Prometheus has, or the previous result if it does not answer."""
        try:
            phase = parse_phase(self._client.query(PHASE_QUERY, at).rows)
            if not is_known(phase):
                return HourlySums()
            rows = self._client.query(insert_windows(HOURS_QUERY, at, phase), at).rows
        except PrometheusError:
            return self.hours
        return HourlySums(phase, frozenset(row.labels.get("of", "") for row in rows))


UNWATCHED = 120.0
"""Seconds without a viewer after which polling pauses."""
_MAX_SUBJECTS = 16
"""Maximum number of nodes, users and months with their own queries. Only the most recently viewed ones are queried."""


@dataclass(slots=True)
class _Subject:
    """A node, user or month that someone views."""

    queries: Sequence[Query]
    viewed: float
    """Time of the last view, by the monotonic clock."""


class ClusterPoller:
    """Polls a Prometheus server as long as someone views the snapshots. Can be used from several threads."""

    def __init__(
        self, client: QueryClient, queries: Sequence[Query] = QUERIES, clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = wall_clock,
        follow_up: Callable[[Answers, float], Sequence[Query]] = absence_queries, zone: tzinfo | None = None,
    ) -> None:  # fmt: skip
        """`follow_up`: function that returns further queries for the answers of a round and its time (s since 1970).

        `queries`: the queries for all viewers. `clock`: monotonic time. `now`: wall-clock time. `zone`: the site's time
        zone.
        """
        self._client = client
        self._queries = queries
        self._clock = clock
        self._now = now
        self._follow_up = follow_up
        self._lock = Lock()
        self._snapshot = ClusterSnapshot(0.0, {}, took=0.0)
        self._runner = QueryRunner(client, zone)
        self._capabilities = ServerCapabilities(client, clock)
        self._subjects: dict[str, _Subject] = {}
        self._viewed = clock()
        self._answered = -inf
        """Start of the last round in which any query was answered, by the monotonic clock."""
        self._woken = -inf
        """Monotonic time at which the first viewer came after a pause."""
        self._wake, self._stop = Event(), Event()
        self._thread: Thread | None = None

    @property
    def server_name(self) -> str:
        """URL of Prometheus as displayed, without credentials."""
        return self._client.name

    def start(self, report: Callable[[str], object] = bool) -> ClusterPoller:
        """Start polling in a thread. `report`: called once if Prometheus lacks recording rules."""
        self._thread = Thread(target=self._poll, args=(report,), name="gpumon-cluster", daemon=True)
        self._thread.start()
        return self

    def snapshot(self) -> ClusterSnapshot:
        """Return the newest snapshot. The caller counts as a viewer, so polling goes on."""
        is_first = self._clock() - self._viewed > UNWATCHED
        self._viewed = self._clock()
        if is_first:
            self._woken = self._viewed
            self._wake.set()
        with self._lock:
            return self._snapshot

    def is_waking(self, snapshot: ClusterSnapshot) -> bool:
        """Return True if a snapshot is from before the last pause in polling.

        In this case, the first round after the pause has not ended yet.
        """
        return self._woken > snapshot.began

    def silence(self, snapshot: ClusterSnapshot) -> float:
        """Return how many seconds ago Prometheus last answered, even if the current round hangs.

        Right after a pause, no snapshot has the new answers yet. Until one has, the last answer of `snapshot` counts.
        """
        return self._clock() - (snapshot.last_answer if self.is_waking(snapshot) else self._answered)

    def watch(self, subject: str, queries: Callable[[str], Sequence[Query]]) -> None:
        """Also send the queries about one node, user or month, as long as someone views it.

        `subject`: key of the node, user or month. `queries`: function that returns the queries for `subject`.
        """
        with self._lock:
            known = self._subjects.pop(subject, None)
            self._subjects[subject] = _Subject(known.queries if known else queries(subject), self._clock())
            while len(self._subjects) > _MAX_SUBJECTS:
                del self._subjects[next(iter(self._subjects))]
        if known is None:
            self._wake.set()

    def close(self) -> None:
        """Stop polling."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._runner.close()

    def round(self) -> ClusterSnapshot:
        """Send the queries that are due, all for the same moment, and return the new snapshot."""
        began, ours, previous, capabilities = self._clock(), self._now(), self._snapshot, self._capabilities
        offset = capabilities.clock_offset(previous.clock_offset)
        at = ours + offset
        cached = dict(previous.cached)
        if capabilities.update(at):  # series that were missing may exist now
            cached = {name: replace(answer, queried_at=-inf) for name, answer in cached.items()}
        current = self._current_queries()
        queries = [query for query in current if query.needs_whole is None]
        cached = self._run_due(queries, cached, began, at)
        more: tuple[Callable[[Answers, float], Sequence[Query]], ...] = (
            partial(_whole_period_queries, current),
            self._follow_up,
        )
        for find_more in more:
            further = find_more({name: answer.rows for name, answer in cached.items() if answer.rows is not None}, at)
            queries += further
            if self._answered >= began:  # if Prometheus answered nothing in this round, no more queries are sent
                cached = self._run_due(further, cached, began, at)
        names = {query.name for query in queries}
        cached = {name: answer for name, answer in cached.items() if name in names}
        answered = ours if self._answered >= began else previous.answered
        snapshot = ClusterSnapshot(
            at, cached, self._clock() - began, capabilities.is_dcgm, offset, answered,
            is_known(capabilities.hours.phase), began, capabilities.missing_files, self._answered,
        )  # fmt: skip
        with self._lock:
            self._snapshot = snapshot
        return snapshot

    def _run_due(
        self, queries: Sequence[Query], cached: Mapping[str, CachedAnswer], began: float, at: float
    ) -> dict[str, CachedAnswer]:
        """Run the queries that are due, and return all cached answers, including the new ones."""
        capabilities, result = self._capabilities, dict(cached)
        intervals = {query.name: query.interval(is_small=capabilities.is_small) for query in queries}
        ready = due(batches(queries), cached, intervals, began)
        answers = self._runner.answers(
            ready, longest_postponed(ready, cached), at, capabilities.hours, capabilities.rules_problem
        )
        for batch in ready:
            updated = {}
            for query in batch:
                answer, problem = answers[query.name]
                previous = cached.get(query.name, NOT_YET)
                queried_at = previous.queried_at if problem == NOT_ASKED else began
                updated[query.name] = update_answer(previous, answer, problem, queried_at, at)
                if answer is not None:
                    self._answered = began
                if problem or (answer is not None and previous.rows and not answer.rows):
                    capabilities.expire()
            result |= keep_consistent(cached, updated, at, intervals[batch[0].name])
        return result

    def _current_queries(self) -> list[Query]:
        """Return the queries of this round: those for all viewers, and those about the subjects that are viewed."""
        with self._lock:
            now = self._clock()
            self._subjects = {
                name: subject for name, subject in self._subjects.items() if now - subject.viewed <= UNWATCHED
            }
            about_subjects = [query for subject in self._subjects.values() for query in subject.queries]
        if self._capabilities.is_dcgm:
            return list(DCGM_QUERIES)
        general = [query for query in self._queries if self._capabilities.is_small or not query.is_small]
        # The queries about a month may include some of the queries for all viewers.
        return list({query.name: query for query in general + about_subjects}.values())

    def _poll(self, report: Callable[[str], object]) -> None:
        self._capabilities.update(self._now() + self._capabilities.clock_offset(0.0))
        if self._capabilities.missing_files:
            report(missing_rules(self._capabilities.missing_files))
        while not self._stop.is_set():
            if self._clock() - self._viewed <= UNWATCHED:
                self.round()
            self._wake.wait(TICK)
            self._wake.clear()


def _whole_period_queries(queries: Sequence[Query], answers: Answers, _at: float) -> list[Query]:
    """Return the queries that need samples for a whole period, if Prometheus has samples for all of it."""
    return [query for query in queries if query.needs_whole and has_all_samples(answers, query.needs_whole)]
