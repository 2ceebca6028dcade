"""Start-up hook of every Python under `gpumon run --auto`, whatever it is for: it must cost next to nothing.

It sets up the import hook and takes itself out of the way: off `sys.path`, and its name is given to the
`sitecustomize` that would have run without us. What it needs of importlib is loaded in every Python under these
names; `importlib` itself would cost milliseconds.
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
        except Exception:  # whatever it is: the program that starts here is not ours to disturb
            sys.modules.pop("_gpumon_auto", None)


def _run_next(directory: str) -> None:
    """The sitecustomize that we hide. What it raises is its own, and so is that there is none: `site` expects both."""
    sys.path[:] = [place for place in sys.path if place.rstrip("/") != directory]
    spec = external.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = sys.modules["sitecustomize"] = bootstrap.module_from_spec(spec)
    spec.loader.exec_module(module)


_set_up(__file__.rpartition("/")[0])
_run_next(__file__.rpartition("/")[0])
