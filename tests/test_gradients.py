"""Derivatives of solutions against central differences of solving again, in float64, by everything a problem holds.

Forward mode is compared with differences of the whole solution along a random direction of all arguments at once, and
reverse mode with forward mode. Most cases have joints that their bounds hold.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
from derivatives import PATIENT, Case, beyond, check_solve, linkage, near
from tables import mostly_exhaustive
from test_constraints import FOUR_BAR
from test_step_rules import ARM

import jaxik
from jaxik import (
    AxisAlignTask,
    ComTask,
    ConfigurationLimit,
    FrameTask,
    LookAtTask,
    ManipulabilityTask,
    PositionLimit,
    PostureTask,
    Problem,
    RelativeFrameTask,
)

COUNT = 4


def arm(source: str, tip: str, orientation: float | None = 1.0, at_bounds: int = 0, **levels: Any) -> Case:
    robot = jaxik.load_robot(source)
    q = robot.sample(jax.random.key(1), (COUNT,))
    frame = robot.frame(tip)
    tasks = {
        "tip": FrameTask(
            frame,
            robot.frame_pose(near(robot, q, 0.3), frame),
            position_cost=2.0,
            orientation_cost=orientation,
        ),
        "rest": PostureTask(beyond(robot, q), cost=1.0, **levels),
    }
    return Case({"problem": Problem(robot, tasks)}, near(robot, q), at_bounds)


def short_arm() -> Case:
    """Of four joints, the last of which the position leaves free: a posture beyond its limit."""
    case = arm(ARM, "tip", None, at_bounds=1, priority=1)
    problem = case.arguments["problem"]
    rest = dataclasses.replace(problem.tasks["rest"], q=case.start.at[:, 3].set(problem.robot.limit_upper[3] + 1))
    problem = dataclasses.replace(problem, tasks={**problem.tasks, "rest": rest})
    return case._replace(arguments={"problem": problem})


def pointed() -> Case:
    """Directions and dexterity, far from what they ask for."""
    robot = jaxik.load_robot("panda")
    q = robot.sample(jax.random.key(1), (COUNT,))
    frame = robot.frame("tcp")
    tasks = {
        "look": LookAtTask(frame, jnp.asarray([1.0, 0.4, 0.2]), cost=0.8),
        "align": AxisAlignTask(frame, jnp.asarray([0.3, -0.2, -1.0]), [1.0, 0, 0], cost=0.5),
        "dexterity": ManipulabilityTask(frame, 0.5, cost=2.0),
        "rest": PostureTask(beyond(robot, q), cost=0.3),
    }
    return Case({"problem": Problem(robot, tasks)}, near(robot, q), COUNT // 2)


def humanoid() -> Case:
    """A free base over two feet, hands that cannot have all they want, masses, and a posture beyond some limits."""
    robot = jaxik.load_robot("humanoid")
    q = near(robot, jnp.broadcast_to(robot.q_home, (2, robot.nq)), 0.1)
    reach = {"left_foot": 0.0, "right_foot": 0.0, "left_hand": 0.2, "right_hand": 0.2}
    tasks: dict[str, Any] = {}
    for seed, (name, by) in enumerate(reach.items()):
        target = robot.frame_pose(near(robot, q, by, seed), robot.frame(name))
        tasks[name] = FrameTask(robot.frame(name), target, orientation_cost=0.5)
    center = robot.center_of_mass(q) + jnp.asarray([0.02, 0.03, -0.02])
    scalar = [robot.q_indices(name)[0] for name in ("left_knee", "right_elbow")]
    rest = q.at[:, jnp.asarray(scalar)].add(3.0)
    tasks |= {"center": ComTask(center), "rest": PostureTask(rest, cost=0.2)}
    return Case({"problem": Problem(robot, tasks)}, near(robot, q, 0.05), 2)


def balls(seed: int = 1, **levels: Any) -> Case:
    """A free base, a ball held by its limit, a slide and hinges of which some are."""
    robot = jaxik.load_robot(own_tasks.MIXED)
    q = robot.sample(jax.random.key(seed), (COUNT,))
    place = robot.q_indices("ball")
    turned = jaxlie.SO3.exp(jnp.asarray([[1.2, 0.3, 0.2], [0.1, 1.5, 0.3], [0.2, -0.1, 1.1], [-0.9, 0.9, 0.4]]))
    posture = q.at[:, place[0] : place[-1] + 1].set(turned.wxyz)
    tip, other = robot.frame("tip"), robot.frame("elsewhere")
    goal = near(robot, q)
    pose = robot.frame_pose(goal, tip)
    if levels:
        pose = robot.frame_pose(goal, other).inverse() @ pose
    tasks = {
        "center": ComTask(robot.center_of_mass(goal), cost=0.7),
        "posture": PostureTask(posture, cost=0.5, free_joints=True, **levels),
        "relative": RelativeFrameTask(tip, other, pose, orientation_cost=0.4),
    }
    return Case({"problem": Problem(robot, tasks)}, near(robot, q, 0.1), 1 if levels else COUNT)


def unreachable(held: bool = False) -> Case:
    """A position that is not within reach, below it a posture; and if there is one, at a height that is held above.

    What the stretched arm does not need for that, the posture has.
    """
    robot = jaxik.load_robot("panda")
    q = robot.sample(jax.random.key(1), (COUNT,))
    tip = robot.frame("tcp")
    place = robot.frame_pose(near(robot, q, 0.3), tip).translation()
    away = place.at[:, :2].multiply(2 / jnp.linalg.norm(place[:, :2], axis=-1, keepdims=True))

    def problem(arguments: Any) -> Problem:
        cost = arguments["cost"] * jnp.asarray([1.0, 1.0, 0.0 if held else 1.0])
        tasks: dict[str, Any] = {
            "away": FrameTask(tip, arguments["away"], cost, None, axes="world", priority=1),
            "rest": PostureTask(arguments["rest"], cost=1.0, priority=2),
        }
        height = FrameTask(tip, arguments["place"], [0.0, 0, 2], None, axes="world")
        return Problem(robot, tasks, constraints={"height": height} if held else None)

    arguments = {"place": place, "away": away, "cost": 0.7, "rest": beyond(robot, q)}
    return Case(arguments, near(robot, q), COUNT, problem)


def stretched() -> Case:
    """Balls and levels below a pose that is, but for one element, four times as far away; not by the robot.

    What a stretched arm leaves free is what its axes have in common, and any other geometry leaves less.
    """
    one, other = balls(priority=1), balls(9, priority=1)
    robot, tasks = one.arguments["problem"].robot, one.arguments["problem"].tasks
    # Of each two, which take less than a hundred steps; most others take more.
    given, start = jax.tree.map(
        lambda a, b: jnp.concatenate([a[1:3], b[:2]]),
        *(
            ((t["center"].target, t["posture"].q, t["relative"].target), case.start)
            for case in (one, other)
            for t in (case.arguments["problem"].tasks,)
        ),
    )
    center, posture, near_by = given
    far = jaxlie.SE3.from_rotation_and_translation(near_by.rotation(), 4 * near_by.translation())

    def problem(arguments: Any) -> Problem:
        return Problem(
            robot,
            {
                "center": dataclasses.replace(tasks["center"], target=arguments["center"]),
                "posture": dataclasses.replace(tasks["posture"], q=arguments["posture"], cost=arguments["cost"]),
                "relative": dataclasses.replace(tasks["relative"], target=arguments["relative"]),
            },
        )

    arguments = {"center": center, "posture": posture, "cost": 0.5, "relative": far}
    found = jaxik.solve(problem(arguments), start, options=PATIENT)
    assert sum(np.linalg.norm(found.residuals["relative"]["position"], axis=-1) > 0.1) == COUNT - 1
    return Case(arguments, found.q, 1, problem)


def loop(**levels: Any) -> Case:
    """A plane linkage; by its targets alone, as its loop does not close where an axis leaves the plane."""
    robot = jaxik.load_robot(FOUR_BAR)
    q = linkage(COUNT)
    tip = robot.frame("tip")
    target = robot.frame_pose(q, tip).translation() + jnp.asarray([0.02, 0, 0.01])
    rest = q.at[:, robot.q_indices("wrist")[0]].set(2.3)
    cost = [0.0, 0.0, 1.0] if levels else 1.0

    def problem(arguments: Any) -> Problem:
        aim = FrameTask(tip, arguments["target"], position_cost=cost, orientation_cost=None, axes="world")
        return Problem(robot, {"tip": aim, "rest": PostureTask(arguments["rest"], cost=0.2, **levels)})

    return Case({"target": target, "rest": rest}, q, COUNT // 2 if not levels else 1, problem)


def wall() -> Case:
    """A half space that holds some elements and leaves others alone."""
    case = arm("ur5e", "tcp")
    robot, tasks = case.arguments["problem"].robot, case.arguments["problem"].tasks
    tip = robot.frame("tcp")
    height = robot.frame_pose(case.start, tip).translation()[:, 2]
    limits = (
        ConfigurationLimit(margin=0.05),
        PositionLimit(tip, [0.0, 0, 1], height + jnp.asarray([-0.1, -0.05, 2, 2])),
    )
    return case._replace(arguments={"problem": Problem(robot, tasks, limits=limits)}, at_bounds=0)


COUPLED = """
<mujoco><compiler angle="radian" autolimits="true"/><worldbody>
  <body><joint name="lead" axis="0 0 1" range="-1 2"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
    <body pos="1 0 0"><joint name="follow" axis="0 1 0" range="-0.8 0.5"/>
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
      <body pos="1 0 0"><joint name="last" axis="0 0 1" range="-3 3"/>
        <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
        <body pos="0.5 0 0"><joint name="own" axis="0 1 0" range="-3 3"/>
          <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
          <site name="tip" pos="0.3 0.1 0"/></body></body></body></body>
