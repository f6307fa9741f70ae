"""The task contract, and the Jacobian that every task has without writing one."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.pytree import cast
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.manifold import integrate
from jaxik.numerics.constants import unit_matrix
from jaxik.robot.robot import Robot
from jaxik.tasks.dependencies import PerturbedKinematics, dependencies
from jaxik.tasks.objective import Objective
from jaxik.tasks.weights import weighted_rows

# Attributes that belong to one residual: a subclass with another residual does not inherit them.
OF_A_RESIDUAL = frozenset(
    "reads_dofs jacobian step_jacobian constraint_rows partials weighted_hessian second_derivative "
    "exact_second_derivative objective".split()
)


class TargetPart(NamedTuple):
    """An array of a task's target, as files have it: name, value (*batch, *core), unit, and the rank of the core."""

    name: str
    value: Any
    unit: str
    rank: int


class Task:
    """A goal for a configuration, written for one element: `residual` is zero where it is fulfilled.

    A task is a frozen pytree (`jaxik.pytree`): frames, priority and which rows exist are static fields; targets,
    costs, gains and masks are leaves, declared with the number of axes that one element has (`jaxik.leaf(rank=...)`),
    and may be batched and differentiated. A new task needs `frames` and `residual`, and may override everything else.
    A residual that reads `kin.q` comes with `reads_dofs`. A class that defines its own residual does not inherit what
    was derived from another one (`reads_dofs`, `jacobian`, `partials` and the like): it has the defaults, unless it
    defines them itself.

    Attributes:
      frames, subtrees: frames, and root bodies of centres of mass by index or name, that `residual` reads; static.
      priority: static; 0 is highest.
      cost: weight of the residual's rows; the objective is 1/2 |cost * residual|^2.
      tolerance: norm of the error below which the task is met; None where it has none.
      unit: unit of the error: one text such as "m" for all its leaves, or a pytree of its structure; "" if unknown.
      gain, lm_damping: of differential IK; `solve` ignores them.
      target_field: the field that holds the target, how files name it, and its unit.
    """

    # Whether tasks of exactly this type may be evaluated by one vmapped program: they use a frame for nothing but its
    # pose and Jacobian in `kin`, and they have `partials`.
    frames_batchable = False
    priority: int = 0
    cost: Any = 1.0
    tolerance: Any = None
    unit: Any = ""
    target_field: tuple[str, str, str] = ("target", "target", "")
    gain: Any = 1.0
    lm_damping: Any = 0.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "residual" in vars(cls):
            for name in OF_A_RESIDUAL.difference(vars(cls)):
                setattr(cls, name, getattr(Task, name))

    def target_parts(self) -> tuple[TargetPart, ...]:
        """The arrays of the target, as `save` writes them; none where there is no target."""
        field, name, unit = self.target_field
        rank = {f.name: f.metadata.get("rank", 0) for f in dataclasses.fields(self)}.get(field)  # type: ignore[arg-type]
        value = getattr(self, field, None)
        return () if rank is None or value is None else (TargetPart(name, value, unit, rank),)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return ()

    @property
    def subtrees(self) -> tuple[int | str, ...]:
        return ()

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        """The frames that it reads on a robot: `frames`, where these do not depend on the robot."""
        return self.frames

    def reads_dofs(self, robot: Robot) -> tuple[int, ...] | None:
        """The degrees of freedom that `residual` reads through `kin.q`; static; None where that is unknown: all.

        A degree of freedom that no task reads and that moves no task's frame or subtree has no coordinate: `solve`
        leaves it as it is, at no cost. Used for residuals that read `kin.q` only.
        """
        return None

    def check(self, robot: Robot) -> None:
        """Check on the host that the task fits `robot`; `Problem` calls it. Extend it with `super().check`.

        Raises:
          JaxikError: for a frame of another robot, an unknown body, or one without mass where that is needed.
        """
        for frame in self.frames:
            robot.frame(frame)
        for root in self.subtrees:
            robot.check_mass(robot.topology.body_index(root) if isinstance(root, str) else root)

    def residual(self, robot: Robot, kin: Kinematics) -> Any:
        """The residual, a pytree of arrays, at an evaluated configuration."""
        raise TypeError(f"{type(self).__name__} has to define residual(robot, kin)")

    def jacobian(self, robot: Robot, kin: Kinematics) -> Any:
        """The residual's derivative along `integrate(q, dq)`: the residual's pytree with one more axis nv."""
        return default_jacobian(self, robot, kin)

    def step_jacobian(self, robot: Robot, kin: Kinematics) -> Any:
        """The Jacobian for a differential-IK step: the residual's derivative, plus nonholonomic rows.

        Such rows are not the derivative of a residual: where a wheel that must not slip has rolled to depends on its
        path. `solve` leaves them out.
        """
        return self.jacobian(robot, kin)

    def constraint_rows(self, robot: Robot, kin: Kinematics) -> tuple[Any, Any]:
        """Residual and Jacobian of the task as a constraint of a step: by default its residual.

        If a residual leaves the surface of its motions as it shrinks, only its part along that surface can be
        constrained: the difference of two unit vectors is a chord through the sphere, which no motion follows.
        """
        return self.residual(robot, kin), self.step_jacobian(robot, kin)

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Any, Any]:
        """Partial derivatives of the residual by each quantity that it reads, with one more axis on each leaf.

        Keys are frames (6: twist in world axes at their origin), roots of subtrees (3: shift of the centre), "q" (nv).
        """
        return default_partials(self, robot, kin)

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: Any
    ) -> tuple[dict[Any, jax.Array], jax.Array | None]:
        """First and second derivative of multipliers . residual, for constant multipliers, by what the residual reads.

        Args:
          multipliers: an array for each leaf of the residual, in its structure.

        Returns:
          The first derivative by each quantity, in the order of `partials`, and the second by all of them, stacked and
          symmetric; None if that is zero.
        """
        return default_weighted_hessian(self, robot, kin, multipliers)

    def second_derivative(self, robot: Robot, kin: Kinematics, multipliers: Any) -> jax.Array:
        """Second derivative (nv, nv) of multipliers . residual along `integrate`, for constant multipliers.

        Args:
          multipliers: an array for each leaf of the residual, in its structure; the weighted residual gives what the
            Hessian of 1/2 |cost * residual|^2 has beyond J'J.
        """
        return default_second_derivative(self, robot, kin, multipliers)

    def exact_second_derivative(self, robot: Robot, kin: Kinematics, multipliers: Any) -> jax.Array:
        """What derivatives of solutions take for it, where steps do with less."""
        return self.second_derivative(robot, kin, multipliers)

    def objective(self, robot: Robot, kin: Kinematics) -> Objective:
        """The task's term in the objective of one differential-IK step, as in mink and pink.

        With W the costs on a diagonal, e = -gain W residual and J = W jacobian: H = J' J + lm_damping |e|^2 I and
        c = -J' e. `kin` is `robot.kinematics(q, task.frames, task.subtrees)`; its dtype decides.
        """
        robot, task = robot.astype(kin.q.dtype), cast(self, kin.q.dtype)
        with jax.default_matmul_precision("highest"):
            residual, jacobian = weighted_rows(task, task.residual(robot, kin), task.step_jacobian(robot, kin))
            wanted = -task.gain * residual
            damping = task.lm_damping * (wanted @ wanted)
            return Objective(
                jacobian.T @ jacobian + damping * unit_matrix(kin.nv, dtype=kin.q.dtype),
                -(jacobian.T @ wanted),
            )

    def report(self, robot: Robot, kin: Kinematics) -> Any:
        """The error that tolerances apply to and solutions report: the residual, unless a plainer measure exists."""
        return self.residual(robot, kin)

    def weights(self) -> Any:
        """Cost of each row: one array for all leaves of the residual, or a pytree of its structure."""
        return self.cost

    def tolerances(self) -> Any:
        """Tolerance of each leaf's norm: one number for all leaves of the error, a pytree of its structure, or None."""
        return self.tolerance


