"""`gpumon run --auto`: adds gpumon's callback to every training of a command, without changing its code.

`prepare` puts the directory `site` at the front of the command's PYTHONPATH. Each Python process of the command runs
the `sitecustomize` in this directory. It installs `hook` and then runs the original `sitecustomize`, if there is one.
The hook waits until one of the frameworks is imported, and patches it (`patches`). A Python that ignores its
environment (`-I`, `-E`, `-S`) or is too old is not monitored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

KNOWN = (
    "Keras, Lightning, Transformers, XGBoost, LightGBM, Ignite (from 2 epochs on), Accelerate (trackers) and "
    "scikit-learn (searches)"
)
"""The supported frameworks (`hook.AWAITED`) as text for messages."""
NAME = "GPUMON_RUN_NAME"
"""Environment variable with the name for the runs of a command. If it is not set, the runs are named after the
script."""


def prepare(env: Mapping[str, str], name: str | None) -> dict[str, str]:
    """Return the environment for a command whose trainings will be recorded.

    `env`: environment variables of the caller. `name`: name of the runs; None to name them after the script.
    """
    directory = f"{os.path.dirname(os.path.abspath(__file__))}/site"
    path = env.get("PYTHONPATH")
    named = {NAME: name} if name else {}
    return {**env, "PYTHONPATH": f"{directory}{os.pathsep}{path}" if path else directory, **named}
