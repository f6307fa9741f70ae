"""The command line: `jaxik solve`, `jaxik render`, `jaxik view`, `jaxik info`, `jaxik robots`."""

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from jaxik.cli.arguments import parse
from jaxik.cli.info import run_info, run_robots
from jaxik.cli.rendering import run_render
from jaxik.cli.solving import run_solve
from jaxik.cli.viewing import run_view
from jaxik.core.errors import JaxikError, JaxikWarning

COMMANDS = {"solve": run_solve, "render": run_render, "view": run_view, "info": run_info, "robots": run_robots}
INTERNAL, WRONG_INPUT, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: arguments behind the program's name; those of the process by default.

    Returns:
      The exit code: 0 when the command ran, whatever converged; 2 for wrong input, said in one line on stderr; 1 for an
      internal error, with its traceback; 130 when interrupted.
    """
    # JAX logs that there is no GPU; the summary names the device.
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("always", JaxikWarning)
        shown = warnings.showwarning
        warnings.showwarning = lambda message, category, *place: (
            _say(f"warning: {message}") if issubclass(category, JaxikWarning) else shown(message, category, *place)
        )
        try:
            arguments = parse(sys.argv[1:] if argv is None else argv)
            code = COMMANDS[arguments.command](arguments)
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


def _say(message: Any) -> None:
    """Print a message to stderr as one line."""
    print("jaxik:", *str(message).split(), file=sys.stderr)
