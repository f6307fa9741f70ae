"""What following targets over time gives, for a person and for a program."""

import dataclasses
import os
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, static
from jaxik.core.status import REMEDIES, Outcome, Status, check
from jaxik.kinematics.topology import Topology
from jaxik.results import text
from jaxik.results.resample import resampled
from jaxik.results.track_csv import write_csv

# Steps of whole paths are INFEASIBLE where they are jumps, and where they pass a limit.
JUMPED = (
    "these are jumps, see `jumped`: no step within limits leads there from the waypoint before; try more candidates, "
    "or a slower path"
)
COLLIDED = (
    'shapes overlap there, and the step does not make the deepest less deep; or, in mode="whole", they are nearer than '
    "the margin, or may overlap on the way there. See robot.distances(track.q, world), "
    "robot.in_collision(track.q[:-1], world, to=track.q[1:]), "
    "and start from a free q0, or move the path or the obstacle"
)
# Of `plan_motion`, beside what is said of steps.
NOT_PLANNED = {
    Status.TIMEOUT: "; of plan_motion: there is no path, or raise PlanningOptions(max_attempts=..., max_looks=...); at "
    "the last step alone: the motion is not over, raise num_steps",
    Status.COLLIDES: "; of plan_motion: an end is nearer to something than the margin, as search has it",
    Status.INFEASIBLE: "; of plan_motion: an end is outside the joint limits or off a coupling, or both differ in what "
    "does not move",
}
PASSED = "these pass a limit, see `speed_share`, `acceleration_share` and `jerk_share`: raise it, or take a slower path"


