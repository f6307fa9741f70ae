"""What is no task, or no task of this robot, is refused on the host: what was given, what is allowed."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest

import jaxik
from jaxik import (
    AxisAlignTask,
    ComTask,
    Frame,
    FrameTask,
    JaxikError,
    JointCouplingTask,
    LinearHolonomicTask,
    LookAtTask,
    ManipulabilityTask,
    OmniwheelTask,
    PostureTask,
    Problem,
    RelativeFrameTask,
    RollingTask,
    UnknownNameError,
)
from jaxik.robot.robot import Robot

TIP, OTHER = Frame("site", 0, "tip"), Frame("site", 1, "elsewhere")
HERE = jaxlie.SE3.identity()
ZERO = np.zeros(3)


@cache
def mixed() -> Robot:
    return jaxik.load_robot(own_tasks.MIXED)


# What is known without the robot.
REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("a name as the root", lambda: RelativeFrameTask(TIP, "world", HERE), r"root is a Frame, from robot\.frame"),
    ("a frame in itself", lambda: RelativeFrameTask(TIP, TIP, HERE), "frame and root are both 'tip'"),
    ("a relative position as a pose", lambda: RelativeFrameTask(TIP, OTHER, ZERO), r"target is a jaxlie\.SE3, a po"),
    ("a rotation as a pose", lambda: FrameTask(TIP, jaxlie.SO3.identity()), "SO3 where position_cost=None; not"),
    ("no rows", lambda: RelativeFrameTask(TIP, OTHER, HERE, None, None), "the task has no rows"),
    ("a short mask", lambda: RelativeFrameTask(TIP, OTHER, HERE, mask=[1]), r"mask has shape \(\*batch, 6\)"),
    ("a flat centre of mass", lambda: ComTask([0, 0]), r"target has shape \(\*batch, 3\), not \(2,\)"),
    ("costs of two rows", lambda: ComTask(ZERO, cost=[1, 2]), r"cost is a number, \(\*batch, 3\)"),
    ("a negative cost", lambda: ComTask(ZERO, cost=-1), "cost must not be negative"),
    ("a list as the subtree", lambda: ComTask(ZERO, subtree=["rail"]), "subtree is a body's name or index, or None"),
    ("a site as the subtree", lambda: ComTask(ZERO, subtree=TIP), "subtree is a body's name or index, or None"),
    ("a number as the posture", lambda: PostureTask(0.0), r"q is a posture \(\*batch, nq\)"),
    ("a name as the posture", lambda: PostureTask("home"), "q is a number or an array of numbers, not 'home'"),
    ("a joint to be free", lambda: PostureTask(ZERO, free_joints="free"), "free_joints is True or False"),
    ("a negative tolerance", lambda: PostureTask(ZERO, tolerance=-1), "tolerance must not be negative"),
    ("a level between", lambda: PostureTask(ZERO, priority=0.5), "priority is an int, 0 the highest, not 0.5"),
    ("a level above", lambda: PostureTask(ZERO, priority=-1), "priority is an int, 0 the highest, not -1"),
    ("a negative gain", lambda: PostureTask(ZERO, gain=-1), "gain must not be negative"),
    ("a pose to look at", lambda: LookAtTask(TIP, HERE), "target is a number or an array of numbers"),
    ("no axis", lambda: LookAtTask(TIP, ZERO, ZERO), "axis is a direction, of any length but zero"),
    ("no direction", lambda: AxisAlignTask(TIP, ZERO), "target is a direction, of any length but zero"),
    ("a flat axis", lambda: AxisAlignTask(TIP, [0, 0, 1], [0, 1]), r"axis has shape \(\*batch, 3\), not \(2,\)"),
    ("one joint's name", lambda: JointCouplingTask("slide", [1]), "joints is a tuple of joint names, not 'slide'"),
    ("a joint twice", lambda: JointCouplingTask(("a", "a"), [1, 1]), "at least one joint, and none twice"),
    ("too few ratios", lambda: JointCouplingTask(("a", "b"), [1]), r"ratios has shape \(\*batch, 2\), not \(1,\)"),
    ("a row as a matrix", lambda: LinearHolonomicTask([1, 2], [0], ZERO), r"matrix has shape \(\*batch, p, nv\)"),
    ("too long a side", lambda: LinearHolonomicTask([[1, 2]], [0, 0], ZERO), r"target has shape \(\*batch, 1\)"),
    ("a number as q0", lambda: LinearHolonomicTask([[1, 2]], [0], 0.0), "q0 is a configuration"),
    ("no radius", lambda: RollingTask(TIP, 0.0), "radius is above zero and finite"),
    ("a wheel on itself", lambda: RollingTask(TIP, 0.1, TIP), "hub and floor are both 'tip'"),
    ("a third cost", lambda: OmniwheelTask(TIP, 0.1, cost=[1, 1, 1]), r"cost is a number, \(\*batch, 2\)"),
    ("no axle", lambda: OmniwheelTask(TIP, 0.1, axle=ZERO), "axle is a direction"),
    ("a negative manipulability", lambda: ManipulabilityTask(TIP, -1.0), "target must not be negative"),
    ("a soft mask", lambda: ManipulabilityTask(TIP, 1.0, [1, 0.5, 0, 0, 0, 0]), "mask takes rows or leaves them"),
    ("an empty mask", lambda: ManipulabilityTask(TIP, 1.0, np.zeros(6)), "mask leaves no rows"),
    ("unknown axes", lambda: ManipulabilityTask(TIP, 1.0, axes="base"), "axes is one of frame, world, not 'base'"),
]
# What the robot tells: found by `Problem`, with the task's name.
FOREIGN: list[tuple[str, Any, str]] = [
    (
        "another robot's root",
        RelativeFrameTask(TIP, Frame("site", 1, "hand"), HERE),
        "frame 'hand' is of another robot",
    ),
    ("an unknown body", ComTask(ZERO, subtree="rial"), "unknown body 'rial'; did you mean 'rail'"),
    ("a body index", ComTask(ZERO, subtree=99), "body index 99 is out of range: mixed has"),
    ("a short posture", PostureTask(ZERO), r"shape \(\*batch, nq\) with nq = 20, not \(3,\)"),
    ("costs by coordinate", PostureTask(np.zeros(20), np.ones(20)), r"\(\*batch, nv\) with nv = 17.*not \(20,\)"),
    ("an unknown joint", JointCouplingTask(("slid",), [1]), "unknown joint 'slid'; did you mean 'slide'"),
    ("a ball", JointCouplingTask(("ball",), [1]), "joint 'ball' is a ball joint: couplings are of hinges and slides"),
    ("too few columns", LinearHolonomicTask(np.ones((1, 3)), [0], np.zeros(20)), "with nv = 17, not"),
    ("a short q0", LinearHolonomicTask(np.ones((1, 17)), [0], ZERO), r"q0 has shape \(\*batch, nq\) with nq = 20"),
    (
        "rows that nothing moves",
        ManipulabilityTask(OTHER, 1.0, [1, 1, 0, 0, 0, 0]),
        "'elsewhere' has 1 degrees of freedom, fewer than the 2 rows, .*choose at most 1 rows with mask",
    ),
]


@pytest.mark.parametrize(("build", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_no_task_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(JaxikError, match=message):
        build()


@pytest.mark.parametrize(("task", "message"), [f[1:] for f in FOREIGN], ids=[f[0] for f in FOREIGN])
def test_what_is_no_task_of_the_robot_is_refused_with_the_tasks_name(task: Any, message: str) -> None:
    with pytest.raises(JaxikError, match=f"^task 'mine': .*{message}"):
        Problem(mixed(), {"mine": task})
    fine = {"fine": FrameTask(TIP, HERE)}
    with pytest.raises(JaxikError, match=f"^constraint 'mine': .*{message}"):
        Problem(mixed(), fine, constraints={"mine": task})


def test_unknown_names_stay_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="task 'mine': unknown joint"):
        Problem(mixed(), {"mine": JointCouplingTask(("slid",), [1])})


def test_what_a_configuration_cannot_give_is_refused() -> None:
    robot = mixed()
    for build, message in (
        (lambda: FrameTask.from_configuration(robot, robot.q_home, "tpi"), "unknown frame 'tpi'; did you mean 'tip'"),
        (lambda: PostureTask.from_configuration(robot, ZERO), "nq = 20"),
        (lambda: ComTask.from_configuration(robot, robot.q_home, "rial"), "unknown body"),
        (lambda: RollingTask.from_configuration(robot, robot.q_home.at[2].set(-9), "tip"), "radius is above zero"),
        (lambda: JointCouplingTask.from_configuration(robot, robot.q_home, ("ball",), [1]), "is a ball joint"),
    ):
        with pytest.raises(JaxikError, match=message):
            build()


def test_a_body_frame_is_a_subtree() -> None:
    robot = mixed()
    by_name, by_frame = (ComTask(ZERO, subtree=s) for s in ("rail", robot.frame("rail")))
    q = jnp.asarray(robot.q_home)
    kin = robot.kinematics(q, subtrees=by_frame.subtrees)
    np.testing.assert_allclose(by_name.residual(robot, kin), robot.center_of_mass(q, "rail"), atol=1e-12)
