"""The table of XID errors, with which NVIDIA's driver reports faults: meaning, severity, and what to do.

The source is NVIDIA's "Xid Catalog" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, 2026-09): its
description, trigger conditions and immediate action for each code, in our words. The severity is warning or critical if
the action concerns the card, and info if an application caused the error.
"""

from __future__ import annotations

from typing import NamedTuple


class Xid(NamedTuple):
    """The meaning of an XID error code, its severity, and a suggested action."""

    code: int
    meaning: str
    """Clause that describes the error."""
    severity: str
    """`info` if the card has no fault, `warning` if the card should be reset or checked when it is free, and `critical`
    if it should be reset or checked now."""
    action: str
    """Sentence that says what to do; empty if there is nothing to do."""

    @property
    def text(self) -> str:
        """Code and meaning, such as `XID error 79: the GPU fell off the bus`."""
        return f"XID error {self.code}: {self.meaning}"

    @property
    def is_repair(self) -> bool:
        """Whether the action resets the GPU or restarts the machine."""
        return "{reset}" in self.action or "{restart}" in self.action

    @property
    def is_of_card(self) -> bool:
        """Whether the card or its machine needs attention."""
        return self.severity != "info"


_VENDOR = "if the error returns, ask the vendor of {card}"
_RESTART = "restart the application; if the error returns with other applications, ask the vendor of {card}"
_CHECK = "check the application"
_SANITIZE = "check the application, for example with compute-sanitizer"
_RESET = f"{{reset}}; or {{restart}}; {_VENDOR}"
_RESET_IDLE = "when the runs on this GPU have finished, {reset}"
_NVLINK = "{reset}; {other_end}; or {restart}; if the error returns, ask the vendor of the machine"
_FIRMWARE_RESET = (
    "{reset}; if the error returns, turn the machine's power off and on, which ends everything that runs on it, and "
    "update the driver"
)
_DRIVER = "if the error returns, update the driver"
_CATALOG = "see NVIDIA's Xid catalog"
_WORN = "if its power swings matter, ask the vendor of {card}"

_COPY = "a copy engine stopped with an error"
_VIDEO = "a video, JPEG or optical flow engine stopped with an error"
_FIRMWARE = "an error in the driver or its firmware; a single error needs no action"
_SECURE = "an error of encrypted traffic over NVLink, in confidential computing"
_LINK = "an error on an NVLink connection"

