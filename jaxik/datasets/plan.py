"""What a dataset is: a problem whose targets, and whatever else is random, follow from a row's index."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jaxlie
import numpy as np

from jaxik.batching.broadcast import batch_shape
from jaxik.core.errors import JaxikError, unknown_name
from jaxik.core.pytree import core_ranks
from jaxik.core.validation import one_of
from jaxik.core.version import __version__
from jaxik.datasets.grid import Grid
from jaxik.datasets.randomize import Randomize
from jaxik.datasets.trajectories import Trajectories
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.topology import Topology
from jaxik.limits.per_joint import on_rates
from jaxik.limits.velocity import VelocityLimit
from jaxik.problem.problem import Problem
from jaxik.robot.loading.npz import robot_arrays
from jaxik.robot.robot import Robot
from jaxik.solvers.options import SearchOptions, SolveOptions
from jaxik.solvers.tracking.options import TrackOptions
from jaxik.tasks.frame import FrameTask

SPREADS = ("joints", "workspace")
KEEPS = ("all", "converged")
# Rows that are read at once, the inner chunk of a Zarr shard, and rows of a shard unless the plan says.
CHUNK, SHARD = 4096, 131072
# The same where each row is a motion.
CHUNK_OF_MOTIONS, SHARD_OF_MOTIONS = 64, 1024
# Arrays of more numbers are written down as their hash.
WRITTEN_OUT = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """A dataset as a function of the row's index: row i follows from the plan and i alone.

    The targets of `sampled` tasks are where a random configuration of the robot has them, so that all of them can be
    met, together; joints that `dof_mask` holds are where the start has them. Closed loops are not closed there: of such
    robots some targets are out of reach. Each row is then solved by `search`, or by `solve` where `options` are
    `SolveOptions`.

    Args:
      problem: one problem, without batch axes.
      count: rows; of a grid as many as it has poses.
      seed: another seed, other rows.
      sampled: names of the tasks whose targets are drawn; None: of all that have one and can take it from a
        configuration.
      spread: "joints": the configurations are uniform in the joint ranges; "workspace": of 16 such configurations one
        is chosen with the odds of the volume that its frame's position sweeps, so that the middle of the workspace,
        where many configurations have the frame, has fewer of them.
      randomize: a `Randomize`, which draws link lengths, tools, joint limits, the mount or obstacles of a row before
        its targets are drawn; or a pure function that JAX traces, `(problem, key) -> problem`, or
        `(problem, {name: array})` where drawn numbers are to be stored too.
      start: configuration (nq,) to start from; None: as `search` does by default; of trajectories a random one.
      options: `SearchOptions` or `SolveOptions`, of trajectories `TrackOptions`. With `solutions` of K rows have K
        configurations, best first.
      keep: "all" rows with their status, or "converged" ones: those that are not are drawn again, at most 16 times. A
        trajectory counts where all its steps are CONVERGED and within the tolerances of the tasks, and nothing overlaps
        of what a `CollisionLimit` keeps apart.
      grid: the poses of a grid as targets, in the place of random ones: for maps of what can be reached, which
        `dataset.reachability()` gives. One task is sampled then, a `FrameTask`.
      trajectories: rows are motions by `track`; the targets of sampled tasks follow random paths.
      shard: rows of a shard, a multiple of 4096, or less: what is solved, written, committed and retried at once. None:
        131072. Of trajectories a multiple of 64, by default 1024.
      model: name or path of the robot's model, which `jaxik dataset verify` reads; None: it judges no residuals.

    Raises:
      JaxikError: for a batch of problems, unknown tasks, numbers out of range, and where a `Randomize` draws what the
        problem has not.
    """

    problem: Problem
    count: int | None = None
    seed: int = 0
    sampled: tuple[str, ...] | None = None
    spread: str = "joints"
    randomize: Callable[[Problem, jax.Array], Any] | None = None
    start: Any = None
    options: SearchOptions | SolveOptions | TrackOptions | None = None
    keep: str = "all"
    grid: Grid | None = None
    trajectories: Trajectories | None = None
    shard: int | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Problem):
            raise JaxikError(f"problem is a jaxik.Problem, not {type(self.problem).__name__}")
        if batch := batch_shape(self.problem, core_ranks(self.problem)):
            raise JaxikError(f"the problem of a plan is one, not a batch {batch}: rows are drawn, count says how many")
        if self.shard is None:
            object.__setattr__(self, "shard", SHARD if self.trajectories is None else SHARD_OF_MOTIONS)
        if self.options is None:
            object.__setattr__(self, "options", SearchOptions() if self.trajectories is None else TrackOptions())
        if self.grid is not None:
            self._check_grid()
        if isinstance(self.randomize, Randomize):
            self.randomize.check(self.problem)
        for name, least in (("count", 1), ("seed", 0), ("shard", 1)):
            if not (isinstance(value := getattr(self, name), int | np.integer) and value >= least):
                raise JaxikError(f"{name} is a whole number from {least} on, not {value!r}")
        if self.rows_of_shard % self.chunk:
            raise JaxikError(f"shard is at most {self.chunk} rows or a multiple of them, not {self.shard}")
        one_of("spread", self.spread, SPREADS)
        one_of("keep", self.keep, KEEPS)
        if self.trajectories is None and not isinstance(self.options, SearchOptions | SolveOptions):
            raise JaxikError(f"options are SearchOptions or SolveOptions, not {type(self.options).__name__}")
        object.__setattr__(self, "sampled", self._sampled())
        if self.trajectories is not None:
            self._check_trajectories()
        if self.start is not None and np.shape(self.start) != (self.problem.robot.nq,):
            raise JaxikError(f"start is one configuration ({self.problem.robot.nq},), not {np.shape(self.start)}")

    def _sampled(self) -> tuple[str, ...]:
        tasks = self.problem.tasks
        movable = tuple(sorted(name for name, task in tasks.items() if hasattr(task, "from_configuration")))
        names = movable if self.sampled is None else tuple(self.sampled)
        for name in names:
            if name not in movable:
                raise unknown_name("task whose target can be drawn", name, movable)
        if not names and self.randomize is None:
            raise JaxikError("nothing of the plan is random: name tasks in sampled, or give randomize")
        return names

    def _check_grid(self) -> None:
        grid = self.grid
        if not isinstance(grid, Grid):
            raise JaxikError(f"grid is a jaxik.Grid, not {type(grid).__name__}")
        if self.count not in (None, grid.count):
            raise JaxikError(f"the grid has {grid.count:,} poses: leave count out, or say so many, not {self.count}")
        if self.keep != "all":
            raise JaxikError("rows of a grid that are out of reach are not drawn again: leave keep out")
        names = self._sampled()
        if len(names) != 1 or not isinstance(self.problem.tasks[names[0]], FrameTask):
            raise JaxikError(f"a grid is of one FrameTask: name it in sampled, not {', '.join(names) or 'none'}")
        object.__setattr__(self, "count", grid.count)

    def _check_trajectories(self) -> None:
        trajectories = self.trajectories
        if not isinstance(trajectories, Trajectories):
            raise JaxikError(f"trajectories is a jaxik.Trajectories, not {type(trajectories).__name__}")
        if not isinstance(self.options, TrackOptions):
            raise JaxikError(f"options of trajectories are TrackOptions, not {type(self.options).__name__}")
        if self.grid is not None or self.spread != "joints":
            raise JaxikError("trajectories have neither grid nor spread: leave these out")
        if not self.sampled:
            raise JaxikError("no task follows a path: name tasks in sampled")
        trajectories.check(self.problem, {name: self.problem.tasks[name] for name in self.sampled}, self.start)

    @property
    def shards(self) -> int:
        """How many shards there are; the last may be shorter."""
        return -(-self.rows // self.rows_of_shard)

    @property
    def rows_of_shard(self) -> int:
        """Rows of all shards but the last."""
        assert self.shard is not None
        return self.shard

    @property
    def chunk(self) -> int:
        """Rows that are read at once."""
        return min(CHUNK if self.trajectories is None else CHUNK_OF_MOTIONS, self.rows_of_shard)

    @property
    def rows(self) -> int:
        """Rows in all."""
        assert self.count is not None
        return self.count

    def rows_of(self, shard: int) -> tuple[int, int]:
        """The first row of a shard, and one past its last."""
        size = self.rows_of_shard
        return shard * size, min((shard + 1) * size, self.rows)

    def described(self) -> dict[str, Any]:
        """The plan in plain words and numbers: two plans with one description have the same rows."""
        return {
            "format": "jaxik dataset",
            "format_version": 1,
            "jaxik_version": __version__,
            "count": int(self.rows),
            "seed": int(self.seed),
            "shard": int(self.rows_of_shard),
            "keep": self.keep,
            "spread": self.spread,
            "grid": _described(self.grid),
            "trajectories": _described(self.trajectories),
            "speed_limits": None if self.trajectories is None else _speed_limits(self.problem),
            "sampled": list(self.sampled or ()),
            "randomize": _described_draw(self.randomize),
            "start": None if self.start is None else _described(np.asarray(self.start)),
            "options": _described(self.options),
            "model": self.model,
            "robot": self.problem.robot.topology.name,
            "joints": [joint.name for joint in self.problem.robot.topology.joints],
            "problem": _described(self.problem),
        }


def _speed_limits(problem: Problem) -> list[float | None]:
    """The speed limit of each degree of freedom (nv,) [rad/s, m/s], by which trajectories are judged; None: none."""
    limits = [limit for limit in problem.limits or () if isinstance(limit, VelocityLimit)]
    free = np.full(problem.robot.nv, np.inf)
    own = [
        on_rates(problem.robot, problem.robot.velocity_limit if x.max_velocity is None else x.max_velocity, np.inf)
        for x in limits
    ]
    least = np.min([free, *map(np.asarray, own)], axis=0)
    return [float(x) if np.isfinite(x) else None for x in least]


def _described_draw(draw: Any) -> Any:
    """A `Randomize` by its numbers, a function by its name."""
    return _described(draw) if dataclasses.is_dataclass(draw) else draw and f"{draw.__module__}.{draw.__qualname__}"


def _described(value: Any) -> Any:
    """A pytree of the library as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Robot):
        arrays = robot_arrays(value)
        hashed = hashlib.sha256()
        for name in sorted(arrays):
            hashed.update(name.encode() + np.ascontiguousarray(np.asarray(arrays[name])).tobytes())
        return {"name": value.topology.name, "sha256": hashed.hexdigest()}
    if isinstance(value, Frame):
        return {"name": value.name, "kind": value.kind}
    if isinstance(value, jaxlie.SE3 | jaxlie.SO3):
        value = value.parameters()
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.size <= WRITTEN_OUT and array.dtype != object:
            return array.tolist()
        return {"shape": list(array.shape), "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__} | {
            name: _described(x) for name, x in fields.items() if not isinstance(x, Topology)
        }
    if isinstance(value, Mapping):
        return {str(key): _described(x) for key, x in value.items()}
    if isinstance(value, tuple | list):
        return [_described(x) for x in value]
    return repr(value)


def defaults_of_options(plan: Plan) -> Any:
    """The description of options of the plan's type where nothing is asked for."""
    return _described(type(plan.options)())


def completed(old: Any, defaults: Any) -> Any:
    """A description with what it leaves out taken from another."""
    if not (isinstance(old, dict) and isinstance(defaults, dict) and old.get("type") == defaults.get("type")):
        return old
    return defaults | {key: completed(value, defaults.get(key)) for key, value in old.items()}


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """Where two descriptions differ, a line each."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))]
    # NaN and infinities compare by their text.
    return [] if json.dumps(old) == json.dumps(new) else [f"{place} was {_short(old)}, is {_short(new)}"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
