"""Find what a residual depends on, by tracing it once and recording what it reads."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie

from jaxik.core.errors import JaxikError
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.manifold import integrate
from jaxik.kinematics.schedule import Plan
from jaxik.numerics.lie import Transform, skew
from jaxik.robot.robot import Robot


class PerturbedKinematics:
    """Kinematics whose frames, centres of mass and configuration are displaced a little; records which are read.

    Displacements are twists of frames (6,) in world axes at the frame's origin, shifts of centres of mass (3,), and
    tangents (nv,); right to first order, which is all that a derivative at zero needs.
    """

    def __init__(self, kin: Kinematics, displacement: dict[Any, jax.Array]) -> None:
        """Displacements by frame, root of a subtree or "q"; the others are zero."""
        self._kin = kin
        self._displacement = displacement
        self.used: list[Any] = []

    def _moved_by(self, key: Any) -> jax.Array | None:
        if key not in self.used:
            self.used.append(key)
        return self._displacement.get(key)

    @property
    def plan(self) -> Plan:
        return self._kin.plan

    @property
    def nv(self) -> int:
        return self._kin.nv

    @property
    def q(self) -> jax.Array:
        dq = self._moved_by("q")
        return self._kin.q if dq is None else integrate(self.plan.topology, self._kin.q, dq)

    def transform(self, frame: Frame) -> Transform:
        pose = self._kin.transform(frame)
        twist = self._moved_by(frame)
        if twist is None:
            return pose
        return Transform(pose.rotation + skew(twist[3:]) @ pose.rotation, pose.position + twist[:3])

    def transforms(self, frames: Sequence[Frame]) -> Transform:
        return jax.tree.map(lambda *x: jnp.stack(x), *(self.transform(frame) for frame in frames))

    def pose(self, frame: Frame) -> jaxlie.SE3:
        return self.transform(frame).to_se3()

    def center_of_mass(self, root: int) -> jax.Array:
        shift = self._moved_by(root)
        center = self._kin.center_of_mass(root)
        return center if shift is None else center + shift

    def __getattr__(self, name: str) -> Any:
        raise JaxikError(
            f"a residual that looks at kin.{name} has to define its own jacobian(robot, kin): derivatives are taken "
            "with respect to kin.q, kin.pose, kin.transform and kin.center_of_mass"
        )


def dependencies(residual: Callable[..., Any], robot: Robot, kin: Kinematics) -> list[Any]:
    """List what a residual reads: frames, roots of subtrees, "q"."""
    probe = PerturbedKinematics(kin, {})
    jax.eval_shape(lambda: residual(robot, probe))
    return probe.used


class _RecordingKinematics:
    """Kinematics that record which of their attributes are read."""

    def __init__(self, kin: Kinematics) -> None:
        self._kin = kin
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self._kin, name)


class Reading(NamedTuple):
    """What a residual reads through `kin.q`, whether it moves its frames or not, and how many entries it has."""

    dofs: frozenset[int]
    size: int


def reading(task: Any, robot: Robot, kin: Kinematics) -> Reading:
    watched = _RecordingKinematics(kin)
    shapes = jax.eval_shape(lambda: task.residual(robot, watched))
    size = sum(x.size for x in jax.tree.leaves(shapes))
    return Reading(_dofs_read(task, robot) if "q" in watched.names else frozenset(), size)


def _dofs_read(task: Any, robot: Robot) -> frozenset[int]:
    told = task.reads_dofs(robot)
    every = set(range(robot.nv))
    if told is not None and not every.issuperset(told):
        raise JaxikError(
            f"{type(task).__name__}.reads_dofs(robot) has {told!r}: degrees of freedom are 0 to {robot.nv - 1}, "
            "robot.v_indices(joint) of a joint"
        )
    return frozenset(every if told is None else told)
