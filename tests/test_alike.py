"""Tasks that are evaluated side by side give what each gives alone; those that may not be are not."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
from tables import mostly_exhaustive

import jaxik
from jaxik import AxisAlignTask, ComTask, FrameTask, LookAtTask, PostureTask, Problem, RelativeFrameTask
from jaxik.kinematics.forward import Kinematics
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import curvature, errors, evaluate, formulation, rows
from jaxik.tasks.base import Task
from jaxik.tasks.grouping import groups


@cache
def mixed() -> Robot:
    return jaxik.load_robot(own_tasks.MIXED)


def tasks() -> dict[str, Task]:
    robot = mixed()
    q = robot.sample(jax.random.key(1))
    tip, other, base = (robot.frame(name) for name in ("tip", "elsewhere", "base"))
    pose = robot.frame_pose(q, tip)
    return {  # in sorted order, as a problem has them
        "align other": AxisAlignTask(other, jnp.array([0.0, 1.0, 0.0]), axis=(1, 0, 0)),
        "align tip": AxisAlignTask(tip, jnp.array([0.0, 0.0, 1.0])),
        "com": ComTask(jnp.zeros(3)),
        "look base": LookAtTask(base, jnp.array([0.0, 2.0, 0.0])),
        "look tip": LookAtTask(tip, jnp.array([1.0, 0.0, 0.0])),
        "point": FrameTask(tip, pose, orientation_cost=None),
        "pose base": FrameTask(base, pose, position_cost=2.0),
        "pose other": FrameTask(other, pose, orientation_cost=0.5),
        "pose tip": FrameTask(tip, jaxlie.SE3.identity()),
        "pose tip, three costs": FrameTask(tip, pose, position_cost=[1.0, 2.0, 3.0]),
        "relative": RelativeFrameTask(tip, other, pose),
        "relative back": RelativeFrameTask(other, tip, pose, orientation_cost=3.0),
        "rest": PostureTask(robot.q_home),
    }


# Each of these is a program of its own within that of the test below.
FEW = ("align other", "align tip", "com", "pose other", "pose tip", "rest")


def test_groups_are_of_one_type_and_one_set_of_rows() -> None:
    found = {group.names for group in groups(tasks())}
    assert {names for names in found if len(names) > 1} == {
        ("align other", "align tip"),
        ("look base", "look tip"),
        ("pose base", "pose other", "pose tip"),
        ("relative", "relative back"),
    }
    assert sorted(name for names in found for name in names) == sorted(tasks())


@pytest.mark.parametrize("names", mostly_exhaustive([FEW, "all"], [FEW]), ids=len)
def test_side_by_side_is_one_by_one(names: tuple[str, ...] | str) -> None:
    robot, given = mixed(), {name: task for name, task in tasks().items() if names == "all" or name in names}

    @jax.jit
    def evaluated(q: jax.Array, given: dict[str, Task]) -> Any:
        together = formulation(Problem(robot, given))
        kin, (level,) = evaluate(together, q), together.levels
        model = rows(together, kin, level)
        alone = {}
        for name, task in given.items():
            one = formulation(Problem(robot, {name: task}))
            there = evaluate(one, q)
            own = rows(one, there, (name,))
            alone[name] = own, curvature(one, there, (name,), own.residual), errors(one, there)[name]
        return model, curvature(together, kin, level, model.residual), errors(together, kin), alone

    model, bent, found, alone = evaluated(robot.sample(jax.random.key(2)), given)
    order = [name for group in groups(given) for name in group.names]
    for part in ("residual", "jacobian"):
        stacked = jnp.concatenate([getattr(alone[name][0], part) for name in order])
        np.testing.assert_allclose(getattr(model, part), stacked, rtol=0, atol=1e-13)
    np.testing.assert_allclose(bent, sum(alone[name][1] for name in order), rtol=0, atol=1e-12)
    for name in given:
        for ours, own in zip(*map(jax.tree.leaves, (found[name], alone[name][2])), strict=True):
            np.testing.assert_allclose(ours, own, rtol=0, atol=1e-14, err_msg=name)


class Offset(FrameTask):
    """Derived from a task that may be grouped, and doing more with its frame than that one."""

    def residual(self, robot: Robot, kin: Kinematics) -> Any:
        wanted = robot.frame_pose(kin.q, self.frame).translation()
        return jax.tree.map(lambda r: r + 0 * jnp.sum(wanted), super().residual(robot, kin))


def test_own_tasks_are_not_grouped() -> None:
    robot = mixed()
    tip, other = robot.frame("tip"), robot.frame("elsewhere")
    own = jaxik.pytree(Offset)
    pair: dict[str, Task] = {"a": own(tip, jaxlie.SE3.identity()), "b": own(other, jaxlie.SE3.identity())}
    assert len(groups(pair)) == 2

    def model(q: jax.Array) -> Any:
        prepared = formulation(Problem(robot, pair))
        return rows(prepared, evaluate(prepared, q), prepared.levels[0])

    assert jax.eval_shape(model, robot.q_home).residual.shape == (12,)
