"""Where tables are printed."""

import sys

from rich.console import Console

WIDTH = 120  # where the width of the terminal is not known


def console() -> Console:
    """Standard output, as wide as the terminal."""
    return Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
