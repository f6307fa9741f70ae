"""Rows of a dataset by their index: drawn from its key, solved, and laid out as named arrays."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from jaxik.batching.devices import accelerated
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, set_fields
from jaxik.core.status import Status
from jaxik.core.trees import parts
from jaxik.datasets.draws import random_configurations
from jaxik.datasets.plan import Plan
from jaxik.datasets.randomize import MEANINGS, Randomize
from jaxik.datasets.trajectories import followed
from jaxik.problem.problem import Problem, targeted
from jaxik.results.solution import Solution
from jaxik.solvers.nonlinear.solve import solve
from jaxik.solvers.options import SearchOptions
from jaxik.solvers.search.search import search
from jaxik.tasks.manipulability import volume

# Streams of a row's key.
TARGETS, SOLVER, RANDOMIZE = 0, 1, 2
# Configurations of which one is chosen where the workspace is to be covered evenly.
CANDIDATES = 16
# Rows that are drawn at once.
DRAWN = 1024
RESIDUALS = "residuals/"
# How often a row that is not CONVERGED is drawn again.
ATTEMPTS = 16
# Motions that a core follows at once, an accelerator as many as are drawn: always as many, as what XLA makes of other
# sizes may round otherwise.
FOLLOWED = 128


class Column(NamedTuple):
    """An array of a dataset, a row an entry.

    Attributes:
      shape: of one row.
      unit: "" where there is none.
      meaning: a line for who finds the file.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    unit: str
    meaning: str


