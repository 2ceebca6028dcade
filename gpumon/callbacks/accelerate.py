"""A tracker for Accelerate 1.0 or newer.

    import gpumon.callbacks.accelerate

    accelerator = Accelerator(log_with="gpumon")                    # Accelerate 1.15 or newer
    accelerator = Accelerator(log_with=[GpuMonitorTracker(), ...])  # any version
    accelerator.init_trackers("my_project", config={"learning_rate": 1e-3})
    run = accelerator.get_tracker("gpumon", unwrap=True)            # to mark epochs: run.epochs(), run.steps(loader)

The run begins with `init_trackers` and ends with `end_training`. Accelerate passes logged values to a tracker, but no
epochs or steps. The argument `step` of `log` is not used, because each training decides what it counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gpumon.callbacks.frameworks import import_framework
from gpumon.callbacks.hook import Hook, guarded

import_framework("accelerate")

tracking: Any = import_module("accelerate.tracking")  # after the version check, because old versions may lack it


class GpuMonitorTracker(tracking.GeneralTracker):  # type: ignore[misc]  # its type is unknown
    """Shows the configuration and the logged values of a training run in gpumon.

    Accelerate uses the tracker only in the main process.
    """

    name = "gpumon"
    requires_logging_directory = False

    def __init__(self, run_name: str | None = None, **settings: Any) -> None:
        """`run_name` (default: the name of the script or notebook) and `settings` are arguments of `gpumon.run`."""
        super().__init__()
        self._hook = Hook("accelerate", run_name, **settings)

    @property
    def tracker(self) -> Any:
        """The run, as returned by `gpumon.run`; None while no training runs."""
        return self._hook.run

    @guarded
    def start(self) -> None:
        """Begin the run of this training."""
        self._hook.begin(None, 0)

    @guarded
    def store_init_configuration(self, values: Mapping[str, object]) -> None:
        """Store the configuration `values` with the run."""
        if self._hook.run is not None:
            self._hook.run.config(values)

    @guarded
    def log(self, values: Mapping[str, object], step: int | None = None, **kwargs: Any) -> None:
        """Show the logged `values`. `step` is ignored."""
        self._hook.log(values)

    @guarded
    def finish(self) -> None:
        """End the run of this training."""
        self._hook.end()


if hasattr(tracking, "register_tracker_class") and tracking.LOGGER_TYPE_TO_CLASS.get("gpumon") is None:
    tracking.register_tracker_class(GpuMonitorTracker)
