"""Matrices that are known before a program runs: as numbers, XLA compiles no kernel that makes them."""

from functools import cache
from typing import Any

import numpy as np


@cache
def unit_matrix(rows: int, columns: int | None = None, k: int = 0, dtype: Any = float) -> Any:
    """Ones on the diagonal `k` of a matrix (rows, columns), square by default; one object for all calls.

    `jnp.eye` is a handful of equations to trace, and a kernel of 25 ms to compile, in each program and each loop.
    """
    matrix = np.eye(rows, columns, k, dtype=dtype)
    matrix.flags.writeable = False
    return matrix
