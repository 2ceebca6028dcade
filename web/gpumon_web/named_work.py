"""Work done with a policy for names in force, wherever it is done."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from gpumon.common.privacy import SHOWN, People, use_policy
from gpumon_web.work import Arguments, Task, Work


class NamedWork:
    """A worker whose tasks read names as the policy has them."""

    def __init__(self, work: Work, people: People) -> None:
        self._work = work
        self._people = people

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        """Do `task` some time; the future has its result, or its error."""
        return self._work.ask(do_under, lambda: (self._people, task, *arguments()))

    def close(self) -> None:
        """Stop, whatever is still to do."""
        self._work.close()


def do_under(people: People, task: Task, *arguments: Any) -> Any:
    """Return what a task gives with the policy in force."""
    with use_policy(people):
        return task(*arguments)


def named_work(work: Work, people: People) -> Work:
    """Return `work`, or what stands before it where names are not shown."""
    return work if people.way == SHOWN else NamedWork(work, people)
