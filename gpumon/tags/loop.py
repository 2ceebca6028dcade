"""`gpumon.run`: the tags of a training loop that its author writes by hand.

    with gpumon.run("resnet50", epochs=90) as run:
        for epoch in run.epochs():
            for batch in run.steps(loader):
                ...
            with run.phase("validate"):
                ...
            run.log(loss=loss, accuracy=accuracy)

Only `run` itself raises, and only for arguments that make no sense; numbers may be of any numeric type. Nothing
else here raises, waits, or touches a GPU: the training comes first.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import inf

from gpumon import paths
from gpumon.errors import UsageError
from gpumon.run_facts import LARGEST, RunFacts
from gpumon.tags import ranks
from gpumon.tags.client import Board
from gpumon.tags.description import Description
from gpumon.tags.devices import find_devices, framework_of
from gpumon.tags.naming import default_name
from gpumon.tags.running import ActiveRun
from gpumon.tags.telling import telling
from gpumon.tags.values import whole
from gpumon.tags.warn import warn_once
from gpumon.text import clean
from gpumon.vendors import IDENTIFIERS, NVIDIA

LOG_WAIT = 3.0
"""Seconds that the end of a run may wait for the values of its last epochs, if it logs them."""
LONGEST_WAIT = 3600
_begun: Counter[str] = Counter()
"""Runs that this process has begun, by name: one that only rank 0 begins does not shift the others."""


def run(
    name: str | None = None,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    devices: str | Sequence[str] | None = None,
    framework: str | None = None,
    batch: int | None = None,
    tags: str | Sequence[str] = (),
    metrics: str | Sequence[str] = (),
    run_id: str | None = None,
    log_to: object = None,
    log_wait: float = LOG_WAIT,
    directory: str | None = None,
    env: Mapping[str, str] | None = None,
) -> ActiveRun:
    """Begin a run: a training that gpumon shows, and whose samples it tags with epoch, step and phase.

    Use it as a context manager, or as a decorator of a function of which each call is a run; or keep what it gives
    and call `finish()` at the end. `name` defaults to that of the script or notebook; `epochs` and
    `steps` are how many are planned, `steps` over the whole run; `batch` how many samples a step of this process has,
    where its loader does not say; `devices` are UUIDs (`GPU-…`, `MIG-…`) where gpumon cannot find them by itself;
    `tags` are words to find the run by; `metrics` are names of logged numbers, or patterns such as `rewards/*`, that
    alone are shown, where the most telling eight of them are not the right ones; `run_id` is shared by all ranks of a
    run and follows from the launcher by default.

    `log_to` names where gpumon writes its values of each epoch: "tensorboard", "wandb", "mlflow", "csv:PATH", a
    logger, a function of a dict and the epoch's number, or a list of these (docs/runs.md). The end of the run waits
    `log_wait` seconds at most for those of its last epochs.

    Raises UsageError when an argument makes no sense, and nothing else: where tags cannot be
    published the run works all the same and publishes nothing.
    """
    planned = None if epochs == inf else _count("epochs", epochs, f"give a number from 0 to {LARGEST}")
    planned_steps = None if steps == inf else _count("steps", steps, f"give a number from 0 to {LARGEST}")
    samples = _count("batch", batch, "give the number of samples per step")
    given = _uuids(devices)
    env = os.environ if env is None else env
    name = str(name) if name is not None else default_name(sys.argv, env, vars(sys.modules["__main__"]))
    where, begun = ranks.place(env, sys.modules), _begun[name]
    _begun[name] += 1
    alone = where.world_size == 1

    def places() -> paths.Places:
        return paths.places(directory, env=env)

    def look() -> tuple[str, ...]:
        return given or find_devices(sys.modules, env, alone=alone)

    described = Description(
        name=name,
        id=ranks.of_attempt(
            run_id or ranks.run_id(name, where, begun, ranks.parent_identity(starter=where.starter), _user()),
            where.attempt,
        ),
        framework=framework if framework is not None else framework_of(sys.modules),
        rank=where.rank,
        local_rank=where.local_rank,
        world_size=max(1, where.world_size),
        devices=look(),
        visible=env.get(NVIDIA.numbers, ""),
        order=env.get(NVIDIA.order[0], ""),
        epochs=planned or 0,
        facts=RunFacts(batch=samples or 0, planned_steps=planned_steps or 0, job=env.get("SLURM_JOB_ID", "")),
    )

    log = None
    if log_to is not None and where.rank == 0:
        # By its name, since it reads the ledger: a training without loggers never imports that.
        if not isinstance(log_wait, int | float) or not 0 <= log_wait <= LONGEST_WAIT:
            raise UsageError(f"log_wait={clean(repr(log_wait), 80)}: give seconds from 0 to {LONGEST_WAIT}")
        attach = import_module("gpumon.loggers.attach")
        log = attach.epoch_log(log_to, run=described.id, where=places, wait=log_wait)

    def place() -> str:
        return paths.tag_dir_for_client(places())

    def again() -> ActiveRun:
        return run(
            name, epochs=planned, steps=planned_steps, devices=given, framework=framework, batch=samples,
            tags=tags, metrics=metrics, run_id=run_id, log_to=log_to, log_wait=log_wait, directory=directory, env=env,
        )  # fmt: skip

    board = Board(place, described)
    wanted = (metrics,) if isinstance(metrics, str) else metrics
    if isinstance(wanted, list | tuple | set | frozenset) and all(isinstance(one, str) for one in wanted):
        board.chosen = tuple(wanted)
    else:
        warn_once("chosen", f"metrics={clean(repr(metrics), 80)}: give names of metrics, or omit it")
    told = telling(board, env, where.local_rank)
    told.begin()
    if tags:
        told.tag(tags if isinstance(tags, list | tuple | set | frozenset) else (tags,))
    begun_run = ActiveRun(board, planned, look, again, told)
    if log is not None:
        log.start(board.path)
        begun_run.listener = log
    return begun_run


def _count(name: str, value: object, advice: str) -> int | None:
    """`value` as a number of things; None where it is None. Raises UsageError for anything else."""
    if value is None:
        return None
    number = whole(value)
    if number is None or not 0 <= number <= LARGEST:
        raise UsageError(f"{name}={clean(repr(value), 80)}: {advice}, or omit it")
    return number


def _uuids(devices: object) -> tuple[str, ...]:
    """The UUIDs of `devices`; none where a framework's own devices are given, which gpumon finds by itself.

    Raises UsageError for anything else.
    """
    given = devices if isinstance(devices, list | tuple | set | frozenset) else () if devices is None else (devices,)
    if any(type(device).__name__.lower() == "device" for device in given):
        warn_once("devices", "devices= takes UUIDs such as GPU-8932f937-…: gpumon looks for those of this process")
        return ()
    for device in given:
        if not isinstance(device, str) or not device.startswith(IDENTIFIERS):
            said = clean(repr(device), 80)
            raise UsageError(f"devices={said}: give UUIDs such as GPU-8932f937-…; '{NVIDIA.listing}' lists them")
    return tuple(given)


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # Windows, where no board can be made
