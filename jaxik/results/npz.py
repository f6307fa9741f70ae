"""Solutions, tracks and robots in files: `.npz`, read back by `jaxik.load` and by anyone's `numpy.load(path)`.

A solution, with batch axes as `solve` returned them, in SI units:

| array | shape | |
|---|---|---|
| `q` | (*batch, nq) | configurations, inside the joint limits |
| `q_joint`, `q_unit` | (nq,) | for each column of `q`: its joint; "rad", "m", or "1" (a quaternion's, wxyz) |
| `status` | (*batch,) | `jaxik.Status`; `status_names[status]` are their names |
| `iterations` | (*batch,) | steps taken |
| `num_starts` | (*batch,) | attempts made: of a search, how many starts were tried |
| `cost` | (*batch,) | 1/2 the sum of squared weighted residuals |
| `stationarity` | (*batch,) | size of the step that was left [rad or m] |
| `derivative_status` | (*batch,) | `jaxik.DerivativeStatus`: what that is worth, -1 where nothing was differentiated |
| `clearance`, `nearest` | (*batch,) | with a `CollisionLimit`: the least distance [m], and which pair has it |
| `pair_names` | (p, 2) | the pairs that `nearest` counts |
| `chains` | () | JSON: goals, joints, closures and parts of the residuals of each chain that shares no joint |
| `chain_status`, `chain_iterations` | (*batch, n) | of several chains: the status of each, and its steps |
| `chain_label` | (*batch, n) | of several chains whose closures are switched: which of them are one |
| `residuals/TASK/PART` | (*batch, n) | what a task reports: of a `FrameTask` position [m], orientation [rad] |
| `yielded/NAME/PART` | (*batch, n) | by how much what is `Elastic` yields, in the unit of its rows |
| `trace/PART` | (*batch, T) | `cost`, `size` [rad or m], `damping`, `phase` of `jaxik.Trace`, if recorded |

From `save` with the problem that was solved, and from `jaxik solve`:

| array | shape | |
|---|---|---|
| `targets/TASK/PART` | (*batch, ...) | of a pose the position (*batch, 3) [m] and the quaternion (*batch, 4) wxyz |

A robot: every leaf of `Robot` by its name, with its batch axes, and `body_names`.

A track: see `jaxik.results.track_files`.

In all: `format` "jaxik solution", "jaxik track" or "jaxik robot", `format_version`, `jaxik_version`, `robot` (its
name), `joint_names` (njoint,), `q_joint`, `q_unit`, `units` (JSON: array to unit), `topology` (JSON: what of the robot
is static).
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
from jax.core import Tracer

from jaxik.core import archive
from jaxik.core.archive import Archive
from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.core.trees import nested, parts
from jaxik.core.validation import as_array
from jaxik.core.version import __version__
from jaxik.results import track_files
from jaxik.results.chains import chains_of
from jaxik.results.solution import Solution
from jaxik.results.trace import Trace
from jaxik.results.track import Track
from jaxik.robot.loading import npz as robot_npz
from jaxik.robot.robot import Robot

FORMAT = "jaxik solution"
_TREES = ("residuals", "trace", "yielded")
_CHAINS = "chains"
_FOLDERS = "residuals/", "targets/", "trace/", "yielded/"
_ARRAYS = tuple(f.name for f in dataclasses.fields(Solution) if "rank" in f.metadata and f.name not in _TREES)
_OPTIONAL = frozenset(f.name for f in dataclasses.fields(Solution) if f.default is None)
_TRACED = tuple(f.name for f in dataclasses.fields(Trace))
_UNITS = {"q": "see q_unit", "stationarity": "rad or m"}


def save(
    path: str | os.PathLike[str],
    thing: Solution | Track | Robot,
    *,
    problem: Any = None,
    arrays: Mapping[str, Any] | None = None,
) -> None:
    """Write a solution, a track or a robot to an `.npz` file, with names and units; `jaxik.load` reads it back.

    Nothing is pickled, batch axes and dtypes stay. A file that is there is replaced when the new one is complete.

    Args:
      path: of the file, ending in ".npz", which is added where there is no ending.
      thing: a `Solution`, a `Track` or a `Robot`.
      problem: of a solution, the `Problem` that was solved: its targets are written as well, one for each element, so
        that the file holds pairs of pose and configuration. `load` passes over them; `numpy.load` reads them.
      arrays: name to an array of your own, written beside a solution as it is.

    Raises:
      JaxikError: if it cannot be written; under `jit`; for residuals of a task of your own that are no array or dict
        of arrays.
    """
    if not isinstance(thing, Solution | Track | Robot):
        raise JaxikError(f"save writes a jaxik.Solution, a jaxik.Track or a jaxik.Robot, not {type(thing).__name__}")
    if not isinstance(thing, Solution) and not (problem is None and arrays is None):
        raise JaxikError(
            f"problem and arrays are written beside a solution, not beside a {type(thing).__name__.lower()}"
        )
    targets = {} if problem is None else _targets_of_problem(problem, thing)
    with archive.replacing(Path(path).expanduser()) as file:
        if isinstance(thing, Solution):
            write_solution(file, thing, arrays, targets=targets)
        elif isinstance(thing, Track):
            track_files.write_track(file, thing)
        else:
            units = {name: leaf.unit for name, leaf in (robot_npz.LEAVES | robot_npz.SHAPE_LEAVES).items()}
            archive.write(file, robot_npz.FORMAT, __version__, robot_npz.robot_arrays(thing), units)


def load(path: str | os.PathLike[str]) -> Solution | Track | Robot:
    """Read what `jaxik.save`, `jaxik solve` or `jaxik track` wrote.

    Args:
      path: of the file.

    Returns:
      The solution, track or robot, with the dtype that it was saved with; where that is float64 and `jax_enable_x64` is
      off, float32 and a `JaxikWarning`: a robot's limits are rounded inward, any other q to the nearest. Robots with
      the same names and joints share one topology, so what was compiled for one serves the other.

    Raises:
      LoadError: no such file, a damaged one, another's, or of another version; names what was found.
    """
    found = archive.read(Path(path), (FORMAT, track_files.FORMAT, robot_npz.FORMAT))
    read = {FORMAT: _solution_of, track_files.FORMAT: track_files.track_of, robot_npz.FORMAT: robot_npz.robot_of}
    return read[found.kind](found)


def _targets_of_problem(problem: Any, solution: Any) -> dict[str, tuple[Any, str]]:
    """The targets of a problem whose solution this is."""
    topology = getattr(getattr(problem, "robot", None), "topology", None)
    if topology is None:
        raise JaxikError(f"problem is the jaxik.Problem that was solved, not {type(problem).__name__}")
    if topology != solution.topology:
        raise JaxikError(f"the problem is of {topology.name}, the solution of {solution.topology.name}")
    return targets_of(problem.tasks | (problem.constraints or {}), np.shape(solution.status))


def targets_of(tasks: Mapping[str, Any], batch: tuple[int, ...]) -> dict[str, tuple[Any, str]]:
    """The targets of tasks as arrays (*batch, ...) with their units, by the names that they have in a file."""
    found = {}
    for name, task in tasks.items():
        # Velocity tasks have no target.
        for part in task.target_parts() if hasattr(task, "target_parts") else ():
            if isinstance(part.value, Tracer):
                raise JaxikError(f"the target of {name!r} is being traced: return from jit first, and save on the host")
            value = np.asarray(part.value)
            leading, core = value.shape[: value.ndim - part.rank], value.shape[value.ndim - part.rank :]
            value = value.reshape((*_aligned(name, leading, batch), *core))
            found[f"targets/{name}/{part.name}"] = np.broadcast_to(value, (*batch, *core)), part.unit
    return found


def _aligned(name: str, leading: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    """The batch axes of a target so that they broadcast to those of the solution.

    A search for several solutions has one more axis for them; which of two axes of one length a target
    belongs to cannot be told.
    """
    solved, several = _fits(leading, batch), bool(batch) and bool(leading) and _fits(leading, batch[:-1])
    if solved and several and len(leading) < len(batch) and any(n > 1 for n in leading):
        raise JaxikError(
            f"the target of {name!r} has batch axes {leading}, the solution {batch}: give the target {(*leading, 1)} "
            f"if the last axis is of several solutions, else {(1, *leading)}"
        )
    if not (solved or several):
        raise JaxikError(f"the target of {name!r} has batch axes {leading}, the solution {batch}")
    return leading if solved else (*leading, 1)


def _fits(leading: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Whether these axes broadcast to a batch."""
    pairs = zip(leading[::-1], batch[::-1], strict=False)
    return len(leading) <= len(batch) and all(n in (1, m) for n, m in pairs)


