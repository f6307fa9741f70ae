"""The output of `jaxik solve`: a solution as `jaxik.save` writes it, which `jaxik.load` reads, with what led to it.

With n elements, beside the arrays that `jaxik.storage` lists, in SI units:

| array | shape | |
|---|---|---|
| `targets/TASK/PART` | (n, ...) | of poses the position (n, 3) [m] and the quaternion (n, 4) wxyz |
| `start` | (nq,) or (n, nq) | where solving started; of a search where the configuration says it |

And for whoever finds the file: `elements_asked` (more than n where a person interrupted it), `config` (the text of the
configuration) and `arguments` (JSON: options of the command line that replace parts of it).
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from jaxik.cli.job import Job
from jaxik.core import archive
from jaxik.core.errors import JaxikError
from jaxik.results import npz
from jaxik.results.plot import check_file
from jaxik.results.solution import Solution


@contextlib.contextmanager
def reserved(path: Path | None, force: bool) -> Iterator[IO[bytes] | None]:
    """A file to write that becomes `path` at the end, if nothing failed; until then `path` stays as it is.

    Raises:
      JaxikError: if it cannot be written, or exists and `force` is not given.
    """
    if path is None:
        yield None
        return
    check_new(f"output {path}", path, force)
    with archive.replacing(path) as file:
        yield file


def check_plot(path: Path | None, force: bool) -> None:
    """Raise a `JaxikError` if a plot cannot be written there, or exists and `force` is not given."""
    if path is not None:
        check_file(path)
        check_new(f"plot {path}", path, force)


def check_new(what: str, path: Path, force: bool) -> None:
    """Raise a `JaxikError` if a file exists and `force` is not given."""
    if path.is_file() and not force:
        raise JaxikError(f"{what}: exists already; choose another name, or --force to replace it")


def write_solution(file: IO[bytes], job: Job, solution: Solution, config: str, arguments: dict[str, Any]) -> None:
    """Write an `.npz` with the arrays that this module's text and `jaxik.storage` list."""
    count = len(solution.q)
    more: dict[str, Any] = {
        "elements_asked": job.count,
        "config": config,
        "arguments": json.dumps(arguments),
    }
    units: dict[str, str] = {}
    if job.start is not None:
        more["start"] = job.start if job.start.ndim == 1 else job.start[:count]
        units["start"] = "see q_unit"
    targets = npz.targets_of(job.reported, (job.count,))
    npz.write_solution(file, solution, more, units, {name: (x[:count], unit) for name, (x, unit) in targets.items()})
