"""Whether one element is worked on by itself, while a program is traced.

Then nothing is vectorised over elements, and the shortest program is the best one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ALONE: ContextVar[bool] = ContextVar("jaxik: one element by itself", default=False)


def is_alone() -> bool:
    """Whether what is traced now is for one element by itself, not for lanes of many."""
    return _ALONE.get()


@contextmanager
def alone(yes: bool = True) -> Iterator[None]:
    """Trace for one element by itself, or for lanes of many inside of such a one."""
    before = _ALONE.set(yes)
    try:
        yield
    finally:
        _ALONE.reset(before)
