"""Checks of the kernel log since boot: XID errors, cards that did not start, refused modules, and OOM kills."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.cli.doctor.machine import KernelMessage, Machine
from gpumon.common.check_result import Check, Condition
from gpumon.model.device import Device
from gpumon.model.remedies import advice_clause
from gpumon.model.units import counted, short_duration
from gpumon.model.xids import worse, xid_of

KERNEL_LOG = "kernel log"
_RECENT = 86400.0
"""Age in seconds above which a message is only a note, because the fault may have been fixed since."""
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,16})\): (\d{1,5})\b")


class _Rule(NamedTuple):
    """Messages that mean one fault."""

    name: str
    pattern: re.Pattern[str]
    text: str
    """The finding, with the groups of the match as {0}, {1} …"""
    remedy: str
    is_lasting: bool = True
    """Whether the fault lasts until it is fixed or the machine restarts."""


_RULES = (
    _Rule(
        "Secure Boot",
        re.compile(
            r"Loading of (?:unsigned module|module with unavailable key) is rejected|Lockdown: modprobe: unsigned"
        ),
        "the kernel refuses unsigned modules, because Secure Boot is on: NVIDIA's module may not be loaded",
        "sign the module and enroll its key with 'sudo mokutil --import', or turn Secure Boot off in the firmware",
    ),
    _Rule(
        "driver branch",
        re.compile(r"NVRM: The NVIDIA (.{1,60}?) GPU installed in this system is\s+supported through the NVIDIA (\S+)"),
        "this driver does not support the {0}, only the branch {1} does",
        "install NVIDIA's driver of the branch {1}",
    ),
    _Rule(
        "API mismatch",
        re.compile(r"NVRM: API mismatch: the client has the version ([\d.]+\d)"),
        "a program came with libraries of driver version {0}, which the loaded kernel module does not accept",
        "restart the machine after an update of the driver, or the container that has the other libraries",
        is_lasting=False,
    ),
    _Rule(
        "PCI memory",
        re.compile(r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid|NVRM: BAR\d is 0M"),
        "the firmware assigned no memory region to a GPU",
        "turn on 'Above 4G Decoding' in the firmware, or start the kernel with 'pci=realloc'",
    ),
    _Rule(
        "GPU start",
        re.compile(r"NVRM: GPU ([0-9a-fA-F:.]{1,16}): RmInitAdapter failed"),
        "the driver could not start the GPU at {0}",
        "turn the machine off and on again; if the error returns, check power cables and slot of the card",
    ),
    _Rule(
        "soft lockup",
        re.compile(
            r"watchdog: BUG: soft lockup - CPU#(\d{1,4}) stuck for (\d{1,6})s! \[((?:nvidia|UVM|nv_)[^:\]]{0,16})"
        ),
        "CPU {0} was stuck for {1} s in the driver's thread {2}",
        "restart the machine; if the error returns, update the driver",
        is_lasting=False,
    ),
    _Rule(
        "OOM kill",
        re.compile(r"[Oo]ut of memory: Killed process (\d{1,8}) \((.{1,16}?)\)"),
        "the kernel ended the process {1} (pid {0}), because host memory was exhausted",
        "use fewer DataLoader workers or smaller buffers in host memory, or raise the memory limit",
        is_lasting=False,
    ),
)


def kernel_log_checks(machine: Machine) -> Iterator[Check]:
    """Check the kernel log, if this user may read it."""
    messages = machine.kernel_log
    if messages is None:
        if not machine.is_container:
            text = "this user may not read it: XID errors before the daemon's start are not checked"
            yield Check(KERNEL_LOG, Condition.NOTE, text, "run 'sudo gpumon doctor'")
        return
    yield from _xid_checks(messages, machine.uptime())
    for rule in _RULES:
        yield from _rule_checks(rule, messages, machine.uptime())


def _xid_checks(messages: Sequence[KernelMessage], uptime: float) -> Iterator[Check]:
    """Yield a warning for each GPU whose worst XID error concerns the card. Errors of applications are no fault."""
    worst: dict[str, int] = {}
    latest: dict[str, float] = {}
    for message in messages:
        if match := _XID.search(message.text):
            address, code = match[1], int(match[2])
            if xid_of(code).is_of_card:
                worst[address] = worse(code, worst.get(address, 0))
                latest[address] = message.seconds
    for address, code in worst.items():
        xid, device = xid_of(code), Device("", -1, "NVIDIA GPU", address=address)
        text = f"the GPU at PCI address {address} had {xid.text} {_ago(uptime - latest[address])}"
        yield Check("XID", _condition(uptime - latest[address]), text, advice_clause(xid.action, device))


def _rule_checks(rule: _Rule, messages: Sequence[KernelMessage], uptime: float) -> Iterator[Check]:
    """Yield a warning with the newest message that matches, and the number of messages."""
    matches = [(message, match) for message in messages if (match := rule.pattern.search(message.text))]
    if not matches:
        return
    message, match = matches[-1]
    text = f"{rule.text.format(*match.groups())} ({_ago(uptime - message.seconds)})"
    if len(matches) > 1:
        text += f"; {counted(len(matches), 'such message')} since boot"
    condition = Condition.WARNING if rule.is_lasting else _condition(uptime - message.seconds)
    yield Check(rule.name, condition, text, rule.remedy.format(*match.groups()))


def _condition(age: float) -> Condition:
    return Condition.WARNING if age < _RECENT else Condition.NOTE


def _ago(age: float) -> str:
    return f"{short_duration(max(0.0, age))} ago"
