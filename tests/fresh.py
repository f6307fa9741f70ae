"""An interpreter of its own, in which XLA compiles as it does for users, unless told otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import jaxik


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments, and variables of its environment besides those that there are."""
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    own |= {"PYTHONPATH": str(Path(jaxik.__file__).parents[1])} | environment
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=own)


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program, given as text, that compiles as quickly as the tests do."""
    return run("-c", program, *arguments, XLA_FLAGS=os.environ.get("XLA_FLAGS", ""))
