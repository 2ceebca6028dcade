"""The sensors of a card in sysfs: Documentation/hwmon/sysfs-interface.rst and Documentation/gpu/amdgpu/thermal.rst."""

from __future__ import annotations

import re

from gpumon.sources.drm.files import KernelFile, list_folder, read_text

_LABELED = re.compile(r"(temp|freq|power|energy|fan|in)(\d{1,2})_label")


class Sensors:
    """The files of the `hwmon` folder of a card, by name. The folder is missing on some accelerators."""

    def __init__(self, card_folder: str, driver: str) -> None:
        self.folder = _find_folder(card_folder, driver)
        self._files: dict[str, KernelFile] = {}
        self._names = frozenset(list_folder(self.folder)) if self.folder else frozenset()
        self.labels: dict[tuple[str, str], str] = {}
        """Number of each sensor by its kind and label, such as ("temp", "junction"). Numbers differ between cards."""
        for name in sorted(self._names):
            if match := _LABELED.fullmatch(name):
                label = read_text(f"{self.folder}/{name}").lower()
                self.labels.setdefault((match[1], label), match[2])

    def has(self, name: str) -> bool:
        """Return whether the folder has a file with this name."""
        return name in self._names

    def file(self, name: str) -> KernelFile | None:
        """Return the file with this name; None if there is none."""
        if name not in self._names:
            return None
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = KernelFile(f"{self.folder}/{name}")
        return file

    def labeled(self, kind: str, label: str, suffix: str) -> KernelFile | None:
        """Return the file of the sensor with this label, such as `temp2_input`; None if there is none."""
        number = self.labels.get((kind, label))
        return self.file(f"{kind}{number}_{suffix}") if number is not None else None

    def first(self, *names: str) -> KernelFile | None:
        """Return the first of these files that exists; None if none does."""
        return next((file for name in names if (file := self.file(name)) is not None), None)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()


def _find_folder(card_folder: str, driver: str) -> str:
    """Return the folder of the driver's own sensors; empty if there is none. Others belong to parts of the board."""
    folders = [f"{card_folder}/hwmon/{name}" for name in list_folder(f"{card_folder}/hwmon")]
    return next((folder for folder in folders if read_text(f"{folder}/name") == driver), "")
