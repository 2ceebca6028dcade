"""`gpumon.run`: the tags of a training loop that its author writes by hand.

    with gpumon.run("resnet50", epochs=90) as run:
        for epoch in run.epochs():
            for batch in run.steps(loader):
                ...
            with run.phase("validate"):
                ...
            run.log(loss=loss, accuracy=accuracy)

Nothing here raises, waits, or touches a GPU: the training comes first. An argument that makes no sense is left aside
with a warning; numbers may be of any numeric type.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import inf
from typing import Any

from gpumon.common import paths
from gpumon.common.errors import UsageError
from gpumon.model.run import LARGEST, RunFacts
from gpumon.model.vendors import IDENTIFIERS, NVIDIA
from gpumon.tags import ranks
from gpumon.tags.client import Board
from gpumon.tags.description import Description
from gpumon.tags.devices import find_devices, framework_of
from gpumon.tags.naming import default_name
from gpumon.tags.running import ActiveRun
from gpumon.tags.telling import telling
from gpumon.tags.values import whole
from gpumon.tags.warn import shown, warn_once

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
    devices: int | str | Sequence[int | str] | None = None,
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
    where its loader does not say; `devices` are UUIDs (`GPU-…`, `MIG-…`), or numbers as CUDA counts them in this
    process, where gpumon cannot find them by itself;
    `tags` are words to find the run by; `metrics` are names of logged numbers, or patterns such as `rewards/*`, that
    alone are shown, where the most telling eight of them are not the right ones; `run_id` is shared by all ranks of a
    run and follows from the launcher by default.

    `log_to` names where gpumon writes its values of each epoch: "tensorboard", "wandb", "mlflow", "csv:PATH", a
    logger, a function of a dict and the epoch's number, or a list of these (docs/runs.md). The end of the run waits
    `log_wait` seconds at most for those of its last epochs.

    Raises nothing: an argument that makes no sense is left aside with a warning, and where tags cannot be published
    the run works all the same and publishes nothing.
    """
    try:
        return _begin(
            name, epochs=epochs, steps=steps, devices=devices, framework=framework, batch=batch, tags=tags,
            metrics=metrics, run_id=run_id, log_to=log_to, log_wait=log_wait, directory=directory, env=env,
        )  # fmt: skip
    except Exception as error:  # no descriptor is left, a module cannot be read: a training goes on without a run
        warn_once("run", f"this training will not show in gpumon: {type(error).__name__}: {error}")
        return ActiveRun(Board(None, Description(name="run", id="run")), whole(epochs))


def _begin(
    name: object, *, epochs: object, steps: object, devices: Any, framework: object, batch: object, tags: Any,
    metrics: Any, run_id: object, log_to: object, log_wait: float, directory: object, env: Mapping[str, str] | None,
) -> ActiveRun:  # fmt: skip
    planned = _count("epochs", epochs, f"give a number from 0 to {LARGEST}")
    planned_steps = _count("steps", steps, f"give a number from 0 to {LARGEST}")
    samples = _count("batch", batch, "give the number of samples per step")
    if env is None or not isinstance(env, Mapping):
        env = os.environ
    given, visible = _devices(devices, env)
    name = _text("name", name) or default_name(sys.argv, env, vars(sys.modules["__main__"]))
    run_id, where_to = _text("run_id", run_id), _path("directory", directory)
    if framework is not None:
        framework = _text("framework", framework) or ""
    where, begun = ranks.place(env, sys.modules), _begun[name]
    _begun[name] += 1
    alone = where.world_size == 1

    def places() -> paths.Places:
        return paths.places(where_to, env=env)

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
        visible=visible,
        order=env.get(NVIDIA.order[0], ""),
        epochs=planned or 0,
        facts=RunFacts(batch=samples or 0, planned_steps=planned_steps or 0, job=env.get("SLURM_JOB_ID", "")),
    )

    def place() -> str:
        return paths.tag_dir_for_client(places())

    def again() -> ActiveRun:
        return run(
            name, epochs=planned, steps=planned_steps, devices=devices, framework=framework, batch=samples,
            tags=tags, metrics=metrics, run_id=run_id or None, log_to=log_to, log_wait=log_wait, directory=where_to,
            env=env,
        )  # fmt: skip

    board = Board(place, described)
    wanted = (metrics,) if isinstance(metrics, str) else metrics
    if isinstance(wanted, list | tuple | set | frozenset) and all(isinstance(one, str) for one in wanted):
        board.chosen = tuple(wanted)
    else:
        warn_once("chosen", f"metrics={shown(metrics)}: give names of metrics, or omit it")
    told = telling(board, env, where.local_rank)
    told.begin()
    told.tag(tags if isinstance(tags, list | tuple | set | frozenset) else (tags,))
    begun_run = ActiveRun(board, planned, look, again, told)
    begun_run.finds_framework = framework is None
    log = None
    if log_to is not None and where.rank == 0 and board.on:
        # By its name, since it reads the ledger: a training without loggers never imports that.
        if not isinstance(log_wait, int | float) or not 0 <= log_wait <= LONGEST_WAIT:
            warn_once("log_wait", f"log_wait={shown(log_wait)}: give seconds from 0 to {LONGEST_WAIT}")
            log_wait = LOG_WAIT
        try:
            attach = import_module("gpumon.loggers.attach")
            log = attach.epoch_log(log_to, run=described.id, where=places, wait=log_wait)
        except UsageError as error:
            warn_once("log_to", str(error))
        except Exception as error:  # a module that cannot be read
            warn_once("log_to", f"nothing is written to log_to: {type(error).__name__}: {error}")

    if log is not None:
        log.start(board.path)
        begun_run.listener = log
    return begun_run


