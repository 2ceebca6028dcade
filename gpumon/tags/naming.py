"""The name of a run whose author gave it none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

NOTEBOOK = "notebook"
_KERNEL = "kernel_launcher"
"""Endings of the scripts that start the kernels of Jupyter, VS Code, Kaggle and Colab."""


def default_name(
    argv: Sequence[str], env: Mapping[str, str] | None = None, main: Mapping[str, object] | None = None
) -> str:
    """Return the name of the script, `train` for `python train.py`, or of the notebook.

    `main` is the namespace of `__main__`, in which VS Code leaves the path of a notebook; Jupyter leaves it in `env`.
    """
    if is_notebook(argv):
        return _notebook(env or {}, main or {})
    stem = _stem(argv)
    if stem == "__main__":  # python -m package
        stem = os.path.basename(os.path.dirname(argv[0]))
    return stem if stem not in ("", "-c", "-m", "-") else "run"


def is_notebook(argv: Sequence[str]) -> bool:
    """Whether this process is the kernel of a notebook."""
    return _stem(argv).endswith(_KERNEL)


def _stem(argv: Sequence[str]) -> str:
    return os.path.splitext(os.path.basename(argv[0]) if argv else "")[0]


def _notebook(env: Mapping[str, str], main: Mapping[str, object]) -> str:
    for path in (env.get("JPY_SESSION_NAME", ""), main.get("__vsc_ipynb_file__")):
        stem, kind = os.path.splitext(os.path.basename(path)) if isinstance(path, str) else ("", "")
        if stem and kind == ".ipynb":
            return stem
    return NOTEBOOK
