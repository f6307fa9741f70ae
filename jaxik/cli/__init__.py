"""The command line: `jaxik solve`, `track`, `generate`, `dataset`, `render`, `view`, `info`, `robots` and `doctor`."""

import argparse
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from jaxik.cli.arguments import parse
from jaxik.core.errors import JaxikError, JaxikWarning

INTERNAL, WRONG_INPUT, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: arguments behind the program's name; those of the process by default.

    Returns:
      The exit code: 0 when the command ran, whatever converged; 2 for wrong input, said in one line on stderr; 1 for an
      internal error, with its traceback, and where the doctor finds a fault; 130 when interrupted.
    """
    # JAX logs that there is no GPU; the summary names the device.
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("always", JaxikWarning)
        shown = warnings.showwarning
        said: set[str] = set()

        def show(message: Any, category: type[Warning], *place: Any) -> None:
            if not issubclass(category, JaxikWarning):
                shown(message, category, *place)
            elif str(message) not in said:  # checks run again wherever a problem is built
                said.add(str(message))
                _say(f"warning: {message}")

        warnings.showwarning = show
        try:
            arguments = parse(sys.argv[1:] if argv is None else argv)
            code = _command(arguments.command)(arguments)
            sys.stdout.flush()
            return code
        except SystemExit as stop:  # --help and --version
            return int(stop.code or 0)
        except JaxikError as error:
            _say(error)
            return WRONG_INPUT
        except KeyboardInterrupt:
            _say("interrupted; nothing was written")
            return INTERRUPTED
        except BrokenPipeError:  # `jaxik info panda | head`: what follows is not wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception:
            traceback.print_exc()
            _say("internal error; please report it with the lines above")
            return INTERNAL


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """The function of a command, imported here: --help and `robots` need neither JAX nor MuJoCo."""
    if name == "solve":
        from jaxik.cli.solving import run_solve as run
    elif name == "track":
        from jaxik.cli.tracking import run_track as run
    elif name == "generate":
        from jaxik.cli.generating import run_generate as run
    elif name == "dataset":
        from jaxik.cli.datasets import run_dataset as run
    elif name == "render":
        from jaxik.cli.rendering import run_render as run
    elif name == "info":
        from jaxik.cli.info import run_info as run
    elif name == "view":
        from jaxik.cli.viewing import run_view as run
    elif name == "doctor":
        from jaxik.cli.doctor import run_doctor as run
    else:
        from jaxik.cli.robots import run_robots as run
    return run


def _say(message: Any) -> None:
    """Print a message to stderr as one line."""
    print("jaxik:", *str(message).split(), file=sys.stderr)
