"""Keep the residual of any task between bounds."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, shapes_of_one
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Limit, Rows, share, share_of_step, times
from jaxik.numerics.linalg import norm
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task
from jaxik.tasks.residual_bound import NormInside, ReadsATask, RowInside, part_of


@pytree
class TaskLimit(ReadsATask, Limit):
    """Keep the residual of a task between bounds, row by row or by its norm.

    The hand in a box of another frame, at most so far from a point, turned by at most an angle, looking into a cone,
    the centre of mass above a rectangle: what is a task with a target is a limit with room around it. One step of
    differential IK has a row `J dq <= gain * (upper - r)` for each bound, J and r the task's.

    Args:
      task: a task, whose target and axes say what the residual is; its cost, gain and priority do not count.
      lower, upper: bounds of the residual's rows (*batch, k), infinite for none; of a residual with several parts a
        dict of such by their names, as {"position": [-0.1, -0.1, 0]}, without those that have no bound.
      largest: bound of the norm of the residual's rows (*batch,), likewise.
      gain: the share of the distance to a bound that one step may use (*batch,).
      rate: [1/s] (*batch,) instead of `gain`: the share is then 1 - exp(-rate dt), and motion the same at any dt.

    Raises:
      JaxikError: for what is no task, no bound at all, a bound that is NaN, a lower bound above the upper one, a gain
        outside (0, 1] or a rate that is not above zero; in `Problem`, for a part that the residual does not have, and
        for another number of rows.
    """

    task: Task = leaf()
    lower: Any = leaf(1, default=None)
    upper: Any = leaf(1, default=None)
    largest: Any = leaf(0, default=None)
    gain: Any = leaf(0, default=0.95)
    rate: Any = leaf(0, default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):
            raise JaxikError(f"task is a task such as FrameTask(...), not of type {type(self.task).__name__}")
        lower, upper = (_bounds(name, getattr(self, name), 1) for name in ("lower", "upper"))
        largest = _bounds("largest", self.largest, 0)
        if not any(True for bounds in (lower, upper, largest) for _ in _parts(bounds)):
            raise JaxikError("a TaskLimit has at least one bound: lower, upper or largest")
        for (part, low), (other, high) in ((a, b) for a in _parts(lower) for b in _parts(upper)):
            if part == other and not _ordered(low, high):
                raise JaxikError(f"lower is at most upper, not {low} and {high}")
        set_fields(
            self,
            lower=lower,
            upper=upper,
            largest=largest,
            gain=share(self.gain),
            rate=None if self.rate is None else validation.positive("rate", self.rate),
        )

    def check(self, robot: Robot) -> None:
        super().check(robot)
        sizes = _sizes(self.task, robot)
        for name in ("lower", "upper", "largest"):
            for part, bound in _parts(getattr(self, name)):
                if (part is None and len(sizes) > 1) or (part is not None and part not in sizes):
                    kind = "a dict" if part is None else f"a dict, without {part!r}"
                    raise JaxikError(f"{name} is {kind}, by parts of the residual: {', '.join(map(repr, sizes))}")
                size = sizes[next(iter(sizes)) if part is None else part]
                if name != "largest" and np.shape(bound)[-1] != size:
                    raise JaxikError(
                        f"{name} has one bound for each of the {size} rows{f' of {part!r}' if part else ''}, "
                        f"not {np.shape(bound)[-1]}; infinite ones where there is none"
                    )

    def inequality_tasks(self) -> tuple[Task, ...]:
        found: list[Task] = []
        for upper, bounds in ((False, self.lower), (True, self.upper)):
            for part, bound in _parts(bounds):
                found += [RowInside(self.task, bound[..., i], part, i, upper) for i in range(bound.shape[-1])]
        found += [NormInside(self.task, bound, part) for part, bound in _parts(self.largest)]
        return tuple(found)

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion) -> Rows:
        residual, jacobian = self.task.residual(robot, kin), self.task.step_jacobian(robot, kin)
        rows, rooms = [], []
        for sign, bounds in ((-1, self.lower), (1, self.upper)):
            for part, bound in _parts(bounds):
                rows.append(sign * part_of(jacobian, part).reshape(-1, kin.nv))
                rooms.append(sign * (bound - jnp.ravel(part_of(residual, part))))
        for part, bound in _parts(self.largest):
            r = jnp.ravel(part_of(residual, part))
            size = norm(r)
            along = r / jnp.where(size > 0, size, 1)
            rows.append((along @ part_of(jacobian, part).reshape(-1, kin.nv))[None])
            rooms.append((bound - size)[None])
        room = jnp.concatenate(rooms)
        matrix = jnp.where(jnp.isfinite(room)[:, None], jnp.concatenate(rows), 0)
        return matrix, times(share_of_step(self.gain, self.rate, motion), room)


def _bounds(name: str, value: Any, rank: int) -> Any:
    """Bounds as arrays with at least the axes of one element."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {part: _bounds(f"{name}[{part!r}]", value[part], rank) for part in sorted(value)}
    bound = validation.array(name, value)
    if not isinstance(bound, Tracer) and np.isnan(bound).any():
        raise JaxikError(f"{name} is a bound of a residual, infinite for none, not {value}")
    return bound[None] if rank and bound.ndim == 0 else bound


def _parts(bounds: Any) -> Iterator[tuple[str | None, jax.Array]]:
    """The parts of a residual that have bounds, by their names; None: the only one."""
    if isinstance(bounds, Mapping):
        yield from ((part, bound) for part, bound in bounds.items() if bound is not None)
    elif bounds is not None:
        yield None, bounds


def _ordered(low: Any, high: Any) -> bool:
    traced = isinstance(low, Tracer) or isinstance(high, Tracer)
    return traced or np.shape(low)[-1] != np.shape(high)[-1] or bool((np.asarray(low) <= np.asarray(high)).all())


def _sizes(task: Task, robot: Robot) -> dict[Any, int]:
    """How many rows each part of a task's residual has on a robot, by its name; None: the only one."""

    def residual(given: tuple[Task, Robot]) -> Any:
        task, robot = given
        return task.residual(robot, robot.kinematics(robot.q_home, task.frames_of(robot), task.subtrees))

    shapes = shapes_of_one(residual, (task, robot))
    parts = shapes if isinstance(shapes, Mapping) else {None: shapes}
    return {part: sum(x.size for x in jax.tree.leaves(shape)) for part, shape in parts.items()}
