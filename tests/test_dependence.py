"""Which degrees of freedom a problem moves: those that its tasks say they read, and those that move what they look at.

The others stay bitwise as they are.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import own_tasks
import pytest

import jaxik
from jaxik import (
    EqualityConstraintTask,
    FrameTask,
    JaxikError,
    JaxikWarning,
    JointCouplingTask,
    LinearHolonomicTask,
    PostureTask,
    Problem,
    Task,
)
from jaxik.kinematics.forward import Kinematics
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import formulation

# Degrees of freedom: free 0 to 5, ball 6 to 8, slide 9, hinge 10, still 11, endless 12, loose 13 to 15, lone 16.
FREE, OTHERS, EVERY = tuple(range(6)), tuple(range(6, 17)), tuple(range(17))
CONSTRAINTS = """
  <tendon><fixed name="sum"><joint joint="slide" coef="1"/><joint joint="lone" coef="2"/></fixed></tendon>
  <equality>
    <joint name="geared" joint1="endless" joint2="hinge" polycoef="0.1 -2 0.3 0 0"/>
    <joint name="set" joint1="still" polycoef="0.05"/>
    <tendon name="length" tendon1="sum" polycoef="0.05"/>
    <connect name="pinned" body1="other" anchor="0 0 0"/>
  </equality>
</mujoco>"""


@cache
def mixed() -> Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxikWarning)
        return jaxik.load_robot(own_tasks.MIXED.replace("</mujoco>", CONSTRAINTS))


def coupling(*joints: str) -> JointCouplingTask:
    return JointCouplingTask(joints, np.ones(len(joints)))


def held(*names: str) -> EqualityConstraintTask:
    return EqualityConstraintTask(mixed().equalities(names))


@jaxik.pytree
class Told(Task):
    """A coordinate of `lone`, and the degrees of freedom that it is said to read."""

    read: Any = jaxik.static(default=None)

    def reads_dofs(self, robot: Robot) -> Any:
        return self.read

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return kin.q[robot.q_indices("lone")[0]]


@jaxik.pytree
class Sum(JointCouplingTask):
    """A coupling with a residual of its own, of which its parent's `reads_dofs` knows nothing."""

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return super().residual(robot, kin) + jnp.sum(kin.q)


@jaxik.pytree
class ToldSum(Sum):
    """The same; what it reads is told."""

    def reads_dofs(self, robot: Robot) -> tuple[int, ...]:
        return EVERY[3:]


@jaxik.pytree
class Loose(JointCouplingTask):
    """A coupling with its parent's residual."""

    tolerance: Any = jaxik.leaf(default=0.1)


def frame(name: str) -> FrameTask:
    return FrameTask(mixed().frame(name), np.zeros(3), orientation_cost=None)


MOVED: dict[str, tuple[Callable[[], dict[str, Task]], tuple[int, ...]]] = {
    "a coupling": (lambda: {"it": coupling("hinge", "lone")}, (10, 16)),
    "two of them": (lambda: {"it": coupling("hinge"), "other": coupling("endless", "slide")}, (9, 10, 12)),
    "a coupling and a frame": (lambda: {"it": coupling("hinge"), "tip": frame("elsewhere")}, (10, 16)),
    "a posture": (lambda: {"it": PostureTask(mixed().q_home)}, OTHERS),
    "a posture of free joints too": (lambda: {"it": PostureTask(mixed().q_home, free_joints=True)}, EVERY),
    "a posture below a frame": (
        lambda: {"it": PostureTask(mixed().q_home, priority=1), "tip": frame("tip")},
        EVERY,
    ),
    "holonomic rows": (lambda: {"it": LinearHolonomicTask(np.zeros((1, 17)), [0], mixed().q_home)}, EVERY),
    "coupled joints": (lambda: {"it": held("geared")}, (10, 12)),
    "a set joint": (lambda: {"it": held("set")}, (11,)),
    "a tendon": (lambda: {"it": held("length")}, (9, 16)),
    "a pinned body": (lambda: {"it": held("pinned")}, (16,)),
    "several constraints": (lambda: {"it": held("pinned", "set", "length")}, (9, 11, 16)),
    "one's own, which does not say": (lambda: {"it": own_tasks.Joint(19, 0.0)}, EVERY),
    "one's own, which cannot say": (lambda: {"it": Told(None)}, EVERY),
    "one's own, which says": (lambda: {"it": Told((16,))}, (16,)),
    "another's residual": (lambda: {"it": Loose(("hinge",), [1])}, (10,)),
    "a residual of its own": (lambda: {"it": Sum(("hinge",), [1])}, EVERY),
    "a residual of its own, told": (lambda: {"it": ToldSum(("hinge",), [1])}, EVERY),  # joints move whole
}


@pytest.mark.parametrize("case", MOVED)
def test_what_moves_is_what_the_tasks_read_and_what_moves_their_frames(case: str) -> None:
    build, own = MOVED[case]
    problem = Problem(mixed(), build(), constraints={})
    assert jax.eval_shape(lambda: formulation(problem)).moving.own == own


@pytest.mark.parametrize("read", [(17,), (-1,), ("lone",)], ids=str)
def test_what_is_no_degree_of_freedom_is_refused(read: Any) -> None:
    with pytest.raises(
        JaxikError, match=r"Told\.reads_dofs\(robot\) has .*degrees of freedom are 0 to 16, robot\.v_indices"
    ):
        jax.eval_shape(lambda: formulation(Problem(mixed(), {"it": Told(read)}, constraints={})))


def test_what_no_task_reads_stays_bitwise_as_it_was() -> None:
    robot = mixed()
    q0 = np.array(robot.sample(jax.random.key(0), (16,)))
    # Quaternions are normalised where a solve starts: these have length one in every bit.
    for name, quaternion in (("free", [0.5, -0.5, 0.5, 0.5]), ("ball", [1, 0, 0, 0]), ("loose", [0.5, 0.5, 0.5, -0.5])):
        q0[:, robot.q_indices(name)[-4:]] = quaternion
    tasks = {"gear": held("geared", "length"), "it": JointCouplingTask(("hinge", "slide"), [1, 2], target=0.3)}
    solution = jaxik.solve(Problem(robot, tasks, constraints={}), q0)
    moved = {"slide", "hinge", "endless", "lone"}
    still = [i for name in robot.joint_names if name not in moved for i in robot.q_indices(name)]
    np.testing.assert_array_equal(solution.q[:, still], q0[:, still])
    assert np.mean(solution.converged) > 0.5
    for name in moved:
        assert np.abs(solution.q - q0)[:, robot.q_indices(name)].max() > 0.05, name