</worldbody><equality>
  <joint joint1="follow" joint2="lead" polycoef="0.1 0.4 0.2 -0.05 0"/>
  <joint joint1="last" joint2="follow" polycoef="0.05 1.3 -0.3 0 0"/></equality></mujoco>"""


def coupled() -> Case:
    """Joints that follow others along polynomials; a follower's limit holds its leader."""
    robot = jaxik.load_robot(COUPLED)
    q = jnp.asarray([[0.3, 0, 0, 0.4], [-0.4, 0, 0, 1.0], [0.4, 0, 0, -1.0], [0.0, 0, 0, 0.2]])
    tip = robot.frame("tip")
    target = robot.frame_pose(jaxik.solve(Problem(robot, {"p": PostureTask(q)}), q).q, tip)
    rest = q.at[:, 0].set(jnp.asarray([0.1, -0.2, 2.9, 2.5]))
    tasks = {"tip": FrameTask(tip, target, position_cost=0.1, orientation_cost=0.1), "rest": PostureTask(rest)}
    return Case({"problem": Problem(robot, tasks)}, q, 2)


def masked() -> Case:
    """Degrees of freedom that a mask holds where the start has them, which then moves the rest."""
    case = arm("panda", "tcp")
    problem = case.arguments["problem"]
    mask = jnp.ones((COUNT, 7), bool).at[:2, 3].set(False).at[1, 5].set(False)
    problem = dataclasses.replace(problem, dof_mask=mask)
    return case._replace(arguments={"problem": problem, "q0": case.start})


CASES = {
    "a short arm, a posture below a position": short_arm,
    "a posture beside a target": lambda: arm("panda", "tcp", at_bounds=COUNT // 2),
    "a posture below a target": lambda: arm("panda", "tcp", priority=1),
    "a posture below a position": lambda: arm("panda", "tcp", None, at_bounds=COUNT, priority=1),
    "directions and dexterity": pointed,
    "a humanoid": humanoid,
    "balls and a free base": balls,
    "balls and levels": lambda: balls(priority=1),
    "balls and a level out of reach": stretched,
    "a level out of reach": unreachable,
    "a level out of reach below a height that is held": lambda: unreachable(held=True),
    "a closed loop": loop,
    "a closed loop and levels": lambda: loop(priority=1),
    "a half space": wall,
    "couplings": coupled,
    "a mask and the start": masked,
}


# Bounds and a lower level: each of the others is this with more joints or rows; constraints are in
# test_closed_gradients.py.
ALWAYS = ("a short arm, a posture below a position",)


@pytest.mark.parametrize("name", mostly_exhaustive(CASES, ALWAYS))
def test_derivatives_of_a_solution_are_those_of_solving_again(name: str) -> None:
    check_solve(CASES[name]())
