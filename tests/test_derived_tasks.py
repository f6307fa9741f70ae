"""Classes derived from a task, with a residual of their own: what is derived from that is theirs too."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import mostly_exhaustive
from task_table import TASKS, WITHOUT_DEFAULT, robot_of
from test_task_table import QUICK

import jaxik
from jaxik import JaxikError, Problem, Task
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import integrate
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import evaluate, formulation

STEP = 1e-6
KINDS = tuple(kind for kind in TASKS if kind not in WITHOUT_DEFAULT)
# One of each class; the others differ in what is given to it.
CLASSES = (
    "frame", "relative", "com", "posture", "look at", "axis align", "coupling", "holonomic", "rolling", "omniwheel"
)  # fmt: skip
# What is derived is derived alike of all of them: of poses and of coordinates, with costs of a number and of rows.
FEW = ("frame", "com", "posture", "look at", "holonomic")
CASES = [("hinge", FEW), ("hinge", CLASSES), *((name, KINDS) for name in ("hinge", "ball", "free"))]


def bent(task: Task) -> Task:
    """The task, of a class derived from its own that writes another residual and nothing else."""
    own: Any = type(task)

    class Bent(own):
        def residual(self, robot: Robot, kin: Kinematics) -> Any:
            return jax.tree.map(lambda r: jnp.sin(r) + 0.1 * kin.q[0] ** 2, super().residual(robot, kin))

    return jaxik.pytree(Bent)(**vars(task))


@pytest.mark.parametrize(
    "case", mostly_exhaustive(CASES, [("hinge", FEW)]), ids=lambda case: f"{case[0]}, {len(case[1])}"
)
def test_derivatives_are_those_of_the_residual_that_a_derived_class_writes(case: tuple[str, tuple[str, ...]]) -> None:
    name, kinds = case
    robot = robot_of(name)
    q, there = np.asarray(robot.sample(jax.random.key(5), (2,)))
    built = jax.jit(lambda q: {kind: TASKS[kind](robot, name, q) for kind in kinds}, compiler_options=QUICK)
    tasks = {kind: bent(task) for kind, task in built(there).items()}

    def seen(step: jax.Array) -> Any:
        kin = evaluate(formulation(Problem(robot, tasks)), integrate(robot.topology, q, step))
        found = {}
        for kind, task in tasks.items():
            residual, jacobian = task.residual(robot, kin), task.jacobian(robot, kin)
            ones = jax.tree.map(jnp.ones_like, residual)
            summed = sum(jnp.sum(j, axis=tuple(range(j.ndim - 1))) for j in jax.tree.leaves(jacobian))
            first = {"residual": residual, "slope": summed}
            held, step_jacobian = task.constraint_rows(robot, kin)
            found[kind] = first, {"residual": jacobian, "slope": task.second_derivative(robot, kin, ones)}
            found[kind] += ({"residual": held, "jacobian": step_jacobian}, task.objective(robot, kin).H)
        return found

    steps = np.concatenate([np.zeros((1, robot.nv)), STEP * np.eye(robot.nv), -STEP * np.eye(robot.nv)])
    for kind, (values, derivatives, held, hessian) in jax.jit(jax.vmap(seen), compiler_options=QUICK)(steps).items():
        for (path, x), d in zip(jax.tree.leaves_with_path(values), jax.tree.leaves(derivatives), strict=True):
            differences = np.moveaxis((x[1 : 1 + robot.nv] - x[1 + robot.nv :]) / (2 * STEP), 0, -1)
            # Second differences along `integrate` are not symmetric; the second derivative is their symmetric part.
            if path[0].key == "slope":
                differences = (differences + differences.T) / 2
            np.testing.assert_allclose(d[0], differences, atol=2e-5, err_msg=f"{kind} {path}")
        own = jax.tree.leaves((derivatives["residual"], values["residual"]))
        for ours, wanted in zip(jax.tree.leaves(held), own, strict=True):
            np.testing.assert_array_equal(ours, wanted, err_msg=kind)
        jacobian = np.concatenate([np.reshape(j[0], (-1, robot.nv)) for j in jax.tree.leaves(derivatives["residual"])])
        assert np.linalg.matrix_rank(hessian[0]) <= np.linalg.matrix_rank(jacobian), kind


def test_a_derived_class_whose_residual_looks_at_jacobians_is_told_to_write_its_own() -> None:
    robot = robot_of("hinge")

    def rows(q: jax.Array) -> Any:
        task = bent(TASKS["manipulability"](robot, "hinge", q))
        return task.jacobian(robot, evaluate(formulation(Problem(robot, {"it": task})), q))

    with pytest.raises(JaxikError, match=r"has to define its own jacobian\(robot, kin\)"):
        jax.eval_shape(rows, robot.q_home)
