"""Differentiable, batched inverse kinematics on MuJoCo models, in JAX."""

from jaxik.errors import JaxikError, JaxikWarning, LoadError, UnknownNameError
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.problem import Problem
from jaxik.pytree import leaf, pytree, static
from jaxik.robot.build import load_robot
from jaxik.robot.model import Robot
from jaxik.robot.names import bundled_names as bundled_robots
from jaxik.robot.topology import Frame
from jaxik.solve import Solution, SolveOptions, solve
from jaxik.status import Status
from jaxik.tasks.base import Task
from jaxik.tasks.frame import FrameTask

__version__ = "0.1.0"

__all__ = [
    "ConfigurationLimit",
    "Frame",
    "FrameTask",
    "JaxikError",
    "JaxikWarning",
    "LoadError",
    "Problem",
    "Robot",
    "Solution",
    "SolveOptions",
    "Status",
    "Task",
    "UnknownNameError",
    "bundled_robots",
    "leaf",
    "load_robot",
    "pytree",
    "solve",
    "static",
]
