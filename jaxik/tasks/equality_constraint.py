"""Hold a model's equality constraints: closed loops, welds, coupled joints and tendons."""

import itertools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics import lie
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task
from jaxik.tasks.closure_rows import closure_rows, closure_slopes


@pytree
class EqualityConstraintTask(Task):
    """Bring equality constraints of the model to zero.

    The residual (m,) has the rows of each constraint in the order given, as MuJoCo's `efc_pos` has them:

    - connect, 3 [m]: from the anchor in the second body to that in the first, or between two sites, in world axes;
    - weld, 6: the same [m], then the rotation vector [rad] from the second body, or site, to where the first has it, in
      axes of the second, times the constraint's torque scale. MuJoCo has the quaternion's imaginary part there, which
      is the same direction, near zero half as long, and decreases again beyond 180 degrees;
    - joint, 1 [rad or m], and tendon, 1 [m]: the first, counted from its reference, less the polynomial of the second;
    - closure, of `robot.with_closure`: from the second frame to the first, in axes of the second, what it holds of the
      shift [m] and the rotation [rad]. Three rotations are the rotation vector. Two are the tilt of the third axis,
      sin(angle) large; one is the cosine between two axes that are perpendicular where it is zero.

    What they hold is in the robot's `equality_data`, so that there is no `from_configuration`. The rows of a constraint
    that `robot.with_active` has switched off are zero.

    Args:
      equalities: constraints from `robot.equalities(...)`; static.
      cost: a number, or (*batch, n) for n constraints, one a constraint for all its rows; (B, 1) for a batch.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,): met when the norm of all rows is below.
      priority: 0 is highest; static.

    Raises:
      JaxikError: if a constraint is given twice, or none, or costs do not fit.
    """

    equalities: tuple[Equality, ...] = static()
    cost: Any = leaf(1, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=1e-4)
    priority: int = static(default=0)
    unit = "rad or m"

    def __post_init__(self) -> None:
        equalities = (self.equalities,) if isinstance(self.equalities, Equality) else self.equalities
        if not isinstance(equalities, tuple | list) or not all(isinstance(e, Equality) for e in equalities):
            raise JaxikError(f"equalities come from robot.equalities(names or indices), not {equalities!r}")
        if not equalities:
            raise JaxikError("equalities is empty: robot.equalities() has all active constraints of the model")
        twice = [e.label for e, count in Counter(equalities).items() if count > 1]
        if twice:
            raise JaxikError(f"equality constraints given twice: {', '.join(twice)}")
        arguments.set_common(self)
        set_fields(self, equalities=tuple(equalities), cost=arguments.cost("cost", self.cost, len(equalities)))

    def check(self, robot: Robot) -> None:
        super().check(robot)
        robot.equalities(self.equalities)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(dict.fromkeys(frame for equality in self.equalities for frame in equality.frames))

    def reads_dofs(self, robot: Robot) -> tuple[int, ...]:
        """Those of coupled joints and of tendons along joints; the other constraints look at frames."""
        joints, tendons = robot.topology.joints, robot.topology.tendons
        read = [j for e in self.equalities if e.kind == "joint" for j in e.members]
        read += [j for e in self.equalities if e.kind == "tendon" for t in e.members for j in tendons[t].joints]
        return tuple(joints[j].v_index for j in dict.fromkeys(read))

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        rows = [_ROWS[equality.kind](equality, robot, kin) for equality in self.equalities]
        return jnp.concatenate([_held(e, robot, r) for e, r in zip(self.equalities, rows, strict=True)])

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Any, jax.Array]:
        """Each constraint differentiated by its own few ends; the default would go through all rows for each end."""
        each = [_SLOPES[equality.kind](equality, robot, kin) for equality in self.equalities]
        counts = [equality.num_rows for equality in self.equalities]
        total: dict[Any, jax.Array] = {}
        starts = itertools.accumulate(counts, initial=0)
        for equality, start, count, slopes in zip(self.equalities, starts, counts, each, strict=False):
            for key, slope in slopes:
                rows = jnp.pad(_held(equality, robot, slope), ((start, sum(counts) - start - count), (0, 0)))
                total[key] = total[key] + rows if key in total else rows
        return total

    def weights(self) -> jax.Array:
        cost = jnp.broadcast_to(self.cost, (len(self.equalities),))
        return jnp.concatenate([jnp.broadcast_to(c, e.num_rows) for c, e in zip(cost, self.equalities, strict=True)])


