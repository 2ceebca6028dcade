"""`gpumon run --auto`: the callback in every training of a command, without a change to its code.

`prepare` puts the directory `site` in front of the command's PYTHONPATH. Each Python that starts below
runs the `sitecustomize` in it, which sets `hook` up and then runs the one that would have run without us.
The hook waits until one of the frameworks is imported, and changes one method of it (`patches`). A Python
that ignores its environment (`-I`, `-E`, `-S`) or is too old goes without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

KNOWN = (
    "Keras, Lightning, Transformers, XGBoost, LightGBM, Ignite (from 2 epochs on), Accelerate (trackers) and "
    "scikit-learn (searches)"
)
"""The frameworks whose trainings are tagged (`hook.AWAITED`), for people."""
NAME = "GPUMON_RUN_NAME"
"""Environment variable: what the trainings are called; without it each is called after its script."""


def prepare(env: Mapping[str, str], name: str | None) -> dict[str, str]:
    """`env` for a command whose trainings are to be tagged, and called `name`."""
    directory = f"{os.path.dirname(os.path.abspath(__file__))}/site"
    before = env.get("PYTHONPATH")
    named = {NAME: name} if name else {}
    return {**env, "PYTHONPATH": f"{directory}{os.pathsep}{before}" if before else directory, **named}