def default_partials(task: Task, robot: Robot, kin: Kinematics) -> dict[Any, Any]:
    """Differentiate the residual by the displacement of each quantity that it reads."""
    return {
        key: jax.jacfwd(lambda x, key=key: task.residual(robot, PerturbedKinematics(kin, {key: x})))(  # type: ignore[arg-type]
            jnp.zeros(_size(kin, key), kin.q.dtype)
        )
        for key in dependencies(task.residual, robot, kin)
    }


def default_jacobian(task: Task, robot: Robot, kin: Kinematics) -> Any:
    """Multiply the residual's partial derivatives by the shared Jacobians of what it reads."""
    residual = jax.eval_shape(lambda: task.residual(robot, kin))
    nothing = jax.tree.map(lambda r: jnp.zeros((*r.shape, kin.nv), r.dtype), residual)
    return add_joint_rows(kin, task.partials(robot, kin), nothing)


def add_joint_rows(kin: Kinematics, partials: dict[Any, Any], total: Any) -> Any:
    """Add to `total` (..., nv) the partial derivatives times the Jacobians of what they are by."""
    for key, partial in partials.items():
        motion = _motion(kin, key)
        total = jax.tree.map(lambda t, s, motion=motion: t + s @ motion, total, partial)
    return total


class SecondOrder(NamedTuple):
    """What the second derivative of a task is made of, or, of several tasks, with a leading axis.

    Attributes:
      motions: Jacobians (k, nv) of what the residual reads.
      forces: of each of these its weight (k,) in the first derivative; None for the tangent, which is its own motion.
      stiffness (sum of k, sum of k): the second derivative by all of them, or None where it is zero.
      rest (nv, nv): a second derivative along `integrate`, or None.
    """

    motions: tuple[jax.Array, ...] = ()
    forces: tuple[jax.Array | None, ...] = ()
    stiffness: jax.Array | None = None
    rest: jax.Array | None = None


