"""Daemon threads that do not take the interpreter down with them.

Before Python 3.14 a daemon thread that comes back to Python from C++ while the interpreter exits is unwound through
frames that do not allow it, and the process aborts. So an exit interrupts threads and waits for them: not for what they
solve or trace, but for XLA, which nothing interrupts, to compile what it is at.
"""

import atexit
import ctypes
import threading
from collections.abc import Callable
from typing import Any

NAME = "jaxik.solve_async"

_ending = threading.Event()


def start(target: Callable[..., None], *arguments: Any) -> None:
    """Run a function in a daemon thread, so that an exit gets as far as interrupting it."""
    threading.Thread(target=target, args=arguments, name=NAME, daemon=True).start()


def exiting() -> bool:
    """Whether the interpreter is about to exit."""
    return _ending.is_set()


@atexit.register
def _end() -> None:
    """Raise SystemExit in all threads, as soon as they run Python, and wait for them."""
    _ending.set()
    for thread in threading.enumerate():
        # Again and again: what runs while garbage is collected swallows exceptions.
        while thread.name == NAME and thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
            thread.join(0.2)
