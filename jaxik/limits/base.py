"""The limit contract: bounds and inequalities on the displacement of one differential-IK step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.motion import Motion
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task

# A row all of whose entries are below this many roundings is zero.
ROUNDINGS = 64

Bounds = tuple[jax.Array, jax.Array]
Rows = tuple[jax.Array, jax.Array]


class Limit:
    """A bound on the displacement dq = velocity * dt (nv,) of one step, written for one element.

    A limit is a frozen pytree like a task: frames, joints and which rows exist are static, and bounds, gains and
    margins are leaves. The robot is the problem's, with its own joint limits; `merged_bounds` and `merged_rows` cast
    it and the limits to the configuration's dtype. A new limit needs `bounds` or `inequalities`.

    Differential IK uses `bounds` and `inequalities`; `solve` uses `tightened` and `inequality_tasks`.

    Attributes:
      frames: frames that `inequalities` reads; static.
      velocity_level: whether it limits velocities and not positions, so that `solve` ignores it.
    """

    velocity_level = False

    @property
    def frames(self) -> tuple[Frame, ...]:
        return ()

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        """The frames that it reads on a robot; static."""
        return self.frames

    def check(self, robot: Robot) -> None:
        """Check on the host that the limit fits `robot`; `Problem` calls it. Extend it with `super().check`.

        Raises:
          JaxikError: for a frame or a joint of another robot, or a wrong shape.
        """
        for frame in self.frames:
            robot.frame(frame)

    def tightened(self, robot: Robot) -> Robot:
        """The robot with the joint limits that solutions of `solve` keep: by default its own."""
        return robot

    def inequality_tasks(self) -> tuple[Task, ...]:
        """Tasks whose residuals () stay above or at zero in `solve`."""
        return ()

    def clearance_task(self, priority: int) -> Task | None:
        """A task that `solve` and `search` have to meet beside those of their highest priority."""
        return None

    def bounds(self, robot: Robot, kin: Kinematics, motion: Motion) -> Bounds | None:
        """Lower and upper bounds (nv,) of the displacement, infinite where there is none; None for a limit without."""
        return None

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion) -> Rows | None:
        """G (k, nv) and h (k,) with `G dq <= h`, k static; h < 0 where the limit is violated; None: no rows."""
        return None

    def choice(self, robot: Robot, kin: Kinematics) -> Any:
        """Which of many rows `inequalities` computes, the nearest pairs say, if it takes `choice=...`; None: all.

        Derivatives are those of the rows that a step has chosen, and do not look for them again.
        """
        return None

    def held_rows(self, robot: Robot, kin: Kinematics, choice: Any) -> jax.Array | None:
        """Which rows (k,) of `inequalities` derivatives take for given in part; None for none."""
        return None

    def beyond_contact(self, motion: Motion) -> jax.Array | None:
        """What rows of distances demand () beyond contact, in h; None for rows of others.

        Of such rows that are violated the deepest come back first: others may get as deep as that meanwhile, but what
        is apart stays so.
        """
        return None

    def distances(self, robot: Robot, kin: Kinematics) -> jax.Array | None:
        """Signed distances (p,) that are looked at again where a step arrives: none that is positive turns negative.

        `solve` and `search` report them by the frames of tasks: a limit that has them has a `clearance_task`.
        """
        return None

    def pair_names(self, robot: Robot) -> tuple[tuple[str, str], ...]:
        """What each of `distances` is between (p,); static."""
        return ()

    def look(
        self, robot: Robot, kin: Kinematics, displacement: jax.Array | None = None, before: Any = None
    ) -> tuple[Any, jax.Array, jax.Array]:
        """Look at `distances` once more, somewhere on the way of a step.

        Args:
          displacement (nv,): what led here from the last look; None at the first.
          before: what the last look found.

        Returns:
          What the next look needs, the distances (p,), and whether each (p,) of those that were positive stayed so all
          the way since the last look. By default nothing is known of the way.
        """
        distances = self.distances(robot, kin)
        assert distances is not None
        return (), distances, jnp.ones(distances.shape, bool)

    def lower_bound_of_rows(
        self, robot: Robot, kin: Kinematics, motion: Motion, directions: jax.Array
    ) -> tuple[jax.Array, jax.Array] | None:
        """The minima of directions . dq over the limit's own rows, for rows that bound what no box bounds.

        Args:
          directions (k, nv).

        Returns:
          The minima (k,), zero or below, of the part of the directions that the rows bound, and the other part
          (k, nv); None for a limit whose rows bound no part from below.
        """
        return None


def share(value: Any) -> jax.Array:
    """Check the gain of a limit: the fraction of the distance to it that one step may use."""
    gain = validation.array("gain", value)
    if not isinstance(gain, Tracer) and not ((np.asarray(gain) > 0) & (np.asarray(gain) <= 1)).all():
        raise JaxikError(f"gain is in (0, 1], not {value}")
    return gain


def share_of_step(gain: Any, rate: Any, motion: Motion) -> Any:
    """The share () of the distance to a limit that one step may use: a gain, or by a rate [1/s] where there is one."""
    return gain if rate is None else 1 - jnp.exp(-rate * motion.dt)


def noise(matrix: jax.Array) -> jax.Array:
    """The size () below which entries of rows (k, n) on a displacement, and their right-hand sides, are rounding.

    Entries are metres and radians for each metre and radian, and so about 1 or lengths of the robot.
    """
    return ROUNDINGS * jnp.finfo(matrix.dtype).eps * jnp.maximum(jnp.max(jnp.abs(matrix), initial=0), 1)


def without_noise(matrix: jax.Array) -> jax.Array:
    """Set rows (k, n) on a displacement to zero where they are rounding: scaled up, noise would be a constraint."""
    return jnp.where(jnp.max(jnp.abs(matrix), axis=-1, keepdims=True, initial=0) <= noise(matrix), 0, matrix)


def times(factor: Any, distance: jax.Array) -> jax.Array:
    """factor * distance; an infinite distance stays what it is, and has finite derivatives."""
    finite = jnp.isfinite(distance)
    return jnp.where(finite, factor * jnp.where(finite, distance, 0), distance)


def lowest(directions: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """Minima (k,) of directions (k, n) over a box (n,), with finite derivatives where the box is infinite."""
    end = jnp.where(directions > 0, lower, upper)
    counts = directions != 0
    finite = counts & jnp.isfinite(end)
    minima = jnp.sum(directions * jnp.where(finite, end, 0), axis=1)
    return jnp.where(jnp.any(counts & ~finite, axis=1), -jnp.inf, minima)
