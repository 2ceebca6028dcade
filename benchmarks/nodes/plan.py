"""The plan of a simulated cluster: who is on which GPU, and what is broken; the same for the same size and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from random import Random
from typing import NamedTuple

RACK = 20
"""Nodes in a rack."""
_NAMED_BY_RACK = 65
"""Nodes from which on a name tells the rack."""
_USERS = (
    "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kim", "lena", "mallory",
    "niaj", "olivia", "peggy", "quentin", "rupert", "sybil", "trent", "ursula", "victor", "wendy", "xavier",
)  # fmt: skip
_WORK = ("moe-70b", "vit-g-mae", "sd-xl", "whisper-xl", "llama-8b-sft", "bert-large", "protein-gnn", "resnet50-s3")
_FREE = 0.05
"""Share of GPUs that nobody holds, beside whole nodes."""
_FREE_NODES = 0.06
_IDLE = 0.03
"""Share of GPUs whose holders do nothing."""
_WHOLE = 0.45
"""Share of nodes that have one job on all GPUs, which may go on on further nodes."""
_SPANS = (1, 1, 1, 2, 2, 4, 8, 16)
"""Nodes of such a job; at most an eighth of the cluster."""
_SIZES = (1, 1, 1, 2, 2, 4)
"""GPUs of the others."""
_FAULT_EVERY = 40, 250
"""Nodes to a fault of each kind, in a small and in a large cluster."""


class Fault(Enum):
    """A fault of a node."""

    NONE = ""
    LOST = "lost"
    """The driver lost one GPU, and said XID 79."""
    HOT = "hot"
    """Heat lowers the clocks of all GPUs."""
    DAEMON = "daemon"
    """Its exporter answers, and nobody samples."""
    DOWN = "down"
    """Nothing answers."""
    XID = "xid"
    """A program touched memory that is not its own: XID 31."""


class SimulatedModel(NamedTuple):
    """A card."""

    name: str
    memory: float
    """Bytes."""
    idle: float
    """Watts."""
    full: float


MODELS = (
    SimulatedModel("NVIDIA H100 80GB HBM3", 81559 * 2.0**20, 71.0, 655.0),
    SimulatedModel("NVIDIA A100-SXM4-80GB", 81920 * 2.0**20, 58.0, 385.0),
    SimulatedModel("NVIDIA L40S", 46068 * 2.0**20, 34.0, 331.0),
)


class SimulatedJob(NamedTuple):
    """A program on some GPUs of some nodes."""

    number: int
    user: str
    name: str
    """Of its run; empty for a program that publishes none."""
    load: float
    """Mean utilization; 0 for one that holds its GPUs and does nothing."""
    epoch: float
    """Seconds that an epoch takes."""
    epochs: int
    began: float
    """Seconds before the simulation."""


class SimulatedNode(NamedTuple):
    """A node, and the job on each of its GPUs; None: free."""

    number: int
    name: str
    model: SimulatedModel
    jobs: Sequence[SimulatedJob | None]
    fault: Fault


def plan(nodes: int, gpus: int, seed: int = 0) -> list[SimulatedNode]:
    """Return the nodes of a cluster, from number 1."""
    random = Random(f"{nodes} {gpus} {seed}")
    placed = list(_placed(nodes, gpus, random))
    return [
        SimulatedNode(number, _name(number, nodes), _model(number, nodes), jobs, _fault(number, nodes))
        for number, jobs in enumerate(placed, 1)
    ]


def _placed(nodes: int, gpus: int, random: Random) -> Iterator[list[SimulatedJob | None]]:
    """Jobs of each node: large ones on whole nodes, small ones beside each other."""
    number, left = 0, 0
    spanning: SimulatedJob | None = None
    for _ in range(nodes):
        if left:
            left -= 1
            yield [spanning] * gpus
            continue
        if random.random() < _FREE_NODES:
            yield [None] * gpus
            continue
        if random.random() < _WHOLE:
            number += 1
            spanning, left = _job(number, gpus, random), min(random.choice(_SPANS), max(1, nodes // 8)) - 1
            yield [spanning] * gpus
            continue
        found: list[SimulatedJob | None] = []
        while len(found) < gpus:
            if random.random() < _FREE:
                found.append(None)
                continue
            size = min(random.choice(_SIZES), gpus - len(found))
            number += 1
            found += [_job(number, size, random)] * size
        yield found


def _job(number: int, size: int, random: Random) -> SimulatedJob:
    user = _USERS[min(int(random.expovariate(0.22)), len(_USERS) - 1)]
    idle = random.random() < _IDLE * 2 and size <= 4
    named = random.random() < 0.85
    return SimulatedJob(
        number, user, "" if idle or not named else random.choice(_WORK),
        0.0 if idle else random.choice((0.97, 0.94, 0.9, 0.88, 0.76, 0.61, 0.44)),
        random.choice((240.0, 900.0, 3600.0)), random.choice((3, 10, 40, 90, 300)),
        random.uniform(3600.0, 7 * 86400.0),
    )  # fmt: skip


def _name(number: int, nodes: int) -> str:
    if nodes < _NAMED_BY_RACK:
        return f"gn{number:02}"
    rack, slot = divmod(number - 1, RACK)
    return f"r{rack + 1:02}n{slot + 1:02}"


def _model(number: int, nodes: int) -> SimulatedModel:
    """Most are of the first model; the last tenths are of the others."""
    place = number / nodes
    return MODELS[0] if place <= 0.7 else MODELS[1] if place <= 0.9 else MODELS[2]


def _fault(number: int, nodes: int) -> Fault:
    every = _FAULT_EVERY[nodes >= _NAMED_BY_RACK]
    kinds = {27: Fault.LOST, 23: Fault.DOWN, 9: Fault.HOT, 35: Fault.XID, 14: Fault.DAEMON}
    return kinds.get(number % every, Fault.NONE)
