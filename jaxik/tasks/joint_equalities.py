"""Equality constraints between joints and between tendons: polynomials, and lengths."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import pytree, static
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics.constants import unit_matrix
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task

# What a constraint's rows look at, and the derivative (rows, 6) or (rows, nv) by it; something may come twice.
_Slopes = list[tuple[Any, jax.Array]]


@pytree
class JointEqualities(Task):
    """The part of an `EqualityConstraintTask` that couples joints or tendons: a row (m,) for each constraint."""

    equalities: tuple[Equality, ...] = static()

    @property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(dict.fromkeys(frame for equality in self.equalities for frame in equality.frames))

    def reads_dofs(self, robot: Robot) -> tuple[int, ...]:
        """Those of coupled joints and of tendons along joints."""
        joints, tendons = robot.topology.joints, robot.topology.tendons
        read = [j for e in self.equalities if e.kind == "joint" for j in e.members]
        read += [j for e in self.equalities if e.kind == "tendon" for t in e.members for j in tendons[t].joints]
        return tuple(joints[j].v_index for j in dict.fromkeys(read))

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return jnp.concatenate([_ROWS[e.kind](e, robot, kin) for e in self.equalities])

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Any, jax.Array]:
        """Each constraint differentiated by its own few ends; the default would go through all rows for each end."""
        total: dict[Any, jax.Array] = {}
        for row, equality in enumerate(self.equalities):
            for key, slope in _SLOPES[equality.kind](equality, robot, kin):
                rows = jnp.pad(slope, ((row, len(self.equalities) - 1 - row), (0, 0)))
                total[key] = total[key] + rows if key in total else rows
        return total


def _joint(equality: Equality, robot: Robot, kin: Kinematics) -> jax.Array:
    values = [kin.q[i] - robot.qpos0[i] for i in _places(equality.members, robot)]
    return _coupled(equality, robot, values)[0]


def _joint_slopes(equality: Equality, robot: Robot, kin: Kinematics) -> _Slopes:
    values = [kin.q[i] - robot.qpos0[i] for i in _places(equality.members, robot)]
    slopes = _coupled(equality, robot, values)[1]
    return [("q", s * _rate(robot, joint, kin)) for s, joint in zip(slopes, equality.members, strict=True)]


def _tendon(equality: Equality, robot: Robot, kin: Kinematics) -> jax.Array:
    values = [_length(t, robot, kin) - robot.tendon_reference[t] for t in equality.members]
    return _coupled(equality, robot, values)[0]


def _tendon_slopes(equality: Equality, robot: Robot, kin: Kinematics) -> _Slopes:
    values = [_length(t, robot, kin) - robot.tendon_reference[t] for t in equality.members]
    slopes = _coupled(equality, robot, values)[1]
    return [
        (key, outer * inner)
        for outer, tendon in zip(slopes, equality.members, strict=True)
        for key, inner in _length_slopes(tendon, robot, kin)
    ]


_ROWS = {"joint": _joint, "tendon": _tendon}
_SLOPES = {"joint": _joint_slopes, "tendon": _tendon_slopes}


def _coupled(equality: Equality, robot: Robot, values: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
    """The first value less the polynomial, constant first, of the second: (1,), and its derivative by each value."""
    polynomial = robot.equality_data[equality.index, :5]
    one = jnp.ones((), polynomial.dtype)
    if len(values) == 1:
        return (values[0] - polynomial[0])[None], [one]
    wanted, slope = polynomial[4], 0 * one
    for power in (3, 2, 1, 0):
        wanted, slope = polynomial[power] + values[1] * wanted, wanted + values[1] * slope
    return (values[0] - wanted)[None], [one, -slope]


def _places(joints: tuple[int, ...], robot: Robot) -> list[int]:
    return [robot.topology.joints[joint].q_index for joint in joints]


def _rate(robot: Robot, joint: int, kin: Kinematics) -> jax.Array:
    """The row (1, nv) of a hinge's or slide's own degree of freedom."""
    return unit_matrix(1, kin.nv, robot.topology.joints[joint].v_index, dtype=kin.q.dtype)


def _length(tendon: int, robot: Robot, kin: Kinematics) -> jax.Array:
    path = robot.topology.tendons[tendon]
    parts = [kin.q[i] for i in _places(path.joints, robot)]
    parts += [_stretch(span, kin)[0] for span in path.spans]
    return _weights(tendon, robot) @ jnp.stack(parts)


def _length_slopes(tendon: int, robot: Robot, kin: Kinematics) -> _Slopes:
    path = robot.topology.tendons[tendon]
    weights = _weights(tendon, robot)
    slopes: _Slopes = [(("q"), w * _rate(robot, joint, kin)) for w, joint in zip(weights, path.joints, strict=False)]
    for w, span in zip(weights[len(path.joints) :], path.spans, strict=True):
        _, along = _stretch(span, kin)
        row = w * jnp.concatenate([along, jnp.zeros_like(along)])[None]
        slopes += [(Frame("site", span[1]), row), (Frame("site", span[0]), -row)]
    return slopes


def _weights(tendon: int, robot: Robot) -> jax.Array:
    path = robot.topology.tendons[tendon]
    return robot.tendon_coefficients[path.start : path.start + len(path.joints) + len(path.spans)]


def _stretch(span: tuple[int, int], kin: Kinematics) -> tuple[jax.Array, jax.Array]:
    """Distance () between two sites and its direction (3,), which is zero where they meet."""
    start, end = (kin.transform(Frame("site", site)).position for site in span)
    square = jnp.sum((end - start) ** 2)
    apart = square > 0
    distance = jnp.sqrt(jnp.where(apart, square, 1.0))
    return jnp.where(apart, distance, 0.0), jnp.where(apart, (end - start) / distance, 0.0)
