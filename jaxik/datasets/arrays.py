"""Rows of Zarr arrays: by tensorstore where it is installed, which is quicker, by zarr where not; the same files."""

import os
from pathlib import Path
from typing import Any

import numpy as np

# tensorstore ends a process that was forked after it had begun, as loaders of PyTorch do.
_PROCESS = os.getpid()
# Beside the file that tensorstore writes, until that is whole.
LOCK = ".__lock"


def write_rows(array: Any, folder: Path, first: int, last: int, values: np.ndarray) -> None:
    """Write rows of a Zarr array that lies in `folder`."""
    opened = _opened(folder)
    try:
        if opened is not None:
            opened[first:last] = values
            return
    except ValueError:  # any failure: zarr meets it too, and says what the file system said
        pass
    array[first:last] = values


def read_rows(array: Any, folder: Path, first: int, last: int) -> np.ndarray:
    """Read rows of a Zarr array that lies in `folder`."""
    opened = _opened(folder)
    try:
        if opened is not None:
            return opened[first:last].read().result()
    except ValueError:
        pass
    return np.asarray(array[first:last])


def _opened(folder: Path) -> Any:
    """The array by tensorstore; None where zarr is to read it."""
    if os.getpid() != _PROCESS:
        return None
    try:
        import tensorstore  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    # Who writes flushes what is written.
    where = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}}
    try:
        return tensorstore.open(where | {"context": {"file_io_sync": False}}, open=True).result()
    except ValueError:
        return None