# code, meaning, severity, action
XIDS: tuple[Xid, ...] = (
    Xid(8, "the GPU did not finish an application's work in time", "info", _RESTART),
    Xid(11, "an application sent invalid commands", "info", _CHECK),
    Xid(13, "a kernel of an application failed, such as at an address out of bounds; the GPU has no fault", "info",
        _SANITIZE),
    Xid(14, "an error that a program caused on purpose, as tests do", "info", ""),
    Xid(25, "an application sent commands that are not allowed", "info", _CHECK),
    Xid(31, "an application accessed GPU memory that is not its own; the GPU has no fault", "info",
        _SANITIZE),
    Xid(32, "commands were corrupted on PCIe, usually not by the application", "warning",
        "restart the application; if the error returns, check slot, riser and cables of {card}"),
    *(Xid(code, _COPY, "info", _RESTART) for code in (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))),
    *(Xid(code, _FIRMWARE, "info", _DRIVER) for code in (37, 38, 66, 67)),
    Xid(43, "an application was stopped because of its own fault; the GPU has no fault", "info",
        _CHECK),
    Xid(44, "a fault while the GPU switched between applications", "info",
        _VENDOR),
    Xid(45, "the driver ended an application's work: the application was stopped, or an earlier error is the cause",
        "info",
        ""),
    Xid(46, "the GPU stopped working", "critical", _RESET),
    Xid(48, "an uncorrectable (double-bit) memory error", "critical", _RESET),
    Xid(54, "a power cable of the card is missing, or not plugged in well", "warning",
        "check the power cables of {card}"),
    Xid(62, "a controller inside the GPU halted", "critical", _RESET),
    Xid(63, "faulty memory was marked, and is replaced by spare memory at the next reset", "warning", _RESET_IDLE),
    Xid(64, "faulty memory could not be replaced by spare memory", "critical", _RESET),
    Xid(69, "an application sent commands that this engine does not have; the GPU has no fault", "info",
        _CHECK),
    Xid(74, "an error on an NVLink connection, of this GPU or of the one at the other end", "critical", _NVLINK),
    Xid(78, "a virtual GPU could not be started", "warning", "update the drivers of host and guest"),
    Xid(79, "the GPU fell off the bus: it no longer answers over PCIe", "critical",
        "{restart}; check power, slot and temperature of {card}; if the error returns, ask its vendor"),
    Xid(80, "an application's commands arrived damaged", "info", _RESTART),
    *(Xid(code, _VIDEO, "info", _RESTART)
      for code in (60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 142)),
    Xid(92, "many memory errors were corrected: the memory may be failing", "warning",
        "watch its memory errors; if they continue, ask the vendor of {card}"),
    Xid(93, "the driver skipped a write to the card's InfoROM to limit its wear", "info", ""),
    Xid(94, "an uncorrectable memory error, contained: it hit one application", "warning",
        f"restart that application; {_RESET_IDLE}"),
    Xid(95, "an uncorrectable memory error, not contained: results of all applications on it may be wrong", "critical",
        "{reset}; or {restart}; check the results of the runs that were on this GPU"),
    *(Xid(code, "a test message of the server's management", "info", "") for code in (106, 107)),
    Xid(109, "the GPU could not switch between applications in time", "critical", _RESET),
    Xid(110, "a security fault", "critical", _RESET),
    Xid(119, "the GPU's own processor (GSP) did not answer in time", "critical",
        _FIRMWARE_RESET),
    Xid(120, "the firmware of the GPU's own processor (GSP) failed", "critical",
        _FIRMWARE_RESET),
    Xid(121, "an error on the connection of GPU and CPU (C2C), corrected", "warning", _RESET_IDLE),
    Xid(136, "an NVLink connection could not be set up", "critical", _NVLINK),
    Xid(137, "an application made an illegal access to the memory of another GPU over NVLink", "info",
        _SANITIZE),
    Xid(140, "an uncorrectable memory error; the driver could not mark the faulty memory", "critical", _RESET),
    Xid(141, "a fast path of CUDA failed; a single error needs no action", "info", ""),
    Xid(143, "the GPU could not be initialized", "critical", _RESET),
    *(Xid(code, _LINK, "warning", f"{_CATALOG}; if the error returns: {{reset}}; {{other_end}}")
      for code in range(144, 151)),
    Xid(151, "keys of confidential computing could not be renewed", "warning",
        "restart the virtual machine, which ends everything that runs on it"),
    Xid(154, "the driver reports how the GPU recovers from earlier errors", "warning",
        "check 'dmesg' or the metric gpu.recovery_action for the required action"),
    Xid(155, "an NVLink connection went down, perhaps on purpose", "warning", _NVLINK),
    Xid(156, "a faulty part of the GPU was retired", "warning", _RESET_IDLE),
    Xid(157, "a faulty part of the GPU could not be retired", "warning", "ask the vendor of {card}"),
    Xid(158, "the GPU did not answer in time, and does not recover", "critical", _RESET),
    Xid(159, "an error on the connection of GPU and CPU (C2C)", "warning", _CATALOG),
    Xid(160, "a channel of the GPU was retired", "info", _DRIVER),
    Xid(161, "a channel of the GPU could not be retired", "info", _DRIVER),
    Xid(162, "power smoothing works again", "info", ""),
    Xid(163, "power smoothing stopped, possibly because of heat", "warning", "check the cooling of {card}"),
    Xid(164, "the component that smooths the card's power is nearly worn out", "warning", _WORN),
    Xid(165, "the component that smooths the card's power is worn out: its power swings", "warning", _WORN),
    *(Xid(code, _SECURE, "warning", _CATALOG) for code in (166, 170)),
    Xid(167, "a fatal timeout on PCIe", "warning", _CATALOG),
    Xid(168, "errors in protected memory: the GPU may have less memory than before", "warning",
        "turn ECC on for this GPU, or {restart}"),
    Xid(169, "a controller inside the GPU halted (SEC2)", "warning", _CATALOG),
    Xid(171, "an uncorrectable error of the device memory", "warning", _RESET_IDLE),
    Xid(172, "an uncorrectable error of the memory inside the GPU", "warning", _RESET_IDLE),
    Xid(173, "the connection of GPU and CPU (C2C) failed", "critical", _CATALOG),
)  # fmt: skip
_BY_CODE = {xid.code: xid for xid in XIDS}
_RANK = {"info": 0, "warning": 1, "critical": 2}


def xid_of(code: int) -> Xid:
    """Return the row of a code. If the code is not in the table, the row says that gpumon has no description."""
    xid = _BY_CODE.get(code)
    return xid or Xid(code, "an error without a description in gpumon", "warning", _CATALOG)


def worse(code: int, other: int) -> int:
    """Return the more severe of two codes, or the first if they are equally severe. 0 means no error.

    Of two codes with the same severity level, the one that requires a restart of the machine is more severe. For
    example, a GPU that has fallen off the bus cannot be reset.
    """
    if not code or not other:
        return code or other
    return other if _severity(other) > _severity(code) else code


def _severity(code: int) -> tuple[int, bool]:
    xid = xid_of(code)
    return _RANK[xid.severity], "{restart}" in xid.action and "{reset}" not in xid.action
