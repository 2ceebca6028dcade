"""Waits until a framework is imported, then patches it with a function of `patches`.

This file is loaded by its path. No other part of gpumon is imported before a framework is imported. An unexpected
version of a framework is left unchanged, so that the program is never disturbed. Every Python process of the command
loads this module, so it imports only modules that Python has already loaded.
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
"""The modules to wait for. The value is the name of the function in `patches` that patches the module."""

_HERE = __file__.rpartition("/")[0]
_PACKAGE = _HERE.rpartition("/")[0]


class PatchingFinder:
    """A finder on `sys.meta_path` that wraps the loaders of awaited modules. Other finders find the modules."""

    def __init__(self) -> None:
        self._awaited = dict(AWAITED)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an awaited module, with a loader that patches it. None for all other modules."""
        patch = self._awaited.pop(name, None)
        if patch is None:
            return None
        spec = next(filter(None, (_find_spec(finder, name, path, target) for finder in sys.meta_path)), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = PatchingLoader(spec.loader, patch)  # type: ignore[assignment]  # it acts as a loader
        return spec


class PatchingLoader:
    """Wraps a loader until the module has been loaded."""

    def __init__(self, loader: Any, patch: str) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with the wrapped loader."""
        spec.loader = self._loader
        try:
            module: ModuleType | None = self._loader.create_module(spec)
        finally:
            spec.loader = self  # type: ignore[assignment]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Load the module with the wrapped loader, remove all references to this loader, and patch the module."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            getattr(_patches(), self._patch)(module)
        except Exception as error:  # an unexpected version is left unchanged
            del error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class FallbackFinder:
    """The last finder on `sys.meta_path`. Finds the package gpumon if this Python does not have it installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of the gpumon package that contains this file; None for all other modules."""
        if name != "gpumon":
            return None
        return spec_from_file_location(name, f"{_PACKAGE}/__init__.py", submodule_search_locations=[_PACKAGE])


def install() -> None:
    """Install the import hook that patches frameworks when they are imported."""
    sys.meta_path.insert(0, PatchingFinder())


def offer_package() -> None:
    """Make gpumon importable if it is not installed. Called before a callback is created."""
    if FallbackFinder not in sys.meta_path:
        sys.meta_path.append(FallbackFinder)


def _patches() -> ModuleType:
    spec = spec_from_file_location("_gpumon_auto_patches", f"{_HERE}/patches.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    module.offer_package = offer_package  # type: ignore[attr-defined]
    spec.loader.exec_module(module)
    return module


def _find_spec(finder: Any, name: str, path: object, target: object) -> ModuleSpec | None:
    if isinstance(finder, PatchingFinder):
        return None
    spec: ModuleSpec | None = finder.find_spec(name, path, target)
    return spec
