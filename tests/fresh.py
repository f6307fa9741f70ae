"""An interpreter of its own, in which XLA compiles as it does for users."""

import os
import subprocess
import sys
from pathlib import Path

import jaxik


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments, and variables of its environment besides those that there are."""
    own = os.environ | {"PYTHONPATH": str(Path(jaxik.__file__).parents[1])} | environment
    own.pop("XLA_FLAGS", None)
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=own)


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program, given as text."""
    return run("-c", program, *arguments)