def second_order(task: Task, robot: Robot, kin: Kinematics, multipliers: Any, exact: bool = False) -> SecondOrder:
    """What the second derivative of a task is made of: one of its own is all of it.

    By `exact` as derivatives of solutions take it.
    """
    cls = type(task)
    if exact and cls.exact_second_derivative is not Task.exact_second_derivative:
        return SecondOrder(rest=task.exact_second_derivative(robot, kin, multipliers))
    if cls.second_derivative is not Task.second_derivative:
        return SecondOrder(rest=task.second_derivative(robot, kin, multipliers))
    return _by_what_it_reads(task, robot, kin, multipliers)


def _by_what_it_reads(task: Task, robot: Robot, kin: Kinematics, multipliers: Any) -> SecondOrder:
    """Differentiate the residual by the few displacements of what it reads, never through the kinematics."""
    cls = type(task)
    if (
        cls.jacobian is not Task.jacobian
        and cls.weighted_hessian is Task.weighted_hessian
        and cls.partials is Task.partials
    ):
        return SecondOrder(rest=_through_kinematics(task, robot, kin, multipliers))
    forces, stiffness = task.weighted_hessian(robot, kin, multipliers)
    if list(forces) == ["q"]:
        return SecondOrder(rest=stiffness)
    motions = tuple(_motion(kin, key) for key in forces)
    return SecondOrder(motions, tuple(None if key == "q" else force for key, force in forces.items()), stiffness)


