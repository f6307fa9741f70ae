"""What is no limit, or none of this robot, is refused on the host, with what to do."""

import dataclasses
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jaxlie
import numpy as np
import pytest
import random_trees
from limit_rows import mixed, planar

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    FreeJointVelocityLimit,
    JaxikError,
    Limit,
    PositionLimit,
    Problem,
    UnknownNameError,
    VelocityLimit,
)
from jaxik.core.errors import JaxikWarning
from jaxik.kinematics.frames import Frame
from jaxik.robot.robot import Robot

NV = mixed().nv
TIP = Frame("site", 0, "tip")

POINT = jaxik.FrameTask(TIP, np.zeros(3), orientation_cost=None)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a gain of zero": (lambda: ConfigurationLimit(gain=0.0), r"gain is in \(0, 1\], not 0.0"),
    "a word as a gain": (lambda: ConfigurationLimit(gain="all"), "gain is a number or an array of numbers, not 'all'"),
    "a negative margin": (lambda: ConfigurationLimit(margin=-0.1), "margin is a finite distance .*: -0.1"),
    "a negative maximum": (lambda: VelocityLimit(-1.0), "max_velocity is zero or above, not"),
    "a maximum that is NaN": (lambda: VelocityLimit([1.0, np.nan]), "max_velocity is zero or above, not"),
    "a positive minimum": (lambda: VelocityLimit(1.0, min_velocity=0.5), "min_velocity is zero or below, not"),
    "a negative maximum of a joint": (
        lambda: VelocityLimit({"hinge": -1.0}),
        r"max_velocity\['hinge'\] is zero or above",
    ),
    "no joint": (lambda: VelocityLimit({}), "max_velocity is a dict from joint name to limit, not {}"),
    "joints by number": (lambda: VelocityLimit({3: 1.0}), "max_velocity is a dict from joint name to limit, not {3"),
    "a word as a velocity": (lambda: VelocityLimit("fast"), "max_velocity is a number or an array of numbers"),
    "no acceleration": (lambda: AccelerationLimit(0.0), "max_acceleration is above zero, not"),
    "neither half of a free joint": (
        FreeJointVelocityLimit,
        "max_linear_velocity and max_angular_velocity are both None: give one",
    ),
    "an array as a joint": (
        lambda: FreeJointVelocityLimit([0.1, 0.1, 0.1]),  # type: ignore[arg-type]
        "joint is the name of a free joint, or None for the only one",
    ),
    "a negative speed": (
        lambda: FreeJointVelocityLimit(max_linear_velocity=-1.0),
        "max_linear_velocity must not be negative",
    ),
    "two numbers": (
        lambda: FreeJointVelocityLimit(max_angular_velocity=[1.0, 2.0]),
        r"max_angular_velocity is a number, .* not \(2,\)",
    ),
    "a name as a frame": (lambda: PositionLimit("tip", [0, 0, 1], 0.0), r"frame is a Frame, from robot\.frame"),  # type: ignore[arg-type]
    "a normal without direction": (lambda: PositionLimit(TIP, [0, 0, 0], 0.0), "normal is a direction, of any length"),
    "a normal in the plane": (lambda: PositionLimit(TIP, [0, 1], 0.0), r"normal has shape \(\*batch, 3\)"),
    "an offset that is NaN": (lambda: PositionLimit(TIP, [0, 0, 1], np.nan), "offset is a distance"),
    "a task limit of no task": (lambda: jaxik.TaskLimit(TIP, lower=0.0), "task is a task such as FrameTask"),  # type: ignore[arg-type]
    "a task limit without bounds": (lambda: jaxik.TaskLimit(POINT), "at least one bound: lower, upper or largest"),
    "bounds that cross": (
        lambda: jaxik.TaskLimit(POINT, lower={"position": [0, 0, 1]}, upper={"position": [1, 1, 0.5]}),
        "lower is at most upper",
    ),
    "a share above one": (lambda: PositionLimit(TIP, [0, 0, 1], 0.0, gain=1.5), r"gain is in \(0, 1\], not 1.5"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_is_no_limit_is_refused(mistake: str) -> None:
    make, said = REFUSED[mistake]
    with pytest.raises(JaxikError, match=said):
        make()


class Undecorated(Limit):
    pass


@cache
def two_bases() -> Robot:
    return jaxik.load_robot(random_trees.random_tree(0, n_bodies=2, free_bodies=2))


def pushed() -> Robot:
    return dataclasses.replace(mixed(), velocity_limit=np.ones(NV))


UNFIT: dict[str, tuple[Callable[[], Robot], Limit, type[JaxikError], str]] = {
    "an unknown joint": (
        mixed,
        VelocityLimit({"hinges": 1.0}),
        UnknownNameError,
        "limit 'VelocityLimit': unknown joint 'hinges'; did you mean 'hinge'",
    ),
    "an unknown joint backwards": (mixed, VelocityLimit(1.0, {"bal": -1.0}), UnknownNameError, "unknown joint 'bal'"),
    "an unknown joint of an acceleration": (mixed, AccelerationLimit({"slid": 1.0}), UnknownNameError, "mean 'slide'"),
    "three numbers for a hinge": (
        mixed,
        VelocityLimit({"hinge": [1.0, 2.0, 3.0]}),
        JaxikError,
        r"max_velocity\['hinge'\] is a number or \(\*batch, 1\) of a hinge joint; not \(3,\)",
    ),
    "two numbers for a ball": (
        mixed,
        AccelerationLimit({"ball": [1.0, 2.0]}),
        JaxikError,
        r"max_acceleration\['ball'\] is a number or \(\*batch, 3\), \(\*batch, 1\) of a ball joint; not \(2,\)",
    ),
    "velocities of another robot": (
        mixed,
        VelocityLimit(np.ones(3)),
        JaxikError,
        rf"max_velocity is a number, \(\*batch, nv\) with nv = {NV}, .*; not \(3,\)",
    ),
    "a free joint by name": (
        mixed,
        VelocityLimit({"free": 1.0}),
        JaxikError,
        "does not limit the free joint 'free'. FreeJointVelocityLimit limits a free joint",
    ),
    "a free joint in an array": (
        mixed,
        VelocityLimit(np.ones(NV)),
        JaxikError,
        r"max_velocity has finite entries for a free joint, at \[0, 1, 2, 3, 4, 5\]: make them infinite. FreeJointVel",
    ),
    "a free joint of the robot's own": (pushed, VelocityLimit(), JaxikError, "robot.velocity_limit has finite entries"),
    "the acceleration of a free joint": (
        mixed,
        AccelerationLimit({"free": 1.0}),
        JaxikError,
        "max_acceleration does not limit the free joint 'free'. .* LowAccelerationTask",
    ),
    "a robot without velocity limits": (
        planar,
        VelocityLimit(),
        JaxikError,
        "limit 'VelocityLimit': planar has no velocity limits of its own, .* say VelocityLimit\\(max_velocity\\)",
    ),
    "no free joint": (
        planar,
        FreeJointVelocityLimit(max_linear_velocity=1.0),
        JaxikError,
        "planar has no free joint: its base is fixed; VelocityLimit",
    ),
    "several free joints": (
        two_bases,
        FreeJointVelocityLimit(max_linear_velocity=1.0),
        JaxikError,
        r"several free joints, say which: \['free0_joint', 'free1_joint'\]",
    ),
    "a hinge as a free joint": (
        mixed,
        FreeJointVelocityLimit("hinge", max_linear_velocity=1.0),
        JaxikError,
        "'hinge' is a hinge joint: VelocityLimit",
    ),
    "an unknown free joint": (
        mixed,
        FreeJointVelocityLimit("fre", max_angular_velocity=1.0),
        UnknownNameError,
        "did you mean 'free'",
    ),
    "a frame of another robot": (
        mixed,
        PositionLimit(Frame("site", 7, "hand"), [0, 0, 1], 0.0),
        JaxikError,
        "limit 'PositionLimit': site index 7 is out of range",
    ),
    "bounds of other rows": (
        mixed,
        jaxik.TaskLimit(jaxik.FrameTask(TIP, np.zeros(3), orientation_cost=None), upper=0.1),
        JaxikError,
        "limit 'TaskLimit': upper has one bound for each of the 3 rows, not 1",
    ),
    "a bound of a part that is not there": (
        mixed,
        jaxik.TaskLimit(jaxik.FrameTask(TIP, jaxlie.SE3.identity()), largest={"turn": 0.1}),
        JaxikError,
        "largest is a dict, without 'turn', by parts of the residual: 'orientation', 'position'",
    ),
    "one bound of two parts": (
        mixed,
        jaxik.TaskLimit(jaxik.FrameTask(TIP, jaxlie.SE3.identity()), largest=0.1),
        JaxikError,
        "largest is a dict, by parts of the residual: 'orientation', 'position'",
    ),
    "a class that is no pytree": (
        mixed,
        Undecorated(),
        JaxikError,
        "decorate the class Undecorated with",
    ),
}


@pytest.mark.parametrize("mistake", UNFIT)
def test_what_does_not_fit_the_robot_is_refused(mistake: str) -> None:
    robot, limit, error, said = UNFIT[mistake]
    with pytest.raises(JaxikError, match=said) as raised:
        Problem(robot(), {"rest": jaxik.PostureTask(robot().q_home)}, limits=(limit,))
    assert raised.type is error


def test_a_robot_of_which_some_joints_have_a_velocity_limit_is_fine() -> None:
    robot = mixed()
    some = np.where(np.arange(NV) == robot.v_indices("hinge")[0], 2.0, np.inf)
    robot = dataclasses.replace(robot, velocity_limit=some)
    Problem(robot, {"rest": jaxik.PostureTask(robot.q_home)}, limits=(VelocityLimit(),))


def test_a_margin_that_leaves_joints_no_room_is_told() -> None:
    robot = mixed()
    task = {"rest": jaxik.PostureTask(robot.q_home)}
    with pytest.warns(JaxikWarning, match=r"margin=50\): .*hinge.* have no room left and are held at mid-range"):
        Problem(robot, task, limits=(ConfigurationLimit(margin=50.0),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Problem(robot, task, limits=(ConfigurationLimit(margin=1e-3),))


def test_nothing_is_checked_where_there_are_no_numbers_yet() -> None:
    robot = mixed()

    def build(x: jax.Array) -> Problem:
        limits = (
            VelocityLimit({"hinge": x}, {"hinge": -x}),
            AccelerationLimit(x),
            FreeJointVelocityLimit(max_linear_velocity=x, max_angular_velocity=x),
            PositionLimit(robot.frame("tip"), x[None] * np.ones(3), x, gain=x),
            ConfigurationLimit(gain=x, margin=x),
        )
        return Problem(robot, {"rest": jaxik.PostureTask(robot.q_home)}, limits=limits)

    jax.eval_shape(build, jax.ShapeDtypeStruct((), float))
