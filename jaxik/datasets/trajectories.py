"""Rows that are motions: what is random of them, and what `track` makes of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.batching.linear_map import of_each
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import core_ranks
from jaxik.core.status import Status
from jaxik.core.validation import one_of
from jaxik.datasets.draws import random_configurations
from jaxik.kinematics.forward import forward
from jaxik.limits.combine import looking_at_distances, merged_distances
from jaxik.problem.problem import Problem, constants_of, constraints_of, limits_of
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import within_tolerance
from jaxik.solvers.tracking.interpolate import interpolate
from jaxik.solvers.tracking.options import TrackOptions
from jaxik.solvers.tracking.shapes import SHAPES, eased
from jaxik.solvers.tracking.track import track
from jaxik.tasks.base import Task
from jaxik.tasks.com import ComTask
from jaxik.tasks.equality_constraint import EqualityConstraintTask
from jaxik.tasks.frame import FrameTask
from jaxik.tasks.relative_frame import RelativeFrameTask
from jaxik.tasks.weights import row_weights

# Speed of joints that have no limit of theirs [rad/s or m/s].
UNLIMITED = 1.0
# The share of a shape's duration in which it speeds up, and slows down.
RAMP = 0.2
# Tasks whose targets have a position that a shape moves.
PLACED = (FrameTask, RelativeFrameTask, ComTask)


@dataclasses.dataclass(frozen=True)
class Trajectories:
    """What is random where the rows of a dataset are motions: the start, at rest, and the paths of targets.

    With "waypoints" a path goes through random configurations, by `interpolate`, and targets are where these have the
    frames: all tasks can be met at once, inside the joint limits, with joints that `dof_mask` holds where the start has
    them. With a shape each target moves along one of its own, in a random plane, from where the start has it, and keeps
    its orientation: some lead to joint limits.

    Nothing is known of obstacles where a motion is drawn: with a `CollisionLimit` rows have the array `clearance`, and
    `success` where nothing overlaps; `keep="converged"` draws the others again.

    Args:
      num_steps: of each motion.
      dt: duration of a step [s].
      path: "waypoints", "line" (there and back in a lap), "circle" or "lemniscate".
      waypoints: how many follow the start, evenly in time.
      speed: (least, most): the joint that moves fastest between two waypoints has at most this share of its speed limit
        on average (a path's peak is half as much again); where the robot has no limit, of 1 rad/s or m/s.
      size: (least, most) of a shape: length of a line, else radius [m].
      laps: (least, most) of a shape.

    Raises:
      JaxikError: for numbers out of range, and an unknown path.
    """

    num_steps: int
    dt: float = 0.01
    path: str = "waypoints"
    waypoints: int = 3
    speed: Any = (0.1, 0.4)
    size: Any = (0.05, 0.15)
    laps: Any = (1.0, 1.0)

    def __post_init__(self) -> None:
        one_of("path", self.path, ("waypoints", *SHAPES))
        for name in ("num_steps", "waypoints"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise JaxikError(f"{name} is a whole number from 1 on, not {value!r}")
        dt = _floats(self.dt, ())
        if dt is None or not 0 < dt < np.inf:
            raise JaxikError(f"dt is the duration of a step, above 0 s, not {self.dt!r}")
        object.__setattr__(self, "dt", float(dt))
        for name in ("speed", "size", "laps"):
            value = _floats(getattr(self, name), (2,))
            if value is None or not (np.isfinite(value).all() and 0 < value[0] <= value[1]):
                raise JaxikError(f"{name} is (least, most), both above 0, not {getattr(self, name)!r}")
            object.__setattr__(self, name, tuple(value.tolist()))

    def check(self, problem: Problem, tasks: Mapping[str, Any], start: Any) -> None:
        """Raise an error where the path is none for the tasks that follow it, or for the problem."""
        wrong = [name for name, task in tasks.items() if not isinstance(task, PLACED)]
        if wrong and self.path != "waypoints":
            raise JaxikError(
                f'a {self.path} moves targets of frames and of the centre of mass; {wrong[0]} takes path="waypoints"'
            )
        held = constraints_of(problem, couplings=False).values()
        drawn = start is None or self.path == "waypoints"
        if drawn and any(isinstance(task, EqualityConstraintTask) for task in held):
            raise JaxikError(
                "random configurations do not close the loops that the constraints hold: give a start that does, and a "
                f"shape as path, {', '.join(SHAPES)}"
            )

    def drawn(
        self, problem: Problem, tasks: Mapping[str, Any], start: Any, key: jax.Array
    ) -> tuple[jax.Array, dict[str, Any]]:
        """Where one motion starts (nq,), and targets of tasks over time (num_steps, ...); drawn from a key."""
        robot, keys = problem.robot, jax.random.split(key, 2)
        q0 = random_configurations(problem, keys[0]) if start is None else start
        if self.path == "waypoints":
            way = self._configurations(problem, q0, keys[1])
            return q0, {name: _target_at(task, robot, way) for name, task in tasks.items()}
        own = jax.random.split(keys[1], len(tasks))
        return q0, {
            name: self._shaped(_target_at(task, robot, q0), own[i]) for i, (name, task) in enumerate(tasks.items())
        }

    def times(self, dtype: Any) -> jax.Array:
        """The end of each step (num_steps,) [s]."""
        return jnp.asarray(self.dt * np.arange(1, self.num_steps + 1), dtype)

    def _configurations(self, problem: Problem, q0: jax.Array, key: jax.Array) -> jax.Array:
        """Configurations (num_steps, nq) on a smooth way through random ones."""
        robot = problem.robot
        duration = self.num_steps * self.dt / self.waypoints
        fastest = jnp.where(jnp.isfinite(robot.velocity_limit), robot.velocity_limit, UNLIMITED)
        share = _between(self.speed, jax.random.fold_in(key, 0), q0.dtype)
        others = random_configurations(problem, jax.random.fold_in(key, 1), (self.waypoints,), q0)

        def onward(q: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
            way = robot.difference(q, other)
            needed = jnp.max(jnp.abs(way) / (duration * fastest))
            following = robot.integrate(q, way * jnp.minimum(1, share / needed))
            return following, following

        _, following = jax.lax.scan(onward, q0, others)
        points = jnp.concatenate([q0[None], following])
        when = jnp.asarray(duration * np.arange(self.waypoints + 1), q0.dtype)
        return interpolate(points, when, self.times(q0.dtype), robot=robot)

    def _shaped(self, start: Any, key: jax.Array) -> Any:
        """A target that moves along a shape in a plane of any direction."""
        of_size, of_laps, of_plane = jax.random.split(key, 3)
        numbers = start.wxyz_xyz if isinstance(start, jaxlie.SE3) else start
        phase = 2 * np.pi * _between(self.laps, of_laps, numbers.dtype)
        phase *= eased(self.times(numbers.dtype), RAMP * self.num_steps * self.dt)
        along, across = SHAPES[self.path](phase)
        flat = _between(self.size, of_size, numbers.dtype) * jnp.stack([along, across, 0 * along], axis=-1)
        quaternion = jax.random.normal(of_plane, (4,), numbers.dtype)
        shift = jaxlie.SO3(quaternion / jnp.linalg.norm(quaternion)).as_matrix() @ flat.T
        moved = jnp.tile(numbers, (self.num_steps, 1)).at[:, -3:].add(shift.T)
        return jaxlie.SE3(moved) if isinstance(start, jaxlie.SE3) else moved


def _floats(value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Numbers in a shape, to which one broadcasts; None where they are none."""
    try:
        return np.broadcast_to(np.asarray(value, float), shape)
    except (TypeError, ValueError):
        return None


def _between(bounds: tuple[float, float], key: jax.Array, dtype: Any) -> jax.Array:
    return jax.random.uniform(key, (), dtype, *bounds)


def _target_at(task: Any, robot: Robot, q: jax.Array) -> Any:
    """The target that configurations (*batch, nq) meet."""
    field = task.target_field[0]
    others = {f.name: getattr(task, f.name) for f in dataclasses.fields(task) if f.init and f.name != field}
    return getattr(type(task).from_configuration(robot, q, **others), field)


def followed(
    trajectories: Trajectories, problem: Problem, q0: jax.Array, targets: dict[str, Any], options: TrackOptions
) -> dict[str, Any]:
    """The arrays of n motions, a row each.

    Args:
      problem: whose leaves may have an axis of n in front.
      q0: (n, nq).
      targets: (n, num_steps, ...) by task.
    """
    over_time = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), targets)
    found = track(problem, q0, trajectories.dt, over_time, options=options)
    ranks = jax.tree.map(lambda x: x.ndim - 2, found.residuals)
    inside = of_each(_all_met, (problem, found.residuals), (core_ranks(problem), ranks))
    times = jnp.broadcast_to(trajectories.times(q0.dtype)[:, None], found.status.shape)
    kept = {"time": times, "q": found.q, "velocity": found.velocity, "status": found.status}
    rows = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), kept | {"residuals": found.residuals})
    good = jnp.all(inside & (found.status == Status.CONVERGED), axis=0)
    if not looking_at_distances(limits_of(problem)):
        return rows | {"q0": q0, "success": good}
    passed = jnp.concatenate([q0[None], found.q])
    clearance = jnp.min(of_each(_clearance, (problem, passed), (core_ranks(problem), 1)), axis=0)
    return rows | {"q0": q0, "clearance": clearance, "success": good & (clearance >= 0)}


def _clearance(problem: Problem, q: jax.Array) -> jax.Array:
    """The least distance () of the pairs that the limits keep apart, at a configuration (nq,)."""
    looking = looking_at_distances(limits_of(problem))
    return jnp.min(merged_distances(looking, problem.robot, forward(constants_of(problem.robot, looking), q)))


def _all_met(problem: Problem, residuals: dict[str, Any]) -> jax.Array:
    """Whether the tasks of one step are within their tolerances."""
    tasks = {name: task for name, task in problem.tasks.items() if isinstance(task, Task) and name in residuals}
    met = [within_tolerance(task, row_weights(task, residuals[name]), residuals[name]) for name, task in tasks.items()]
    return jnp.all(jnp.asarray(met, bool))
