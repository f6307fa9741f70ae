"""Constraints and limits that yield where they cannot be held."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Limit, Rows, without_noise
from jaxik.limits.combine import context_of
from jaxik.limits.jerk import JerkLimit
from jaxik.numerics.constants import unit_matrix
from jaxik.robot.robot import Robot
from jaxik.tasks.base import TargetPart, Task

PENALTY = 10.0
SINGULAR_VALUE = 0.1
# By how much a rank of `order` multiplies the penalty.
FACTOR = 10.0


@pytree
class Elastic:
    """A constraint or a limit that yields where it cannot be held, by as little as can be.

    For `step`, `solve`, `search`, and `track`; of limits along whole paths those of joints, speeds and accelerations.

    In `solve` and `search` the residual r of a task, or how far a `PositionLimit`, `DistanceLimit` or the
    `ConfigurationLimit` of a hinge or slide is passed, adds `penalty * |row|`, each row its own, to the cost of the
    tasks of the highest priority; lower ones let nothing yield more. What is found is a minimum of that sum: what is
    CONVERGED may have constraints that yield, as `solution.yielded` says. Of a joint that others follow the limit is
    that inside which these keep theirs as well; of a ball, and of what nothing moves, only limits that hold count.

    In a step its rows, `J dq = -gain residual` of a task or `G dq <= h` of a limit, add `penalty * |row's violation|`
    to the objective of the step, each row its own. That is the exact L1 penalty (Fletcher, "Practical Methods of
    Optimization", 1987, section 14.3): a row whose multiplier need not be larger than the penalty is held exactly, as
    if it were hard; another yields, and pulls with the constant force `penalty`. Tasks add
    `cost^2 |J dq + gain residual|^2 / 2`, so that rows hold against tasks of cost 1 that are up to about `penalty` [m,
    rad] from their targets. Rows of a task with costs have their penalties multiplied by these.

    Near a singularity, as a stretched arm, a demand would ask a step for any speed, and the next one for the opposite.
    So a constraint is held in directions whose singular value s is above s0 = sqrt(singular_value^2 + |gain residual|),
    below which the linear rows are wrong by as much as they demand (a curvature of 1 m or rad is assumed). In the
    others it is a task beside those of the highest priority, of least squares with the weight
    `penalty / s0^2 / (1 - s^2 / s0^2)^2`; and what the second derivative of its residual makes of a motion is damped.
    The rest yields, and is in `yielded`. So an arm whose target leaves its reach and returns comes to rest and follows
    again, by velocities whose changes shrink with the steps, where gains are rates times `dt`.

    Along a whole path, whose tasks hold, a joint whose displacement d in a step, the change of that, or position at a
    waypoint is beyond its limit adds `penalty * |how far|` to the movement that is minimised, and so does each row of a
    constraint at each waypoint. Movement is the sum of `(d^2 + 64 d'^2 + 4096 d''^2) / 2` with d' and d'' the first and
    second difference of displacements [rad or m]. So these yield as well where keeping them would take jerks whose
    force is larger than the penalty: a larger one holds longer, and takes more steps of smoothing.

    Of those that cannot be held together the ones of the lower `order` yield first: a rank multiplies the penalty by
    10. It yields only where that saves more than ten times as much of a rank below; those of one rank share, by their
    penalties.

    Args:
      of: a task, in `Problem(..., constraints={"name": Elastic(...)})`, or a limit, in `limits`.
      penalty: above zero (*batch,), per unit of the row: of the objective by m or rad.
      singular_value: of the rows of a task (*batch,), in m or rad per rad, zero or above.
      order: rank, 0 or more, static; None: 0.
      name: of a limit, in `result.yielded`, without "/"; None: its class in small letters, as `velocity_limit`; static.

    Raises:
      JaxikError: for what is no task or limit, a `JerkLimit`, a name with "/", and a penalty that is not above zero.
    """

    of: Any = leaf()
    penalty: Any = leaf(0, default=PENALTY)
    singular_value: Any = leaf(0, default=SINGULAR_VALUE)
    order: int | None = static(default=None)
    name: str | None = static(default=None)

    def __post_init__(self) -> None:
        given = type(self.of).__name__
        if isinstance(self.of, Elastic):
            raise JaxikError("Elastic is of a task or a limit, not of an Elastic: it has one penalty and one order")
        if not isinstance(self.of, Task | Limit):
            raise JaxikError(f"Elastic is of a task such as FrameTask or a limit such as VelocityLimit, not {given}")
        if isinstance(self.of, JerkLimit):
            raise JaxikError("a JerkLimit does not yield: it looks ahead to steps that have to keep it as well")
        order = self.order
        if order is not None and (isinstance(order, bool) or not isinstance(order, int) or order < 0):
            raise JaxikError(f"order is a rank, 0 (yields first) or more, not {order!r}")
        if self.name is not None and (not isinstance(self.name, str) or "/" in self.name):
            raise JaxikError(f"name is a text without '/', not {self.name!r}")
        if self.name is not None and isinstance(self.of, Task):
            raise JaxikError(f"a constraint has its name in the problem: leave name={self.name!r} out")
        least = validation.number("singular_value", self.singular_value)
        set_fields(self, penalty=validation.positive("penalty", self.penalty), singular_value=least)

    @property
    def key(self) -> str:
        """The name of a limit in `result.yielded`."""
        if self.name is not None:
            return self.name
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self.of).__name__).strip("_")

    @property
    def priority(self) -> int:
        """Of the task."""
        return getattr(self.of, "priority", 0)

    @property
    def row_penalty(self) -> jax.Array:
        """The penalty (*batch,) of its rows."""
        return self.penalty * FACTOR ** (self.order or 0)

    def target_parts(self) -> tuple[TargetPart, ...]:
        """Of the task, as `save` writes them; none of a limit."""
        return self.of.target_parts() if isinstance(self.of, Task) else ()

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        """The frames that it reads on a robot; static."""
        return self.of.frames_of(robot)

    def check(self, robot: Robot) -> None:
        """Check on the host that what it is of fits `robot`; `Problem` calls it."""
        self.of.check(robot)


def rows_of_limit(
    limit: Limit, others: Sequence[Limit], robot: Robot, kin: Kinematics, motion: Motion
) -> tuple[Rows, bool]:
    """All that one limit asks for as G (k, nv) and h (k,), `G dq <= h`; rows without a bound are zero, with h = inf.

    Args:
      limit: what is elastic.
      others: the limits of the problem that hold.
      robot, kin, motion: as for `merged_bounds`.

    Returns:
      The rows: upper bounds (nv,), lower bounds (nv,), and rows; and whether it has bounds.
    """
    dtype = kin.q.dtype
    robot, motion, limit = robot.astype(dtype), cast(motion, dtype), cast(limit, dtype)
    own, *more = context_of(limit, [cast(other, dtype) for other in others], robot)
    box, rows = limit.bounds(own, kin, motion, *more), limit.inequalities(own, kin, motion, *more)
    eye = unit_matrix(robot.nv, dtype=dtype)
    matrices, rights = [jnp.zeros((0, robot.nv), dtype)], [jnp.zeros(0, dtype)]
    if box is not None:
        matrices, rights = [eye, -eye], [box[1], -box[0]]
    if rows is not None:
        matrices, rights = [*matrices, without_noise(rows[0])], [*rights, rows[1]]
    matrix, right = jnp.concatenate(matrices), jnp.concatenate(rights)
    none = jnp.isinf(right) & (right > 0)
    return (jnp.where(none[:, None], 0, matrix), right), box is not None
