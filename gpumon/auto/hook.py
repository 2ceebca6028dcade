"""Waits for a framework to be imported, then has it changed by `patches`. Loaded by path, without the package.

Nothing of gpumon is imported before that, and nothing at all goes wrong for the program: a framework of
another shape than expected stays as it is. Every Python loads this, so it imports what is loaded anyway.
"""

from __future__ import annotations

import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

AWAITED = {
    "accelerate.accelerator": "accelerate",
    "ignite.engine.engine": "ignite",
    "keras.src.callbacks.callback_list": "keras",
    "lightgbm.engine": "lightgbm",
    "lightning.pytorch.trainer.connectors.callback_connector": "lightning",
    "pytorch_lightning.trainer.connectors.callback_connector": "lightning",
    "sklearn.model_selection._search": "sklearn",
    "transformers.trainer_callback": "transformers",
    "xgboost.callback": "xgboost",
}
"""Modules whose import is awaited, and the function of `patches` that changes each."""

_HERE = __file__.rpartition("/")[0]
_PACKAGE = _HERE.rpartition("/")[0]


class Awaiting:
    """A finder on `sys.meta_path` that finds nothing itself; it looks what the others find."""

    def __init__(self) -> None:
        self._awaited = dict(AWAITED)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for all modules but those awaited; of these, what the next finder says, with a patch to follow."""
        patch = self._awaited.pop(name, None)
        if patch is None:
            return None
        spec = next(filter(None, (_ask(finder, name, path, target) for finder in sys.meta_path)), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Patching(spec.loader, patch)  # type: ignore[assignment]  # it answers like a loader
        return spec


class Patching:
    """A loader in place of another one, until the module has been loaded."""

    def __init__(self, loader: Any, patch: str) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the other one does."""
        spec.loader = self._loader
        try:
            module: ModuleType | None = self._loader.create_module(spec)
        finally:
            spec.loader = self  # type: ignore[assignment]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Load it as the other one does, leave no trace of this one, and patch it."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            getattr(_patches(), self._patch)(module)
        except Exception as error:  # another version than expected: it stays as it is
            del error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Fallback:
    """The last finder: gives the package gpumon to a Python that has none, and only that package."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The package beside this file."""
        if name != "gpumon":
            return None
        return spec_from_file_location(name, f"{_PACKAGE}/__init__.py", submodule_search_locations=[_PACKAGE])


def install() -> None:
    """Wait for frameworks from now on."""
    sys.meta_path.insert(0, Awaiting())


def offer_package() -> None:
    """Make `import gpumon` work where it did not; called when a callback is about to be made."""
    if Fallback not in sys.meta_path:
        sys.meta_path.append(Fallback)


def _patches() -> ModuleType:
    spec = spec_from_file_location("_gpumon_auto_patches", f"{_HERE}/patches.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    module.offer_package = offer_package  # type: ignore[attr-defined]
    spec.loader.exec_module(module)
    return module


def _ask(finder: Any, name: str, path: object, target: object) -> ModuleSpec | None:
    if isinstance(finder, Awaiting):
        return None
    found: ModuleSpec | None = finder.find_spec(name, path, target)
    return found
