"""Differentiable, batched inverse kinematics on MuJoCo models, in JAX."""

from jaxik.batching.devices import enable_compilation_cache, use_all_cores
from jaxik.core.errors import JaxikError, JaxikWarning, LoadError, UnknownNameError
from jaxik.core.pytree import leaf, pytree, static
from jaxik.core.status import DerivativeStatus, Status
from jaxik.core.version import __version__ as __version__
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.motion import Motion
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.base import Limit
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.free_joint_velocity import FreeJointVelocityLimit
from jaxik.limits.position import PositionLimit
from jaxik.limits.velocity import VelocityLimit
from jaxik.pictures.camera import Camera
from jaxik.pictures.film import film
from jaxik.pictures.picture import Picture
from jaxik.pictures.render import render
from jaxik.problem.problem import Problem
from jaxik.qp_solver import ActiveSet, Certificate, QPOptions, QPSolution
from jaxik.qp_solver.qp import qp
from jaxik.results.npz import load, save
from jaxik.results.plot import plot_trace
from jaxik.results.solution import Solution
from jaxik.results.trace import Trace
from jaxik.robot.loading.catalog import bundled_names as bundled_robots
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot
from jaxik.solvers.differential.linearization import Linearization
from jaxik.solvers.differential.step import StepResult, linearize, step
from jaxik.solvers.nonlinear.solve import SolveOptions, solve
from jaxik.solvers.search.search import SearchOptions, search
from jaxik.tasks.axis_align import AxisAlignTask
from jaxik.tasks.base import Task
from jaxik.tasks.com import ComTask
from jaxik.tasks.damping import DampingTask
from jaxik.tasks.equality_constraint import EqualityConstraintTask
from jaxik.tasks.frame import FrameTask
from jaxik.tasks.joint_coupling import JointCouplingTask
from jaxik.tasks.joint_velocity import JointVelocityTask
from jaxik.tasks.kinetic_energy import KineticEnergyTask
from jaxik.tasks.linear_holonomic import LinearHolonomicTask
from jaxik.tasks.look_at import LookAtTask
from jaxik.tasks.low_acceleration import LowAccelerationTask
from jaxik.tasks.manipulability import ManipulabilityTask
from jaxik.tasks.objective import Objective
from jaxik.tasks.omniwheel import OmniwheelTask
from jaxik.tasks.posture import PostureTask
from jaxik.tasks.relative_frame import RelativeFrameTask
from jaxik.tasks.rolling import RollingTask
from jaxik.tasks.velocity import VelocityTask
from jaxik.viewer.view import view

__all__ = [
    "AccelerationLimit",
    "ActiveSet",
    "AxisAlignTask",
    "Camera",
    "Certificate",
    "ComTask",
    "ConfigurationLimit",
    "DampingTask",
    "DerivativeStatus",
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
    "Picture",
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
    "enable_compilation_cache",
    "film",
    "leaf",
    "linearize",
    "load",
    "load_robot",
    "plot_trace",
    "pytree",
    "qp",
    "render",
    "save",
    "search",
    "solve",
    "static",
    "step",
    "use_all_cores",
    "view",
]
