"""Tables as Parquet, for the exports of runs and of history."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import import_module

from gpumon.common.errors import GpumonError, pip

Column = tuple[type, Sequence[object]]
"""The type of its values, `str`, `int` or `float`, and the values; None is missing."""


def parquet_bytes(columns: Mapping[str, Column]) -> bytes:
    """Return a table by the names of its columns as Parquet. Raises GpumonError without pyarrow."""
    try:
        pyarrow, writer = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise GpumonError(
            f"Parquet requires pyarrow: install it with '{pip('install pyarrow')}', or use --format csv"
        ) from error
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    arrays = {name: pyarrow.array(values, types[kind]) for name, (kind, values) in columns.items()}
    out = io.BytesIO()
    writer.write_table(pyarrow.table(arrays), out)
    return out.getvalue()