def _count(name: str, value: object, advice: str) -> int | None:
    """`value` as a number of things; None where it is none, with a warning unless it is None or endless."""
    if value is None or (isinstance(value, float) and value == inf):
        return None
    number = whole(value)
    if number is None or not 0 <= number <= LARGEST:
        warn_once(name, f"{name}={shown(value)}: {advice}, or omit it")
        return None
    return number


def _text(name: str, value: object) -> str:
    """`value` as a text; empty where it is None, or none, with a warning."""
    if value is None:
        return ""
    try:
        return os.fsdecode(value) if isinstance(value, os.PathLike | bytes) else str(value)
    except Exception as error:  # an object of the user's own, that may do anything
        warn_once(name, f"{name}={type(value).__name__}: {type(error).__name__}: {error}")
        return ""


def _path(name: str, value: object) -> str | None:
    """`value` as a path; None where it is None, or none, with a warning."""
    if value is None or isinstance(value, str | bytes | os.PathLike):
        return _text(name, value) or None
    warn_once(name, f"{name}={shown(value)}: give a path, or omit it")
    return None


def _devices(devices: object, env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The UUIDs of `devices`, and the numbers of the driver for others as CUDA_VISIBLE_DEVICES has them.

    A framework's own devices are left aside: gpumon finds them by itself. So is anything else, with a warning.
    """
    if isinstance(devices, str) and "," in devices:
        devices = devices.split(",")
    given = devices if isinstance(devices, list | tuple | set | frozenset | range) else (devices,)
    listed = [entry.strip() for entry in env.get(NVIDIA.numbers, "").split(",") if entry.strip()]
    found: list[str] = []
    for device in given if devices is not None else ():
        number = _number(device)
        if type(device).__name__.lower() == "device":
            warn_once("devices", "devices= takes UUIDs such as GPU-8932f937-…: gpumon looks for those of this process")
        elif isinstance(device, str) and device.strip().startswith(IDENTIFIERS):
            found.append(device.strip())
        elif number is not None and number < (len(listed) or LARGEST):
            found.append(listed[number] if listed else str(number))
        else:
            warn_once(
                "devices",
                f"devices={shown(device)}: give numbers, or UUIDs such as GPU-8932f937-… ('{NVIDIA.listing}')",
            )
    uuids = tuple(device for device in found if device.startswith(IDENTIFIERS))
    numbers = [device for device in found if not device.startswith(IDENTIFIERS)]
    return uuids, ",".join(numbers) or env.get(NVIDIA.numbers, "")


def _number(device: object) -> int | None:
    """The number of a device: 0, "0" or "cuda:0"; None where it has none."""
    if isinstance(device, str):
        text = device.strip().removeprefix("cuda:")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else None
    number = whole(device)
    return number if number is not None and number >= 0 else None


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # Windows, where no board can be made
