"""The task contract, and the Jacobian that every task has without writing one."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie

from jaxik.errors import JaxikError
from jaxik.kinematics import Kinematics
from jaxik.lie import Transform, skew
from jaxik.robot.model import Robot
from jaxik.robot.topology import Frame


class Task:
    """Something wanted of a configuration, written for one element: `residual` is zero where it is fulfilled.

    A task is a frozen pytree (`jaxik.pytree`): frames, priority and which rows exist are static fields; targets,
    costs, gains and masks are leaves, declared with the number of axes that one element has (`jaxik.leaf(rank=...)`),
    and may be batched and differentiated. A new task needs `frames` and `residual`; it may override everything else.

    Attributes:
      frames: the frames that `residual` looks at, static.
      subtrees: root bodies of the subtrees whose centres of mass it looks at, static.
      priority: static; 0 is highest.
      cost: weight of the residual's rows; the objective is 1/2 |cost * residual|^2.
      tolerance: norm of the error below which the task is met; None where it has none.
      gain, lm_damping: of differential IK; `solve` ignores them.
    """

    frames: tuple[Frame, ...] = ()
    subtrees: tuple[int, ...] = ()
    priority: int = 0
    cost: Any = 1.0
    tolerance: Any = None
    gain: Any = 1.0
    lm_damping: Any = 0.0

    def residual(self, robot: Robot, kin: Kinematics) -> Any:
        """The residual, a pytree of arrays, at an evaluated configuration."""
        raise TypeError(f"{type(self).__name__} has to define residual(robot, kin)")

    def jacobian(self, robot: Robot, kin: Kinematics) -> Any:
        """The residual's derivative along `integrate(q, dq)`: the residual's pytree with one more axis nv."""
        return default_jacobian(self, robot, kin)

    def error(self, robot: Robot, kin: Kinematics) -> Any:
        """What tolerances judge and solutions report: the residual, unless a plainer measure exists."""
        return self.residual(robot, kin)

    def weights(self) -> Any:
        """Cost of each row: one array for all leaves of the residual, or a pytree of its structure."""
        return self.cost

    def tolerances(self) -> Any:
        """Tolerance of each leaf's norm: one number for all leaves of the error, a pytree of its structure, or None."""
        return self.tolerance


class _Displaced:
    """A configuration moved by small displacements of what a residual looks at; notes what that is."""

    def __init__(self, kin: Kinematics, displacement: dict[Any, jax.Array]) -> None:
        self._kin = kin
        self._displacement = displacement
        self.used: list[Any] = []

    def _moved_by(self, key: Any) -> jax.Array | None:
        if key not in self.used:
            self.used.append(key)
        return self._displacement.get(key)

    @property
    def q(self) -> jax.Array:
        from jaxik.manifold import integrate

        dq = self._moved_by("q")
        return self._kin.q if dq is None else integrate(self._kin.plan.topology, self._kin.q, dq)

    def transform(self, frame: Frame) -> Transform:
        pose = self._kin.transform(frame)
        twist = self._moved_by(frame)
        if twist is None:
            return pose
        # To first order in the twist, which is all that its derivative at zero needs.
        rotation = pose.rotation + pose.rotation @ skew(twist[3:])
        return Transform(rotation, pose.position + pose.rotation @ twist[:3])

    def pose(self, frame: Frame) -> jaxlie.SE3:
        return self.transform(frame).to_se3()

    def center_of_mass(self, root: int) -> jax.Array:
        shift = self._moved_by(root)
        center = self._kin.center_of_mass(root)
        return center if shift is None else center + shift

    def __getattr__(self, name: str) -> Any:
        raise JaxikError(
            f"a residual that looks at kin.{name} has to define its own jacobian(robot, kin): the default one "
            "differentiates with respect to kin.q, kin.pose, kin.transform and kin.center_of_mass"
        )


def default_jacobian(task: Task, robot: Robot, kin: Kinematics) -> Any:
    """Differentiate the residual with respect to the twists of its frames, and multiply by their shared Jacobians."""

    def displaced(displacement: dict[Any, jax.Array]) -> Any:
        return task.residual(robot, _Displaced(kin, displacement))  # type: ignore[arg-type]

    probe = _Displaced(kin, {})
    residual = jax.eval_shape(lambda: task.residual(robot, probe))  # type: ignore[arg-type]
    total = jax.tree.map(lambda r: jnp.zeros((*r.shape, kin.nv), r.dtype), residual)
    for key in probe.used:
        motion = _motion(kin, key)
        zero = jnp.zeros(motion.shape[0], kin.q.dtype)
        slope = jax.jacfwd(lambda x, key=key: displaced({key: x}))(zero)
        total = jax.tree.map(lambda t, s, motion=motion: t + s @ motion, total, slope)
    return total


def _motion(kin: Kinematics, key: Any) -> jax.Array:
    """How what a residual looks at moves with the degrees of freedom: (6, nv) of a frame, (3, nv), or the identity."""
    if isinstance(key, Frame):
        return kin.jacobian(key)
    if key == "q":
        return jnp.eye(kin.nv, dtype=kin.q.dtype)
    return kin.center_of_mass_jacobian(key)