def write_solution(
    file: IO[bytes],
    solution: Solution,
    more: Mapping[str, Any] | None = None,
    more_units: Mapping[str, str] | None = None,
    targets: Mapping[str, tuple[Any, str]] | None = None,
) -> None:
    """Write a solution, and more arrays and targets beside it, with their units, which `load` passes over."""
    targets, more = targets or {}, dict(more or {})
    for field, tree in (("residuals", solution.residuals), ("yielded", solution.yielded)):
        if jax.tree.structure(nested(parts(tree))) != jax.tree.structure(tree):
            raise JaxikError(
                f"{field} are kept as arrays by task and part, task names without '/': those of "
                f"{', '.join(map(repr, tree))} are {jax.tree.structure(tree)}"
            )
    residuals = parts(solution.residuals)
    arrays = {name: x for name in _ARRAYS if (x := getattr(solution, name)) is not None}
    arrays |= {f"residuals/{part}": residual for part, residual in residuals.items()}
    arrays |= {f"yielded/{part}": missed for part, missed in parts(solution.yielded).items()}
    arrays |= robot_npz.names(solution.topology)
    arrays |= {"status_names": [status.name for status in Status], "dtype": str(solution.q.dtype)}
    if solution.pair_names:
        arrays["pair_names"] = np.array(solution.pair_names)
    arrays[_CHAINS] = json.dumps(solution.chain_parts)
    units = _UNITS | {f"residuals/{part}": unit for part, unit in solution.residual_units}
    if solution.clearance is not None:
        units |= {"clearance": "m"}
    if solution.trace is not None:
        arrays |= {f"trace/{name}": getattr(solution.trace, name) for name in _TRACED}
        units |= {"trace/size": "rad or m"}
    written = {"format", "format_version", "jaxik_version", "units", *arrays, *targets}
    if taken := [n for n in more if not isinstance(n, str) or not n or n in written or n.startswith(_FOLDERS)]:
        raise JaxikError(f"arrays: {taken[0]!r} is no name for an array: the file has {', '.join(sorted(written))}")
    beside = {name: value for name, (value, _) in targets.items()} | more
    units |= {name: unit for name, (_, unit) in targets.items()} | dict(more_units or {})
    archive.write(file, FORMAT, __version__, arrays | beside, units)


