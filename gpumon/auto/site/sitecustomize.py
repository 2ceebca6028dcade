"""Startup code of every Python process under `gpumon run --auto`. It must be fast, because most processes are not
trainings.

It installs the import hook, removes its own directory from `sys.path`, and runs the `sitecustomize` that would have run
without gpumon. It uses the frozen parts of importlib, which every Python has already loaded. Importing `importlib`
itself would take milliseconds.
"""

import _frozen_importlib as bootstrap
import _frozen_importlib_external as external
import sys


def _set_up(directory: str) -> None:
    if sys.version_info >= (3, 11):  # noqa: UP036  # the command may run any Python
        try:
            spec = external.spec_from_file_location("_gpumon_auto", directory.rpartition("/")[0] + "/hook.py")
            assert spec is not None
            assert spec.loader is not None
            hook = sys.modules["_gpumon_auto"] = bootstrap.module_from_spec(spec)
            spec.loader.exec_module(hook)
            hook.install()
        except Exception:  # no error may disturb the program that is starting
            sys.modules.pop("_gpumon_auto", None)


def _run_next(directory: str) -> None:
    """Run the `sitecustomize` that gpumon's own one hides.

    Raises ImportError if there is none. Exceptions that it raises are passed on. `site` handles both in the same way as
    without gpumon.
    """
    sys.path[:] = [place for place in sys.path if place.rstrip("/") != directory]
    spec = external.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = sys.modules["sitecustomize"] = bootstrap.module_from_spec(spec)
    spec.loader.exec_module(module)


_set_up(__file__.rpartition("/")[0])
_run_next(__file__.rpartition("/")[0])
