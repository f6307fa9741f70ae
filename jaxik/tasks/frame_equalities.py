"""Equality constraints that hold two frames together: connects, welds and closures, all of one kind at once.

A Stewart platform's six loops differ in their frames and numbers alone. One by one each is a program to compile.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.kinematics.equality import Equality
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.lie import Transform
from jaxik.numerics.linalg import static_gather
from jaxik.numerics.rotation_log import left_jacobian, log_of_matrix
from jaxik.robot.robot import Robot
from jaxik.tasks.closure_rows import closure_rows, closure_slopes

HELD_FRAMES = ("connect", "weld", "closure")


class FrameEqualities(NamedTuple):
    """Equality constraints of one kind, which hold the same directions of two bodies, or of two sites."""

    equalities: tuple[Equality, ...]

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All first frames, then all second ones: so they stand side by side in the kinematics."""
        return tuple(e.frames[k] for k in (0, 1) for e in self.equalities)

    def reads_dofs(self, robot: Robot) -> tuple[int, ...]:
        return ()

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """The rows (m,), constraint by constraint, as `EqualityConstraintTask` describes them."""
        return jnp.ravel(jax.vmap(lambda ends: _rows(self.equalities[0], ends))(self._ends(robot, kin)))

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """Their derivative (m, nv) along `integrate`."""
        ends = self._ends(robot, kin)
        return self._rows_by_motions(ends, kin, self._carried)

    def step_jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """The same (m, nv) in axes that turn with what carries both frames: its motion changes no row."""
        return self._rows_by_motions(self._ends(robot, kin), kin, lambda ends, kin: 0)

    def _rows_by_motions(self, ends: "_Ends", kin: Kinematics, carried: Callable[..., Any]) -> jax.Array:
        """The derivative (m, nv) of rows; `carried`: ends, kin -> that (n, r, nv) by what carries both frames."""
        slopes = jax.vmap(lambda ends: _slopes(self.equalities[0], ends))(ends)
        rows = jnp.einsum("nri,niv->nrv", slopes, self._motions(kin))
        # An arm carries both ends of its gripper's loops alike. Rounding of what cancels would make redundant rows
        # independent, which then contradict each other in float32.
        both = self._moved_by_both(kin)
        if both.any():
            rows = jnp.where(both[:, None], carried(ends, kin), rows)
        return rows.reshape(-1, kin.nv)

    def second_derivative(self, robot: Robot, kin: Kinematics, multipliers: jax.Array) -> jax.Array:
        """The second derivative (nv, nv) of multipliers (m,) . residual along `integrate`."""

        def by_twists(ends: _Ends, multipliers: jax.Array) -> tuple[jax.Array, jax.Array]:
            def force(twists: jax.Array) -> jax.Array:
                return multipliers @ _slopes(self.equalities[0], ends.displaced(twists))

            zero = jnp.zeros(12, multipliers.dtype)
            stiffness = jax.jacfwd(force)(zero)
            # The slopes are by displacements from the displaced pose: the second derivative is the symmetric part.
            return force(zero), (stiffness + stiffness.T) / 2

        each = multipliers.reshape(len(self.equalities), -1)
        forces, stiffness = jax.vmap(by_twists)(self._ends(robot, kin), each)
        motions = self._motions(kin)
        pushed = jnp.einsum("nij,njv->niv", stiffness, motions)
        bent = kin.bending(motions.reshape(-1, 6, kin.nv), forces.reshape(-1, 6))
        return motions.reshape(-1, kin.nv).T @ pushed.reshape(-1, kin.nv) + bent

    def _moved_by_both(self, kin: Kinematics) -> np.ndarray:
        """Of each constraint, which degrees of freedom (n, nv) carry both of its frames."""
        moved = [[kin.moves(frame) for frame in e.frames] for e in self.equalities]
        return np.array([one & other for one, other in moved])

    def _carried(self, ends: "_Ends", kin: Kinematics) -> jax.Array:
        """The derivative (n, r, nv) of rows by what carries both frames: a shift in world axes turns."""
        rows = self.equalities[0].num_rows
        if self.equalities[0].kind == "closure":
            return jnp.zeros((len(self.equalities), rows, kin.nv), kin.q.dtype)
        shift = jax.vmap(lambda ends: _shift(self.equalities[0], ends))(ends)
        turned = jax.vmap(lambda shift: -lie.skew(shift) @ kin.angular)(shift)
        return jnp.pad(turned, ((0, 0), (0, rows - 3), (0, 0)))

    def _ends(self, robot: Robot, kin: Kinematics) -> "_Ends":
        """Numbers and frames of all constraints, with a leading axis n."""
        count = len(self.equalities)
        data = static_gather(robot.equality_data, [e.index for e in self.equalities])
        return _Ends(data, kin.transforms(self.frames[:count]), kin.transforms(self.frames[count:]))

    def _motions(self, kin: Kinematics) -> jax.Array:
        """The Jacobians (n, 12, nv) of both frames, one below the other, linear rows first, in world axes."""
        count, at = len(self.equalities), kin.frames_at(self.frames)
        parts = [part for k in (0, 1) for part in (at.linear[k * count :], at.angular[k * count :])]
        return jnp.concatenate([part[:count] for part in parts], axis=1)