@pytree
class Track(Outcome):
    """A motion of T steps, with time as the first axis and the batch axes of its arguments after it.

    Attributes:
      q (T, *batch, nq): the configuration at the end of each step, `q[k]` at the time (k + 1) dt after `q0`; inside
        the joint limits where `q0` is.
      velocity (T, *batch, nv): [rad/s, m/s], in MuJoCo's tangent: the displacement to `q` by dt, constant for a step.
      acceleration (T, *batch, nv): the change of velocity from the step before, by dt.
      status (T, *batch): of `Status`, int32. CONVERGED: the step is the best that limits allow, however far the targets
        are. STALLED: it is, and the robot is at rest though a task with a tolerance is not within it: no motion that
        limits allow brings it nearer; in float32 steps below 1.2e-7 rad are rest, as the first ones at 5 rad/s3 and
        1 kHz. COLLIDES: shapes overlap, and the step does not make the deepest less deep, as of
        an arm at rest that is pierced by a plate. INFEASIBLE, NONFINITE: there is no step, and the robot stood still.
        TIMEOUT.
        In `mode="whole"` CONVERGED: the path's tasks are within their tolerances and constraints hold; STALLED: they do
        not, as far as was found; COLLIDES: shapes are nearer than the margin of a `CollisionLimit`, or may
        overlap on the way there; INFEASIBLE:
        `jumped`, or a limit is passed; NONFINITE: a target is not finite. Those of `plan_motion` are said there.
      residuals: task, and constraint, to what it reports at `q`, for the target of that time: (T, *batch, ...).
      speed_share, acceleration_share, jerk_share (T, *batch): the largest of a joint, as a share of its
        `VelocityLimit`, `AccelerationLimit` and `JerkLimit`; 0 without one, above 1 where an `Elastic` one yields.
      yielded: of what is `Elastic`, by how much it yielded in each step (T, *batch, ...), as of `StepResult`.
      dt (*batch,): duration of a step [s].
      derivative_status (T, *batch): of `DerivativeStatus`, int32: what the derivative of each step is worth where the
        call was differentiated; else NOT_COMPUTED.
      jumped (T, *batch): of bool: whether the step to `q` leaves the path, as joints go further than limits allow in
        one step: the robot has to stop and go there some other way. Only in `mode="whole"`.
      settled (*batch,): of bool: whether smoothing settled, where nothing beside costs less that keeps shapes as far
        apart: not where `smoothing_steps` were too few, nor where the motion is the one that it began with. It may miss
        waypoints all the same. None but in `mode="whole"`.
      topology: of the robot: names of joints; static.
      residual_units: pairs of a part of the residuals and its unit, ("tip/position", "m"); static.
    """

    q: jax.Array = leaf(1)
    velocity: jax.Array = leaf(1)
    acceleration: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    speed_share: jax.Array = leaf(0)
    acceleration_share: jax.Array = leaf(0)
    jerk_share: jax.Array = leaf(0)
    dt: jax.Array = leaf(0)
    derivative_status: jax.Array = leaf(0)
    jumped: jax.Array = leaf(0)
    yielded: dict[str, Any] = leaf(default_factory=dict)
    settled: jax.Array | None = leaf(0, default=None)
    topology: Topology = static(kw_only=True)
    residual_units: tuple[tuple[str, str], ...] = static(default=(), kw_only=True)

    @property
    def time(self) -> jax.Array:
        """When each configuration is reached (T,), or (T, *batch) where dt differs [s]; `q0` is at 0."""
        steps = jnp.arange(1, self.q.shape[0] + 1, dtype=self.dt.dtype)
        return steps.reshape(-1, *(1,) * self.dt.ndim) * self.dt

    @property
    def peak_speed(self) -> jax.Array:
        """The largest share of a speed limit at any time (*batch,)."""
        return jnp.max(self.speed_share, axis=0, initial=0)

    @property
    def peak_acceleration(self) -> jax.Array:
        """The largest share of an acceleration limit at any time (*batch,)."""
        return jnp.max(self.acceleration_share, axis=0, initial=0)

    @property
    def peak_jerk(self) -> jax.Array:
        """The largest share of a jerk limit at any time (*batch,); NaN of a motion that was resampled."""
        return jnp.max(self.jerk_share, axis=0, initial=0)

    @property
    def jumps(self) -> jax.Array:
        """How many steps leave the path (*batch,): reconfigurations."""
        return jnp.sum(self.jumped, axis=0, dtype=jnp.int32)

    def check(self) -> Self:
        """Return this if every step converged.

        Raises:
          JaxikError: otherwise, on the host; names the steps, the reason and the remedy.
        """
        remedies = REMEDIES | {Status.COLLIDES: COLLIDED}
        if not isinstance(self.status, Tracer):
            shares = self.speed_share, self.acceleration_share, self.jerk_share
            fails = np.asarray(self.status) == Status.INFEASIBLE
            over = fails & ~np.asarray(self.jumped) & np.any([np.asarray(x) > 1 for x in shares], axis=0)
            why = [text for text, where in ((JUMPED, self.jumped), (PASSED, over)) if np.any(np.asarray(where))]
            remedies |= {Status.INFEASIBLE: "; or ".join(why)} if why else {}
        remedies |= {status: remedies[status] + more for status, more in NOT_PLANNED.items()}
        check(self.status, remedies)
        return self

    def resample(self, dt: float) -> "Track":
        """The motion at another rate, for a robot's controller; it keeps limits on joints as the steps do, but on jerk.

        It is smooth: a quadratic B-spline, whose velocity goes linearly from that of one step to that of the next. So
        speeds and accelerations are never above those of the steps, hinges and slides stay between neighbouring
        configurations, and the motion is off these by at most acceleration * dt^2 / 8. Start and end are the same.
        Where all of a batch starts from rest it is half a step later, and half a step longer, since velocities are
        reached in the middle of steps; else it has the velocity of the first step at once. Where dt does not divide the
        duration, the motion waits at the end, within the last step: its velocity and acceleration are those with which
        the motion ends. A motion that was resampled has velocities at the ends of its steps: resample the one that it
        came from. On balls and free joints velocities are exact to second order in the turn of a step. Accelerations
        jump from step to step as they did: at a higher rate that is a higher jerk, and `jerk_share` is NaN.

        Args:
          dt: the new duration of a step [s], shorter or longer.

        Returns:
          A `Track` without residuals and `yielded`, whose statuses are those of the steps.

        Raises:
          JaxikError: for a dt that is not positive or longer than the motion, under `jit`, or where elements of the
            batch have steps of their own duration.
        """
        if any(isinstance(x, Tracer) for x in jax.tree.leaves((self, dt))):
            raise JaxikError("resample works on the host: return the track from jit first")
        own, new = np.unique(np.asarray(self.dt, float)), validation.positive("dt", dt)
        if own.size != 1 or new.ndim:
            raise JaxikError("resample goes from one dt to another: the elements of the batch have several")
        found = resampled(self.topology, self.q, self.velocity, self.acceleration, float(own[0]), float(new))
        # Velocities go linearly from step to step, and so do bounds of their shares; before the first one is rest.
        shares = jnp.concatenate([jnp.zeros_like(self.speed_share[:1]), self.speed_share])
        speeds = shares[found.before + 1], shares[found.after + 1]
        share = found.share.reshape(-1, *(1,) * (self.status.ndim - 1))
        changes = (found.before != found.after).reshape(share.shape)
        return dataclasses.replace(
            self,
            q=found.q,
            velocity=found.velocity,
            acceleration=found.acceleration,
            status=self.status[found.step],
            derivative_status=self.derivative_status[found.step],
            speed_share=(1 - share) * speeds[0] + share * speeds[1],
            acceleration_share=jnp.where(changes, self.acceleration_share[found.after], 0),
            jerk_share=jnp.full_like(self.speed_share, jnp.nan, shape=found.q.shape[:-1]),
            dt=jnp.full_like(self.dt, float(new)),
            jumped=jnp.diff(jnp.cumsum(self.jumped, axis=0, dtype=int)[found.step], axis=0, prepend=0) > 0,
            residuals={},
            yielded={},
            residual_units=(),
        )

    def to_csv(self, path: str | os.PathLike[str], element: Any = ()) -> None:
        """Write time, coordinates, velocities, accelerations and statuses, a line a step, with names and units on top.

        Args:
          path: of the file, which is replaced.
          element: of a batch, the index of the element: `3`, or `(3, 0)`.

        Raises:
          JaxikError: for a file that cannot be written, an element that there is not, a batch without one, under `jit`.
        """
        if any(isinstance(x, Tracer) for x in jax.tree.leaves(self)):
            raise JaxikError("to_csv works on the host: return the track from jit first")
        time = self.time if self.dt.ndim else self.time.reshape(-1, *(1,) * (self.status.ndim - 1))
        time = np.broadcast_to(time, self.status.shape)[..., None]
        columns = np.concatenate([time, self.q, self.velocity, self.acceleration], axis=-1)
        write_csv(path, self.topology, columns, np.asarray(self.status), element)

    def __repr__(self) -> str:
        """How steps ended, peaks relative to limits, and norms of residuals over all steps and at the end."""
        return _described(self)


