"""Differentiable, batched inverse kinematics on MuJoCo models, in JAX."""

from jaxik.errors import JaxikError, JaxikWarning, LoadError, UnknownNameError
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.base import Limit
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.free_joint import FreeJointVelocityLimit
from jaxik.limits.position import PositionLimit
from jaxik.limits.velocity import VelocityLimit
from jaxik.linearization import Linearization
from jaxik.machine import keep_compiled, use_all_cores
from jaxik.motion import Motion
from jaxik.plot import plot_trace
from jaxik.problem import Problem
from jaxik.pytree import leaf, pytree, static
from jaxik.qp import qp
from jaxik.quadratic import ActiveSet, Certificate, QPOptions, QPSolution
from jaxik.robot.build import load_robot
from jaxik.robot.frames import Frame
from jaxik.robot.model import Robot
from jaxik.robot.names import bundled_names as bundled_robots
from jaxik.search import SearchOptions, search
from jaxik.solution import Solution
from jaxik.solve import SolveOptions, solve
from jaxik.status import Derivative, Status
from jaxik.step import StepResult, linearize, step
from jaxik.storage import load, save
from jaxik.tasks.axis_align import AxisAlignTask
from jaxik.tasks.base import Task
from jaxik.tasks.com import ComTask
from jaxik.tasks.coupling import JointCouplingTask
from jaxik.tasks.damping import DampingTask
from jaxik.tasks.equality import EqualityConstraintTask
from jaxik.tasks.frame import FrameTask
from jaxik.tasks.holonomic import LinearHolonomicTask
from jaxik.tasks.joint_velocity import JointVelocityTask
from jaxik.tasks.kinetic_energy import KineticEnergyTask
from jaxik.tasks.look_at import LookAtTask
from jaxik.tasks.low_acceleration import LowAccelerationTask
from jaxik.tasks.manipulability import ManipulabilityTask
from jaxik.tasks.objective import Objective
from jaxik.tasks.omniwheel import OmniwheelTask
from jaxik.tasks.posture import PostureTask
from jaxik.tasks.relative import RelativeFrameTask
from jaxik.tasks.rolling import RollingTask
from jaxik.tasks.velocity import VelocityTask
from jaxik.trace import Trace
from jaxik.version import __version__ as __version__

__all__ = [
    "AccelerationLimit",
    "ActiveSet",
    "AxisAlignTask",
    "Certificate",
    "ComTask",
    "ConfigurationLimit",
    "DampingTask",
    "Derivative",
    "EqualityConstraintTask",
    "Frame",
    "FrameTask",
    "FreeJointVelocityLimit",
    "JaxikError",
    "JaxikWarning",
    "JointCouplingTask",
    "JointVelocityTask",
    "KineticEnergyTask",
    "Limit",
    "LinearHolonomicTask",
    "Linearization",
    "LoadError",
    "LookAtTask",
    "LowAccelerationTask",
    "ManipulabilityTask",
    "Motion",
    "Objective",
    "OmniwheelTask",
    "PositionLimit",
    "PostureTask",
    "Problem",
    "QPOptions",
    "QPSolution",
    "RelativeFrameTask",
    "Robot",
    "RollingTask",
    "SearchOptions",
    "Solution",
    "SolveOptions",
    "Status",
    "StepResult",
    "Task",
    "Trace",
    "UnknownNameError",
    "VelocityLimit",
    "VelocityTask",
    "bundled_robots",
    "keep_compiled",
    "leaf",
    "linearize",
    "load",
    "load_robot",
    "plot_trace",
    "pytree",
    "qp",
    "save",
    "search",
    "solve",
    "static",
    "step",
    "use_all_cores",
]