def _held(equality: Equality, robot: Robot, rows: jax.Array) -> jax.Array:
    """The rows of a constraint, zeros where it is switched off."""
    active = robot.equality_active
    return rows if active is None else jnp.where(active[equality.index] != 0, rows, 0)


# What a constraint's rows look at, and the derivative (rows, 6) or (rows, nv) by it; something may come twice.
_Slopes = list[tuple[Any, jax.Array]]


def _ends(equality: Equality, robot: Robot) -> tuple[tuple[Frame, jax.Array], tuple[Frame, jax.Array]]:
    """The two ends of a connect or weld: a frame each, and where on it the held point is."""
    data = robot.equality_data[equality.index]
    one, other = equality.frames
    if one.kind == "site":
        return (one, jnp.zeros_like(data[:3])), (other, jnp.zeros_like(data[:3]))
    # A weld has the second body's anchor first, and then where the first body has it.
    first, second = (data[:3], data[3:6]) if equality.kind == "connect" else (data[3:6], data[:3])
    return (one, first), (other, second)


def _point(pose: lie.Transform, point: jax.Array) -> jax.Array:
    return pose.position + pose.rotation @ point


def _connect(equality: Equality, robot: Robot, kin: Kinematics) -> jax.Array:
    one, other = (_point(kin.transform(frame), point) for frame, point in _ends(equality, robot))
    return one - other


def _connect_slopes(equality: Equality, robot: Robot, kin: Kinematics) -> _Slopes:
    slopes = []
    for sign, (frame, point) in zip((1, -1), _ends(equality, robot), strict=True):
        arm = kin.transform(frame).rotation @ point
        slopes.append((frame, sign * jnp.concatenate([jnp.eye(3, dtype=arm.dtype), -lie.skew(arm)], axis=1)))
    return slopes


def _turn(equality: Equality, robot: Robot, kin: Kinematics) -> jax.Array:
    """The rotation (3, 3) from the second end of a weld to where the first has it, in the second's axes."""
    one, other = (kin.transform(frame).rotation for frame in equality.frames)
    turn = other.T @ one
    if equality.frames[0].kind == "body":
        turn = turn @ lie.quaternion_to_matrix(robot.equality_data[equality.index, 6:10])
    return turn


def _weld(equality: Equality, robot: Robot, kin: Kinematics) -> jax.Array:
    scale = robot.equality_data[equality.index, 10]
    turn = lie.log_rotation(_turn(equality, robot, kin))
    return jnp.concatenate([_connect(equality, robot, kin), scale * turn])


def _weld_slopes(equality: Equality, robot: Robot, kin: Kinematics) -> _Slopes:
    scale = robot.equality_data[equality.index, 10]
    _, left = lie.log_rotation_derivative(_turn(equality, robot, kin))
    along = scale * (left @ kin.transform(equality.frames[1]).rotation.T)
    slopes = []
    for sign, (frame, gap) in zip((1, -1), _connect_slopes(equality, robot, kin), strict=True):
        slopes.append((frame, jnp.concatenate([gap, jnp.concatenate([0 * along, sign * along], axis=1)])))
    return slopes


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


_ROWS = {"connect": _connect, "weld": _weld, "joint": _joint, "tendon": _tendon, "closure": closure_rows}
_SLOPES = {
    "connect": _connect_slopes,
    "weld": _weld_slopes,
    "joint": _joint_slopes,
    "tendon": _tendon_slopes,
    "closure": closure_slopes,
}


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
    return jnp.eye(1, kin.nv, robot.topology.joints[joint].v_index, dtype=kin.q.dtype)


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
