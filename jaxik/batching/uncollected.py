"""Python's collector of cycles, put off while a program is traced."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave Python's collector of cycles off meanwhile, in all threads.

    Tracing a `solve` makes some hundred thousand objects that stay, which sets off 300 collections that find next to
    nothing: they take a sixth to a third of its time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