def _described(track: Track) -> str:
    name, status = track.topology.name, track.status
    shares = track.speed_share, track.acceleration_share, track.jerk_share
    moves = track.q, track.velocity, track.acceleration
    arrays = (moves, status, track.residuals, shares, track.dt, track.yielded, track.settled)
    if not text.known(jax.tree.leaves(arrays)):
        return f"Track({name}, traced, {np.shape(status)})"
    status, dt = np.asarray(status), np.asarray(track.dt)
    steps, batch = status.shape[0], status.shape[1:]
    said = f"{name}, {steps} steps of {dt.flat[0]:g} s" if dt.size and np.ptp(dt) == 0 else f"{name}, {steps} steps"
    said += f", batch {batch}" if batch else ""
    if not status.size:
        return f"Track({said})"
    norms = text.residual_norms(track.residuals, track.residual_units, status.size)
    residuals = "; ".join(
        f"{part} {', '.join(text.number(x) for x in text.quantiles(norm, text.SHARES.values()))}, "
        f"{text.number(np.max(norm.reshape(steps, -1)[-1]))} {unit}".rstrip()
        for part, norm, unit in norms
    )
    peaks = zip(("speed", "acceleration", "jerk"), map(np.max, shares), strict=True)
    peaks = ", ".join(f"{name} {share:.3g}" for name, share in peaks if share > 0)
    stops = stops_of(track)
    stopped = f", in {stops} abrupt {'stops' if stops > 1 else 'stop'}" if stops else ""
    return (
        f"Track({said}: {text.counted(status, Status)}{_jumps_said(track)}{_settled_said(track)}; "
        f"peaks: {peaks or 0} of their limits{stopped}; "
        f"residuals ({', '.join(text.SHARES)}, at the end): {residuals or 'none'}"
        f"{text.yielded(track.yielded, track.residual_units, np.shape(status))}"
        f"{text.differentiated(track.derivative_status)})"
    )


def stops_of(track: Track) -> int:
    """How often a robot that moved stands still at once, whatever its limits: steps that are NONFINITE or INFEASIBLE.

    Of a whole path also where it stands still faster than its limits allow.
    """
    failed = np.isin(np.asarray(track.status), (Status.NONFINITE, Status.INFEASIBLE))
    at_rest = np.all(np.asarray(track.velocity) == 0, axis=-1)
    return int(np.sum(failed & at_rest & np.any(np.asarray(track.acceleration) != 0, axis=-1)))


def _jumps_said(track: Track) -> str:
    """How often the path is left, and of one motion where."""
    jumps = int(np.sum(track.jumped))
    if not jumps:
        return ""
    said = f", {jumps} jump{'s' if jumps > 1 else ''}"
    if np.ndim(track.jumped) > 1:
        return said
    steps = np.flatnonzero(np.asarray(track.jumped)).tolist()
    return f"{said} at step{'s' if jumps > 1 else ''} {', '.join(map(str, steps[:8]))}{', ...' if jumps > 8 else ''}"


def _settled_said(track: Track) -> str:
    """How many motions are not as smooth as they might be."""
    if track.settled is None or np.all(np.asarray(track.settled)):
        return ""
    unsettled = np.sum(~np.asarray(track.settled))
    return f", {unsettled} not settled" if np.ndim(track.settled) else ", not settled"
