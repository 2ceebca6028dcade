"""Finds graphics cards in sysfs, with their names and power state. Nothing that is read here wakes a card."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

from gpumon.common.text import clean
from gpumon.sources.drm.files import list_folder, read_bytes, read_fields, read_text

AMDGPU, I915, XE = "amdgpu", "i915", "xe"
DRIVERS = (AMDGPU, I915, XE)
"""Kernel drivers whose cards this source reads. NVIDIA's cards are read through NVML."""
CLASS = "/sys/class/drm"
PCI_DEVICES = "/sys/bus/pci/devices"
_CARD, _RENDER = re.compile(r"card\d{1,4}"), re.compile(r"renderD(\d{1,4})")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_IDS = re.compile(r"([0-9A-F]{4}):([0-9A-F]{4})", re.IGNORECASE)
_UNIQUE_ID = re.compile(r"[0-9a-f]{1,16}")
_SUSPENDED = ("suspended", "suspending", "resuming")
_LONGEST_LIST = 4 << 20
"""Maximum bytes of a list of names of cards."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card of one of `DRIVERS`."""

    folder: str
    """Path of the device's folder in sysfs."""
    driver: str
    address: str
    """Address on the PCI bus, such as `0000:03:00.0`; empty if the device is not on the bus."""
    device_id: str = ""
    """PCI device id as 4 hexadecimal digits in lower case; empty if it cannot be read."""
    node: str = ""
    """Path of the card's folder in /sys/class/drm, where i915 has some of its files."""
    render_minor: int = -1
    """Number of the render node, such as 128 for /dev/dri/renderD128; -1 if there is none."""

    @property
    def key(self) -> str:
        """Text that identifies the card while it is in its slot."""
        return self.address or self.folder


def find_cards(root: str = "") -> list[Card]:
    """Return the cards of this machine, sorted by address. `root`: folder put before all paths."""
    folder = f"{root}{CLASS}"
    nodes = list_folder(folder)
    # Virtual machines may have a render node only.
    names = [name for name in nodes if _CARD.fullmatch(name)] + [name for name in nodes if _RENDER.fullmatch(name)]
    cards: dict[str, Card] = {}
    for name in names:
        card = _read_card(f"{folder}/{name}")
        if card is not None and card.key not in cards:
            cards[card.key] = card
    return sorted(cards.values(), key=lambda card: card.key)


def _read_card(node: str) -> Card | None:
    folder = f"{node}/device"
    fields = read_fields(f"{folder}/uevent")
    driver = fields.get("DRIVER", "")
    address = fields.get("PCI_SLOT_NAME", "").lower()
    # Partitions of a card are platform devices with a render node. KFD lists them together with their card.
    if driver not in DRIVERS or not _ADDRESS.fullmatch(address):
        return None
    ids = _IDS.fullmatch(fields.get("PCI_ID", ""))
    minors = [int(match[1]) for name in list_folder(f"{folder}/drm") if (match := _RENDER.fullmatch(name))]
    return Card(
        folder=folder,
        driver=driver,
        address=address,
        device_id=ids[2].lower() if ids else "",
        node=node,
        render_minor=min(minors, default=-1),
    )


def is_asleep(card: Card) -> bool:
    """Return whether the card is powered down. Reading any sensor would wake it."""
    return read_text(f"{card.folder}/power/runtime_status") in _SUSPENDED


def is_present(card: Card, root: str = "") -> bool:
    """Return whether the PCI bus still has the card, with any driver or none."""
    return os.path.isdir(f"{root}{PCI_DEVICES}/{card.address}")


def unique_id(card: Card) -> str:
    """Return the serial number that the driver reports as 16 hexadecimal digits; empty if there is none.

    ROCm's name of the card is `GPU-` followed by this number.
    """
    text = read_text(f"{card.folder}/unique_id").lower().removeprefix("0x")
    return text.zfill(16) if _UNIQUE_ID.fullmatch(text) and int(text, 16) else ""


def card_name(card: Card, root: str = "") -> str:
    """Return the name of the card's model. It begins with the name of the vendor."""
    vendor = "AMD" if card.driver == AMDGPU else "Intel"
    text = ""
    if card.driver == AMDGPU:
        revision = read_text(f"{card.folder}/revision").removeprefix("0x").lower()
        text = read_text(f"{card.folder}/product_name") or _amd_name(root, card.device_id, revision)
    text = clean(text or _pci_name(root, card), 64)
    if not text:
        return f"{vendor} GPU {card.device_id}".rstrip()
    return text if text.lower().startswith(f"{vendor.lower()} ") else f"{vendor} {text}"


@cache
def _amd_name(root: str, device_id: str, revision: str) -> str:
    """Return the name in libdrm's list, whose lines are `device id, revision, name`; empty if it is not listed."""
    content = read_bytes(f"{root}/usr/share/libdrm/amdgpu.ids", _LONGEST_LIST)
    for line in content.decode("utf-8", "replace").splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and parts[0].lower() == device_id and parts[1].lower() == revision:
            return parts[2]
    return ""


_PCI_LISTS = ("/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids")
_PCI_VENDORS = {AMDGPU: "1002", I915: "8086", XE: "8086"}


def _pci_name(root: str, card: Card) -> str:
    """Return the name in the list of PCI ids, such as `Arc A770` of `DG2 [Arc A770]`; empty if it is not listed."""
    return _listed_name(root, _PCI_VENDORS[card.driver], card.device_id) if card.device_id else ""


@cache
def _listed_name(root: str, vendor_id: str, device_id: str) -> str:
    for path in _PCI_LISTS:
        is_vendor = False
        for line in read_bytes(f"{root}{path}", _LONGEST_LIST).decode("utf-8", "replace").splitlines():
            if line[:1] not in ("\t", "#", ""):
                is_vendor = line.startswith(vendor_id)
            elif is_vendor and line.startswith(f"\t{device_id} "):
                name = line[1:].partition(" ")[2].strip()
                match = re.search(r"\[([^\]]+)\]", name)
                return match[1] if match else name
    return ""


NVIDIA = "0x10de"


def is_integrated(card: Card) -> bool:
    """Return whether the GPU is part of a processor. Only cards count PCIe replays or report memory activity."""
    if card.driver != AMDGPU:
        return card.address.startswith("0000:00:")
    return not any(os.path.exists(f"{card.folder}/{name}") for name in ("pcie_replay_count", "mem_busy_percent"))


def relevant_cards(root: str = "") -> list[Card]:
    """Return the cards to show. A GPU that is part of a processor is shown only if the machine has no other GPU."""
    cards = find_cards(root)
    discrete = [card for card in cards if not is_integrated(card)]
    if len(discrete) == len(cards):
        return cards
    return discrete if discrete or _has_nvidia(root) else cards


def _has_nvidia(root: str) -> bool:
    devices = f"{root}{PCI_DEVICES}"
    return any(
        read_text(f"{devices}/{name}/vendor") == NVIDIA and read_text(f"{devices}/{name}/class").startswith("0x03")
        for name in list_folder(devices)
    )