class RowSolver:
    """Solves rows of a plan, in calls of one size, so that one program serves all of them.

    Rows are drawn in a program of a size of its own: what XLA makes of other sizes may round otherwise, and a row would
    depend on how many were solved with it. Solvers give each element the bits that it has alone.
    """

    def __init__(self, plan: Plan, size: int) -> None:
        """Trace nothing yet; `size` rows are solved at once; motions as many as devices follow."""
        devices = jax.devices()
        self._drawn_at_once = DRAWN if plan.trajectories is None or accelerated() else FOLLOWED
        self.plan, self.size = plan, size if plan.trajectories is None else self._drawn_at_once * len(devices)
        dtype = plan.problem.robot.q_home.dtype
        self._data = cast((plan.problem, plan.options, plan.start), dtype)
        self._draw = jax.jit(lambda problem, index: _drawn(plan, problem, index))
        self._joined = jax.jit(lambda parts: jax.tree.map(lambda *xs: jnp.concatenate(xs)[: self.size], *parts))
        self._solve = jax.jit(_solved)
        self._follow = jax.jit(
            jax.shard_map(
                lambda data, *drawn: _followed(plan, data, *drawn),
                mesh=Mesh(devices, ("rows",), axis_types=(AxisType.Auto,)),
                in_specs=(PartitionSpec(), PartitionSpec("rows"), PartitionSpec("rows")),
                out_specs=PartitionSpec("rows"),
                check_vma=False,
            )
        )
        self._volume = jax.jit(lambda problem, q: _volumes(plan, problem, q))

    def columns(self) -> dict[str, Column]:
        """What a row consists of, by name."""
        found = jax.eval_shape(lambda: self._program(np.arange(1), 0))
        words = _meanings(self.plan)
        return {
            name: Column(_row_shape(name, x), _dtype(name, x), *words.get(name, ("", "drawn by randomize")))
            for name, x in found.items()
        }

    def rows(
        self, first: int, last: int, advance: Callable[[int, int], Any] = lambda rows, converged: None
    ) -> dict[str, np.ndarray]:
        """Rows from `first` to before `last`; `advance` is told of rows, and of converged ones, as they are solved."""
        return self.rows_at(np.arange(first, last, dtype=np.int64), advance)

    def rows_at(
        self, index: np.ndarray, advance: Callable[[int, int], Any] = lambda rows, converged: None
    ) -> dict[str, np.ndarray]:
        """Rows of these numbers (n,); `advance` as in `rows`."""
        found = self._tiles(index, 0, advance)
        if self.plan.keep == "converged":
            for attempt in range(1, ATTEMPTS):
                wrong = np.flatnonzero(~solved(found))
                if not wrong.size:
                    break
                again = self._tiles(index[wrong], attempt, lambda rows, converged: None)
                for name, values in again.items():
                    found[name][wrong] = values
        return found

    def _tiles(self, index: np.ndarray, attempt: int, advance: Callable[[int, int], Any]) -> dict[str, np.ndarray]:
        tiles: list[dict[str, np.ndarray]] = []
        parts = [index[start : start + self.size] for start in range(0, len(index), self.size)]
        # The next is drawn and begun before the last is fetched, so that devices do not wait for the host.
        running = self._program(parts[0], attempt)
        for own, following in zip(parts, [*parts[1:], None], strict=True):
            begun = None if following is None else self._program(following, attempt)
            found = jax.device_get(running)
            tiles.append({name: _row_values(name, x)[: len(own)] for name, x in found.items()})
            advance(len(own), int(solved(tiles[-1]).sum()))
            running = begun
        return {name: np.concatenate([tile[name] for tile in tiles]) for name in tiles[0]}

    def _program(self, index: np.ndarray, attempt: int) -> dict[str, jax.Array]:
        # The last row is repeated until calls are full.
        each = self._drawn_at_once
        padded = index[np.minimum(np.arange(-(-self.size // each) * each), len(index) - 1)]
        starts = range(0, len(padded), each)
        parts = [self._draw(self._data[0], _words_of(padded[i : i + each], attempt)) for i in starts]
        drawn = self._joined(parts)
        if self.plan.trajectories is not None:
            arrays = self._follow(self._data, drawn.leaves, drawn.motion)
            return _named(self.plan, self._data[0], drawn, arrays)
        arrays = _arrays(self.plan, self._data[0], drawn, self._solve(self._data, drawn.leaves, drawn.keys))
        return arrays | (self._manipulability(arrays["q"]) if self.plan.grid and not self.plan.randomize else {})

    def _manipulability(self, q: jax.Array) -> dict[str, jax.Array]:
        """Of the first solution of each row, in programs of the size of draws."""
        q = q.reshape(len(q), -1, q.shape[-1])[:, 0]
        padded = q[np.minimum(np.arange(-(-len(q) // DRAWN) * DRAWN), len(q) - 1)]
        parts = [self._volume(self._data[0], padded[i : i + DRAWN]) for i in range(0, len(padded), DRAWN)]
        return {"manipulability": jnp.concatenate(parts)[: len(q)]}


class Drawn(NamedTuple):
    """What is random in rows.

    Attributes:
      leaves: number of a leaf of the problem to its values (n, ...): those that differ from row to row.
      extras: arrays (n, ...) of `randomize`, to be stored.
      keys (n,): of the solver.
      motion: where motions start (n, nq), and targets over time (n, T, ...) by task; () where rows are none.
    """

    leaves: dict[int, jax.Array]
    extras: dict[str, jax.Array]
    keys: jax.Array
    motion: Any = ()


def solved(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which rows (n,) count as solved: the best solution is CONVERGED, or the motion succeeds."""
    if "success" in rows:
        return rows["success"]
    return rows["status"].reshape(len(rows["status"]), -1)[:, 0] == Status.CONVERGED


def _words_of(rows: np.ndarray, attempt: int) -> np.ndarray:
    """Row numbers as words of 32 bits (n, 3), high, low, attempt: JAX's own integers end at 2^31."""
    rows = rows.astype(np.uint64)
    words = rows >> np.uint64(32), rows & np.uint64(0xFFFFFFFF), np.full_like(rows, attempt)
    return np.stack(words, axis=1).astype(np.uint32)


def _with_leaves(problem: Problem, values: Mapping[int, jax.Array]) -> Problem:
    """The problems of rows: one, in which only leaves that differ from row to row have a batch axis."""
    leaves, structure = jax.tree.flatten(problem)
    return jax.tree.unflatten(structure, [values.get(i, leaf) for i, leaf in enumerate(leaves)])


def _solved(data: Any, leaves: dict[int, jax.Array], keys: jax.Array) -> Solution:
    problem, options, start = data
    problem = _with_leaves(problem, leaves)
    if isinstance(options, SearchOptions):
        return search(problem, keys, starts=None if start is None else start[None], options=options)
    q0 = problem.robot.q_home if start is None else start
    return solve(problem, jnp.broadcast_to(q0, (len(keys), q0.shape[-1])), options=options)


def _followed(plan: Plan, data: Any, leaves: dict[int, jax.Array], motion: Any) -> dict[str, Any]:
    problem, options, _ = data
    assert plan.trajectories is not None
    q0, targets = motion
    return followed(plan.trajectories, _with_leaves(problem, leaves), q0, targets, options)


def _arrays(plan: Plan, problem: Problem, drawn: Drawn, solution: Solution) -> dict[str, Any]:
    """The arrays of rows by name."""
    found = {"q": solution.q, "status": solution.status, "residuals": solution.residuals}
    return _named(
        plan, problem, drawn, found | ({} if solution.clearance is None else {"clearance": solution.clearance})
    )


def _named(plan: Plan, problem: Problem, drawn: Drawn, found: dict[str, Any]) -> dict[str, Any]:
    """The arrays of what was found, residuals apart by task and part, and of what was drawn."""
    residuals = parts(found.pop("residuals"))
    arrays = found | {f"{RESIDUALS}{part}": residual for part, residual in residuals.items()}
    tasks = _with_leaves(problem, drawn.leaves).tasks
    if drawn.motion:
        tasks = tasks | {name: _aimed(tasks[name], target) for name, target in drawn.motion[1].items()}
    for name in plan.sampled or ():
        arrays |= {f"targets/{name}/{part.name}": part.value for part in tasks[name].target_parts()}
    if taken := [name for name in drawn.extras if name in arrays or "/" in name]:
        raise JaxikError(f"randomize: {taken[0]!r} is no name for an array: rows have {', '.join(arrays)}")
    return arrays | drawn.extras


def _row_shape(name: str, x: Any) -> tuple[int, ...]:
    """The shape of one row of an array as it is stored: of residuals the norm."""
    return x.shape[1:-1] if name.startswith(RESIDUALS) else x.shape[1:]


def _dtype(name: str, x: Any) -> np.dtype:
    return np.dtype(np.int8 if name == "status" else x.dtype)


def _row_values(name: str, x: np.ndarray) -> np.ndarray:
    """An array as it is stored. Norms are taken in float64, so that their last bit is the same everywhere."""
    if name.startswith(RESIDUALS):
        return np.sqrt((x.astype(float) ** 2).sum(axis=-1)).astype(x.dtype)
    return x.astype(np.int8) if name == "status" else x


def _key(seed: int, words: jax.Array) -> jax.Array:
    """The key of a row: of nothing but the seed, the row's number and the attempt."""
    key = jax.random.key(seed)
    for word in range(3):
        key = jax.random.fold_in(key, words[word])
    return key


def _drawn(plan: Plan, problem: Problem, index: jax.Array) -> Drawn:
    """What is random in rows of these numbers."""
    shared, structure = jax.tree.flatten(problem)

    def draw(words: jax.Array) -> Drawn:
        key, own, extras = _key(plan.seed, words), problem, {}
        if plan.randomize is not None:
            own = plan.randomize(own, jax.random.fold_in(key, RANDOMIZE))
            own, extras = own if isinstance(own, tuple) else (own, {})
        motion: Any = ()
        if plan.trajectories is None:
            own = _with_targets(plan, own, jax.random.fold_in(key, TARGETS), words)
        else:
            moved = {name: own.tasks[name] for name in plan.sampled or ()}
            start = None if plan.start is None else jnp.asarray(plan.start, own.robot.q_home.dtype)
            motion = plan.trajectories.drawn(own, moved, start, jax.random.fold_in(key, TARGETS))
        leaves, drawn_structure = jax.tree.flatten(own)
        if drawn_structure != structure:
            raise JaxikError("randomize returned other tasks, limits or joints: it may change numbers alone")
        changed = {i: new for i, (old, new) in enumerate(zip(shared, leaves, strict=True)) if new is not old}
        return Drawn(changed, extras, jax.random.fold_in(key, SOLVER), motion)

    return jax.vmap(draw)(index)


def _with_targets(plan: Plan, problem: Problem, key: jax.Array, words: jax.Array) -> Problem:
    """The problem of one row with targets where a random configuration has them, or the grid."""
    if not plan.sampled:
        return problem
    robot, tasks = problem.robot, dict(problem.tasks)
    if plan.grid is not None:
        name = next(iter(plan.sampled))
        position, quaternion = plan.grid.pose(words[1].astype(jnp.int32), robot.q_home.dtype)
        pose = jaxlie.SE3(jnp.concatenate([quaternion, position]))
        return _replaced(problem, tasks | {name: _aimed(tasks[name], pose)})
    even = plan.spread == "workspace"
    q = _even_in_workspace(plan, problem, key) if even else random_configurations(problem, key, (), plan.start)
    for name in plan.sampled:
        task, field = tasks[name], tasks[name].target_field[0]
        others = {f.name: getattr(task, f.name) for f in dataclasses.fields(task) if f.init and f.name != field}
        tasks[name] = _aimed(task, getattr(type(task).from_configuration(robot, q, **others), field))
    return _replaced(problem, tasks)


def _aimed(task: Any, target: Any) -> Any:
    """The task with another target; its other leaves stay the same arrays, shared by all rows."""
    task = copy.copy(task)
    set_fields(task, **{task.target_field[0]: target})
    return task


def _replaced(problem: Problem, tasks: dict[str, Any]) -> Problem:
    problem = copy.copy(problem)
    set_fields(problem, tasks=tasks)
    return problem


def _even_in_workspace(plan: Plan, problem: Problem, key: jax.Array) -> jax.Array:
    """A configuration, chosen among random ones by the volume that the first frame's position sweeps about each.

    By the coarea formula positions of configurations that are uniform have a density that is the integral of
    1 / sqrt(det(J J')) over the configurations that reach them.
    """
    robot = problem.robot
    frames = [frame for name in plan.sampled or () for frame in problem.tasks[name].frames]
    if not frames:
        raise JaxikError('spread="workspace" needs a sampled task with a frame')
    draws, choice = jax.random.split(key)
    q = random_configurations(problem, draws, (CANDIDATES,), plan.start)
    jacobian = robot.frame_jacobian(q, frames[0], "world_aligned")[:, :3]
    volume = jnp.sqrt(jnp.maximum(jnp.linalg.det(jacobian @ jnp.swapaxes(jacobian, -1, -2)), 0))
    return q[jax.random.categorical(choice, jnp.log(volume + jnp.finfo(volume.dtype).tiny))]


def _volumes(plan: Plan, problem: Problem, q: jax.Array) -> jax.Array:
    """sqrt(det(J J')) (n,) of the frame that is mapped, at configurations (n, nq), over the rows that its task has."""
    task = problem.tasks[next(iter(plan.sampled or ()))]
    rows = np.repeat([task.position_cost is not None, task.orientation_cost is not None], 3)
    jacobian = problem.robot.frame_jacobian(q, task.frame, "world_aligned")
    return jax.vmap(lambda each: volume(each, jnp.asarray(rows)))(jacobian)


def _meanings(plan: Plan) -> dict[str, tuple[str, str]]:
    """Unit and meaning of each array."""
    words = {
        "q": ("see q_unit", "configuration, inside the joint limits"),
        "status": ("", "jaxik.Status: status_names[status]"),
        "manipulability": ("", "sqrt(det(J J')) of the configuration, by the rows that the task has"),
        "clearance": ("m", "least distance of the pairs that are kept apart"),
        "time": ("s", "end of each step"),
        "velocity": ("rad/s or m/s", "of each step, in MuJoCo's tangent: the displacement to q by dt"),
        "q0": ("see q_unit", "configuration before the first step, at rest"),
        "success": ("", "all steps are CONVERGED, and within the tolerances of the tasks; nothing overlaps"),
    }
    if plan.trajectories is not None:
        words["clearance"] = "m", "least distance of the pairs that are kept apart, at q0 and after each step"
    if isinstance(plan.randomize, Randomize):
        words |= MEANINGS
    tasks = plan.problem.tasks | targeted(plan.problem.constraints or {})
    for name, task in tasks.items():
        for part, unit in parts(task.unit).items() if not isinstance(task.unit, str) else [("", task.unit)]:
            words[f"residuals/{name}/{part}".rstrip("/")] = unit, "norm of the error that is left"
        if name in (plan.sampled or ()):
            for target in task.target_parts():
                words[f"targets/{name}/{target.name}"] = target.unit, "target, drawn for this row"
    return words