def second_derivative_of(kin: Kinematics, found: SecondOrder) -> jax.Array:
    """The second derivative (nv, nv) of a task, or the sum of several tasks', whose parts have a leading axis.

    With f and K the first and second derivative by what a residual reads, and M its Jacobian by the degrees of freedom,
    it is M' K M plus f times the second derivative of the kinematics, a cross product for each pair of joints.
    """
    total = jnp.zeros((kin.nv, kin.nv), kin.q.dtype)
    if found.rest is not None:
        total = total + found.rest.reshape(-1, kin.nv, kin.nv).sum(axis=0)
    if found.stiffness is not None:
        motion = jnp.concatenate(found.motions, axis=-2)
        by_motion = motion.reshape(-1, kin.nv).T @ (found.stiffness @ motion).reshape(-1, kin.nv)
        total = total + (by_motion + by_motion.T) / 2
    for motion, force in zip(found.motions, found.forces, strict=True):
        if force is not None:
            total = total + kin.bending(motion, force)
    return total


def default_second_derivative(task: Task, robot: Robot, kin: Kinematics, multipliers: Any) -> jax.Array:
    """The second derivative (nv, nv) of one task by what it reads."""
    return second_derivative_of(kin, _by_what_it_reads(task, robot, kin, multipliers))


def _through_kinematics(task: Task, robot: Robot, kin: Kinematics, multipliers: Any) -> jax.Array:
    """The second derivative (nv, nv) of a task that defines its Jacobian along `integrate` alone."""

    def gradient(dq: jax.Array) -> jax.Array:
        perturbed = forward(kin.segments, integrate(kin.plan.topology, kin.q, dq))
        return _weighted_gradient(task.jacobian(robot, perturbed), multipliers, kin.nv)

    hessian = jax.jacfwd(gradient)(jnp.zeros(kin.nv, kin.q.dtype))
    return (hessian + hessian.T) / 2


def default_weighted_hessian(
    task: Task, robot: Robot, kin: Kinematics, multipliers: Any
) -> tuple[dict[Any, jax.Array], jax.Array | None]:
    """Differentiate the partial derivatives once more."""
    sizes = {key: _size(kin, key) for key in dependencies(task.residual, robot, kin)}
    ends = list(itertools.accumulate(sizes.values(), initial=0))
    slices = dict(zip(sizes, itertools.pairwise(ends), strict=True))

    def force(x: jax.Array) -> jax.Array:
        perturbed: Any = PerturbedKinematics(kin, {key: x[start:end] for key, (start, end) in slices.items()})
        partials = task.partials(robot, perturbed)
        return jnp.concatenate([_weighted_gradient(partials[key], multipliers, size) for key, size in sizes.items()])

    zero = jnp.zeros(ends[-1], kin.q.dtype)
    gradient, stiffness = force(zero), jax.jacfwd(force)(zero)
    # The partial derivatives are by displacements from the displaced pose: the second derivative is the symmetric part.
    return {key: gradient[start:end] for key, (start, end) in slices.items()}, (stiffness + stiffness.T) / 2


def _weighted_gradient(partial: Any, multipliers: Any, size: int) -> jax.Array:
    """The derivative (size,) of multipliers . residual with respect to one displacement."""
    parts = zip(jax.tree.leaves(partial), jax.tree.leaves(multipliers), strict=True)
    return sum(
        (jnp.ravel(h) @ s.reshape(-1, size) for s, h in parts),
        jnp.zeros(size, jax.tree.leaves(partial)[0].dtype),
    )


def _size(kin: Kinematics, key: Any) -> int:
    return 6 if isinstance(key, Frame) else kin.nv if key == "q" else 3


def _motion(kin: Kinematics, key: Any) -> jax.Array:
    """The Jacobian of a quantity that a residual reads: (6, nv) of a frame, (3, nv) of a centre, or the identity."""
    if isinstance(key, Frame):
        return jnp.concatenate(kin.jacobian_world_aligned(key))
    if key == "q":
        return unit_matrix(kin.nv, dtype=kin.q.dtype)
    return kin.center_of_mass_jacobian(key)