def grouped_equalities(equalities: Sequence[Equality]) -> list[FrameEqualities]:
    """Group those that hold frames, in the order of the first of each group."""
    grouped: dict[Any, list[Equality]] = {}
    for e in equalities:
        if e.kind in HELD_FRAMES:
            grouped.setdefault((e.kind, e.directions, e.frames[0].kind), []).append(e)
    return [FrameEqualities(tuple(group)) for group in grouped.values()]


class _Ends(NamedTuple):
    """What one constraint looks at: its numbers (14,) and its two frames."""

    data: jax.Array
    first: Transform
    second: Transform

    def displaced(self, twists: jax.Array) -> "_Ends":
        """Both frames displaced by twists (12,) in world axes at their origins; right to first order."""
        moved = (
            Transform(frame.rotation + lie.skew(twist[3:]) @ frame.rotation, frame.position + twist[:3])
            for frame, twist in zip((self.first, self.second), (twists[:6], twists[6:]), strict=True)
        )
        return _Ends(self.data, *moved)


def _rows(equality: Equality, ends: _Ends) -> jax.Array:
    """The rows (r,) of a constraint like this one."""
    data, first, second = ends
    if equality.kind == "closure":
        return closure_rows(equality.directions, data, first, second)
    shift = _shift(equality, ends)
    if equality.kind == "connect":
        return shift
    return jnp.concatenate([shift, data[10] * log_of_matrix(_turn(equality, ends)).vector])


def _shift(equality: Equality, ends: _Ends) -> jax.Array:
    """From the point that the second frame of a connect or weld holds to that of the first (3,), in world axes."""
    one, other = _arms(equality, ends)
    return (ends.first.position + one) - (ends.second.position + other)


def _slopes(equality: Equality, ends: _Ends) -> jax.Array:
    """Their derivative (r, 12) by twists of the first and the second frame, in world axes at their origins."""
    if equality.kind == "closure":
        return closure_slopes(equality.directions, *ends)
    one, other = _arms(equality, ends)
    eye = unit_matrix(3, dtype=one.dtype)
    slopes = jnp.concatenate([eye, -lie.skew(one), -eye, lie.skew(other)], axis=1)
    if equality.kind == "connect":
        return slopes
    left = left_jacobian(log_of_matrix(_turn(equality, ends)))
    turned = ends.data[10] * (left @ ends.second.rotation.T)
    none = jnp.zeros_like(turned)
    return jnp.concatenate([slopes, jnp.concatenate([none, turned, none, -turned], axis=1)])


def _arms(equality: Equality, ends: _Ends) -> tuple[jax.Array, jax.Array]:
    """From the origins of both frames of a connect or weld to the point that is held (3,), in world axes."""
    data = ends.data
    if equality.frames[0].kind == "site":
        return jnp.zeros_like(data[:3]), jnp.zeros_like(data[:3])
    # A weld has the second body's anchor first, and then where the first body has it.
    points = (data[:3], data[3:6]) if equality.kind == "connect" else (data[3:6], data[:3])
    return ends.first.rotation @ points[0], ends.second.rotation @ points[1]


def _turn(equality: Equality, ends: _Ends) -> jax.Array:
    """The rotation (3, 3) from the second end of a weld to where the first has it, in the second's axes."""
    turn = ends.second.rotation.T @ ends.first.rotation
    if equality.frames[0].kind == "body":
        turn = turn @ lie.quaternion_to_matrix(ends.data[6:10])
    return turn
