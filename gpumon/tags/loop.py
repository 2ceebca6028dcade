"""`gpumon.run`: the tags of a training loop that its author writes by hand.

    with gpumon.run("resnet50", epochs=90) as run:
        for epoch in run.epochs():
            for batch in run.steps(loader):
                ...
            with run.phase("validate"):
                ...
            run.log(loss=loss, accuracy=accuracy)

Only `run` itself raises, and only for arguments that make no sense. Nothing else here raises, waits,
or touches a GPU: the training comes first.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from gpumon import paths
from gpumon.errors import UsageError
from gpumon.tags import ranks
from gpumon.tags.client import Board
from gpumon.tags.description import LARGEST, Description
from gpumon.tags.devices import find_devices
from gpumon.tags.running import Run

_begun: Counter[str] = Counter()
"""Runs that this process has begun, by name: one that only rank 0 begins does not shift the others."""


def run(
    name: str | None = None,
    *,
    epochs: int | None = None,
    devices: str | Sequence[str] | None = None,
    framework: str | None = None,
    batch: int | None = None,
    run_id: str | None = None,
    directory: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Run:
    """Begin a run: a training that gpumon shows, and whose samples it tags with epoch, step and phase.

    Use it as a context manager, or call `finish()` at the end. `name` defaults to the script's;
    `epochs` is how many are planned; `batch` how many samples a step of this process has, where its
    loader does not tell; `devices` are UUIDs (`GPU-…`, `MIG-…`) where gpumon cannot find
    them by itself; `run_id` is shared by all ranks of a run and follows from the launcher by default.

    Raises UsageError when an argument makes no sense, and nothing else: where tags cannot be
    published the run works all the same and publishes nothing.
    """
    if epochs is not None and (not isinstance(epochs, int) or not 0 <= epochs <= LARGEST):
        raise UsageError(f"epochs={epochs!r}: give a number from 0 to {LARGEST}, or leave it out")
    if batch is not None and (type(batch) is not int or not 0 <= batch <= LARGEST):
        raise UsageError(f"batch={batch!r}: give the number of samples of a step, or leave it out")
    given = (devices,) if isinstance(devices, str) else tuple(devices or ())
    for device in given:
        if not isinstance(device, str) or not device.startswith(("GPU-", "MIG-")):
            raise UsageError(f"devices={device!r}: give UUIDs such as GPU-8932f937-…; 'nvidia-smi -L' lists them")
    env = os.environ if env is None else env
    name = str(name) if name is not None else default_name(sys.argv)
    where, begun = ranks.place(env, sys.modules), _begun[name]
    _begun[name] += 1
    alone = where.world_size == 1

    def look() -> tuple[str, ...]:
        return given or find_devices(sys.modules, env, alone=alone)

    described = Description(
        name=name,
        id=run_id or ranks.run_id(name, where, begun, ranks.parent_identity(starter=where.starter), os.getuid()),
        framework=framework if framework is not None else "torch" if "torch" in sys.modules else "",
        rank=where.rank,
        local_rank=where.local_rank,
        world_size=max(1, where.world_size),
        devices=look(),
        visible=env.get("CUDA_VISIBLE_DEVICES", ""),
        order=env.get("CUDA_DEVICE_ORDER", ""),
        epochs=epochs or 0,
        batch=batch or 0,
    )

    def place() -> str:
        return paths.tag_dir_for_client(paths.places(directory, env=env))

    return Run(Board(place, described), epochs, look)


def default_name(argv: Sequence[str]) -> str:
    """The name of the script: `train` for `python train.py`."""
    script = os.path.basename(argv[0]) if argv else ""
    stem = os.path.splitext(script)[0]
    if stem == "__main__":  # python -m package
        stem = os.path.basename(os.path.dirname(argv[0]))
    return stem if stem not in ("", "-c", "-m", "-") else "run"
