"""The picture of a cluster: everything that is known of it at a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from gpumon.cluster import facts
from gpumon.cluster.engine import EngineSeries
from gpumon.cluster.kept import NEVER, KeptAnswer
from gpumon.cluster.recorded import SILENT
from gpumon.cluster.turns import TICK
from gpumon.cluster.wrong import apart
from gpumon.common.numbers import NAN

NO_ANSWER = 3 * TICK
"""Seconds without any answer after which nothing is of now."""
_OF_NOW = ("seen", "gpus")
"""Questions about what is so now, which each round asks that found no answer before."""


class ClusterPicture(NamedTuple):
    """Everything that is known at a moment."""

    at: float
    """When the engine was last asked, s since 1970; 0 before."""
    kept: Mapping[str, KeptAnswer]
    recorded: bool
    """Whether the engine has the recorded series of our rules."""
    took: float
    """Seconds for all that was asked in the last round."""
    is_dcgm: bool = False
    """Whether the engine has nothing but NVIDIA's exporters."""
    ahead: float = 0.0
    """Seconds by which the engine's clock is ahead of ours, where it is another; its time is taken then."""
    answered: float = 0.0
    """When anything was last answered, s since 1970, by our clock; 0: never."""
    by_hour: bool = True
    """Whether the engine records sums by the hour."""
    began: float = -inf
    """When the round that made it began, by the steady clock."""
    looked: bool = True
    """Whether the engine told which series it has, when asked last: else nobody knows whether the rules are there."""
    heard: float = -inf
    """The same as `answered`, by the steady clock."""

    def answers(self) -> dict[str, Sequence[EngineSeries]]:
        """Return the rows of all that was ever answered."""
        return {name: one.rows for name, one in self.kept.items() if one.rows is not None}

    @property
    def is_answered(self) -> bool:
        """Whether the last round had any answer, or asked nothing of what changes from round to round."""
        asked = [one for name in _OF_NOW if (one := self.kept.get(name, NEVER)).problem and one.asked >= self.began]
        return self.heard >= self.began or not asked

    @property
    def is_old(self) -> bool:
        """Whether the engine has answered nothing for so long that nothing here is of now."""
        return self.began - self.heard > NO_ANSWER

    @property
    def told_at(self) -> float:
        """The moment that the newest answer is of; of when it was asked where there is none."""
        return max((one.at for one in self.kept.values() if one.rows is not None), default=0.0) or self.at

    @property
    def unanswered(self) -> Sequence[str]:
        """Questions without whose answer nobody knows what GPUs do now: a silent node would count as free."""
        return [name for name in _OF_NOW if self.is_old or not self._is_of_now(self.kept.get(name, NEVER))]

    def nodes(self) -> list[facts.Node]:
        """Return the nodes as they were told last."""
        return facts.nodes(self.answers(), self.seen_at)

    def nodes_now(self) -> list[facts.Node]:
        """Return the nodes as they are now: without what their GPUs do, where that is not known."""
        found = self.nodes()
        return [one._replace(gpus=None, busy=NAN) for one in found] if self.unanswered else found

    def _is_of_now(self, one: KeptAnswer) -> bool:
        return one.rows is not None and (not one.problem or self.at - one.at <= SILENT)

    @property
    def seen_at(self) -> float:
        """The moment at which nodes were asked for their newest samples: whether one is silent is of then."""
        return self.kept.get("seen", NEVER).at or self.at

    @property
    def clocks(self) -> str:
        """A sentence on the engine's clock where it is another than ours; else empty."""
        if not self.ahead:
            return ""
        side = "ahead of" if self.ahead > 0 else "behind"
        return f"The engine's clock is {apart(self.ahead)} {side} this machine's; its time is shown."

    def problems(self) -> dict[str, str]:
        """Return why some are not of now, by question."""
        return {name: one.problem for name, one in self.kept.items() if one.problem}