def _solution_of(found: Archive) -> Solution:
    topology = robot_npz.topology_of(found)
    q = found.numbers("q", (topology.nq,))
    batch = q.shape[:-1]
    there = [name for name in _ARRAYS if name not in _OPTIONAL or name in found.arrays]
    chains = chains_of(found.json(_CHAINS)) if _CHAINS in found.arrays else ()
    axes = {name: (*batch, len(chains)) for name in there if name.startswith("chain_")}
    arrays = {name: q if name == "q" else found.numbers(name, axes.get(name, batch)) for name in there}
    residuals = {
        name.removeprefix("residuals/"): x for name, x in found.arrays.items() if name.startswith("residuals/")
    }
    yielded = {name.removeprefix("yielded/"): x for name, x in found.arrays.items() if name.startswith("yielded/")}
    of_both = {f"residuals/{part}": x for part, x in residuals.items()}
    of_both |= {f"yielded/{part}": x for part, x in yielded.items()}
    for name, x in of_both.items():
        if x.shape[: len(batch)] != batch:
            raise found.wrong(f"{name!r} has shape (*batch, ...) with batch {batch}, not {x.shape}")
    trace = _trace_of(found, batch)
    robot_npz.rounded(found, "where q may leave its limits by a rounding", *arrays.values())
    units = found.json("units")
    return Solution(
        **{name: as_array(x) for name, x in arrays.items()},
        residuals=nested({part: as_array(x) for part, x in residuals.items()}),
        yielded=nested({part: as_array(x) for part, x in yielded.items()}),
        trace=trace,
        topology=topology,
        chain_parts=chains,
        pair_names=_pair_names(found),
        residual_units=tuple((part, str(units.get(f"residuals/{part}", ""))) for part in sorted(residuals)),
    )


def _pair_names(found: Archive) -> tuple[tuple[str, str], ...]:
    names = found.arrays.get("pair_names", np.zeros((0, 2), str))
    if names.ndim != 2 or names.shape[1] != 2:
        raise found.wrong(f"'pair_names' has shape (p, 2), not {names.shape}")
    return tuple((str(first), str(second)) for first, second in names)


def _trace_of(found: Archive, batch: tuple[int, ...]) -> Trace | None:
    if not any(name.startswith("trace/") for name in found.arrays):
        return None
    length = found.numbers("trace/cost", ()).shape[-1:]
    columns = {name: found.numbers(f"trace/{name}", (*batch, *length)) for name in _TRACED}
    for name, column in columns.items():
        if column.shape != (*batch, *length):
            raise found.wrong(f"'trace/{name}' has shape (*batch, T) with batch {batch}, not {column.shape}")
    return Trace(**{name: as_array(column) for name, column in columns.items()})
