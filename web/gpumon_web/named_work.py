"""Work done with a policy for names in force, wherever it is done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.common.privacy import SHOWN, People, under
from gpumon.storage.ledger.reader import Ledgers
from gpumon.storage.usage.query import read_users
from gpumon_web.work import Arguments, Task, Work


class NamedWork:
    """A worker whose tasks read names as the policy has them."""

    def __init__(self, work: Work, people: People) -> None:
        self._work = work
        self._people = people

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        """Do `task` some time; the future has its result, or its error."""
        people, found = self._people, Future[Any]()

        def settle(done: Future[Any]) -> None:
            if (error := done.exception()) is not None:
                found.set_exception(error)
                return
            result, met = done.result()
            people.meet(met)  # in another process they were met by a copy
            found.set_result(result)

        self._work.ask(do_under, lambda: (people, task, *arguments())).add_done_callback(settle)
        return found

    def close(self) -> None:
        """Stop, whatever is still to do."""
        self._work.close()


def do_under(people: People, task: Task, *arguments: Any) -> tuple[Any, Collection[str]]:
    """Return what a task gives with the policy in force, and the users that are known then."""
    with under(people):
        result = task(*arguments)
    return result, people.known.names if people.known else ()


def meet_kept(people: People, ledgers: Sequence[str], histories: Sequence[str], accounts: Iterable[str] = ()) -> None:
    """Know users before anything is shown: a text, and the address of a run, that names one is else another later.

    Those of what is kept, then those of `accounts`. What cannot be read now is read when it is asked for.
    """
    if people.way == SHOWN:
        return
    with under(people):
        with suppress(GpumonError), Ledgers(ledgers):
            pass  # a ledger that is opened knows its users
        for path in histories:
            with suppress(GpumonError):
                read_users(path, -inf, inf)
    people.meet(accounts)


def named_work(work: Work, people: People) -> Work:
    """Return `work`, or what stands before it where names are not shown."""
    return work if people.way == SHOWN else NamedWork(work, people)
