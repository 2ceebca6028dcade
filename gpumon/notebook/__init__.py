"""gpumon in notebooks: `%load_ext gpumon`, the magics `%%gpumon` and `%gpumon`, and `cells()`."""

from __future__ import annotations

from gpumon.notebook.extension import cells

__all__ = ["cells"]
