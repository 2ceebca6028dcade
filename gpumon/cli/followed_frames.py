"""Frames that a command which stays keeps, so that each picture reads only what is new."""

from __future__ import annotations

from collections import deque

from gpumon.analysis.epochs import Epochs
from gpumon.diagnosis.live import LOOK_BACK
from gpumon.live import Live
from gpumon.model.frame import Frame


class FollowedFrames:
    """The last frames of a ring: what `gpumon status` looks back on, read once each."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._kept: deque[Frame] = deque(maxlen=LOOK_BACK)
        self.epochs = Epochs()
        """By every boundary that the ring has kept, also of before those frames."""

    def until(self, newest: Frame) -> list[Frame]:
        """Return what is known up to `newest`, oldest first; of a ring that begins anew, nothing of the one before."""
        kept = self._kept
        if kept and newest.number < kept[-1].number:
            kept.clear()
        after = kept[-1].number if kept else max(0, newest.number - LOOK_BACK)
        if not kept:
            self.epochs = Epochs()
            self.epochs.take(self._live.boundaries())
        if after < newest.number:
            new = [frame for frame in self._live.since(after) if frame.number > after]
            for frame in new:
                self.epochs.add(frame)
            kept.extend(new)
        return list(kept)
