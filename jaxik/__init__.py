"""Differentiable, batched inverse kinematics on MuJoCo models, in JAX."""

import importlib
from typing import TYPE_CHECKING, Any

from jaxik.core.version import __version__ as __version__
from jaxik.core.xla_options import set_xla_options

set_xla_options()

# A public name is imported when it is first asked for: JAX and MuJoCo take over a second, which `jaxik --help` does not
# need. This block is for type checkers and editors; at run time `_NAMES` says the same, as tests/test_public_names.py
# holds.
if TYPE_CHECKING:
    from jaxik.batching.devices import enable_compilation_cache, use_all_cores
    from jaxik.collision.distances import Distances
    from jaxik.collision.fields import Points, VoxelField
    from jaxik.collision.obstacles import Boxes, Capsules, Cylinders, Ellipsoids, Hulls, Planes, Spheres
    from jaxik.collision.world import World
    from jaxik.core.errors import JaxikError, JaxikWarning, LoadError, UnknownNameError
    from jaxik.core.pytree import leaf, pytree, static
    from jaxik.core.status import DerivativeStatus, Status
    from jaxik.datasets.dataset import Dataset, open_dataset
    from jaxik.datasets.generate import generate
    from jaxik.datasets.grid import Grid
    from jaxik.datasets.plan import Plan
    from jaxik.datasets.randomize import Randomize
    from jaxik.datasets.trajectories import Trajectories
    from jaxik.kinematics.frames import Frame
    from jaxik.kinematics.motion import Motion
    from jaxik.limits.acceleration import AccelerationLimit
    from jaxik.limits.base import Limit
    from jaxik.limits.collision import CollisionLimit
    from jaxik.limits.configuration import ConfigurationLimit
    from jaxik.limits.distance import DistanceLimit
    from jaxik.limits.elastic import Elastic
    from jaxik.limits.free_joint_velocity import FreeJointVelocityLimit
    from jaxik.limits.jerk import JerkLimit
    from jaxik.limits.position import PositionLimit
    from jaxik.limits.task_limit import TaskLimit
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
    from jaxik.results.plot_track import plot_track
    from jaxik.results.solution import Solution
    from jaxik.results.trace import Trace
    from jaxik.results.track import Track
    from jaxik.robot.loading.catalog import bundled_robots
    from jaxik.robot.loading.load import load_robot
    from jaxik.robot.loading.mechanism import Mechanism
    from jaxik.robot.robot import Robot
    from jaxik.solvers.asynchronous.handle import SolveHandle
    from jaxik.solvers.asynchronous.solve_async import solve_async
    from jaxik.solvers.differential.linearization import Linearization
    from jaxik.solvers.differential.step import StepResult, linearize, step
    from jaxik.solvers.nonlinear.solve import SolveOptions, solve
    from jaxik.solvers.planning.options import PlanningOptions
    from jaxik.solvers.planning.plan_motion import plan_motion
    from jaxik.solvers.search.search import SearchOptions, search
    from jaxik.solvers.tracking.interpolate import interpolate
    from jaxik.solvers.tracking.loop import TrackState
    from jaxik.solvers.tracking.options import TrackOptions, WholePathOptions
    from jaxik.solvers.tracking.track import track, track_start, track_step
    from jaxik.tasks.axis_align import AxisAlignTask
    from jaxik.tasks.base import Task
    from jaxik.tasks.clearance import ClearanceTask
    from jaxik.tasks.com import ComTask
    from jaxik.tasks.damping import DampingTask
    from jaxik.tasks.distance import DistanceTask
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
    "Boxes",
    "Camera",
    "Capsules",
    "Certificate",
    "ClearanceTask",
    "CollisionLimit",
    "ComTask",
    "ConfigurationLimit",
    "Cylinders",
    "DampingTask",
    "Dataset",
    "DerivativeStatus",
    "DistanceLimit",
    "DistanceTask",
    "Distances",
    "Elastic",
    "Ellipsoids",
    "EqualityConstraintTask",
    "Frame",
    "FrameTask",
    "FreeJointVelocityLimit",
    "Grid",
    "Hulls",
    "JaxikError",
    "JaxikWarning",
    "JerkLimit",
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
    "Mechanism",
    "Motion",
    "Objective",
    "OmniwheelTask",
    "Picture",
    "Plan",
    "Planes",
    "PlanningOptions",
    "Points",
    "PositionLimit",
    "PostureTask",
    "Problem",
    "QPOptions",
    "QPSolution",
    "Randomize",
    "RelativeFrameTask",
    "Robot",
    "RollingTask",
    "SearchOptions",
    "Solution",
    "SolveHandle",
    "SolveOptions",
    "Spheres",
    "Status",
    "StepResult",
    "Task",
    "TaskLimit",
    "Trace",
    "Track",
    "TrackOptions",
    "TrackState",
    "Trajectories",
    "UnknownNameError",
    "VelocityLimit",
    "VelocityTask",
    "VoxelField",
    "WholePathOptions",
    "World",
    "bundled_robots",
    "enable_compilation_cache",
    "film",
    "generate",
    "interpolate",
    "leaf",
    "linearize",
    "load",
    "load_robot",
    "open_dataset",
    "plan_motion",
    "plot_trace",
    "plot_track",
    "pytree",
    "qp",
    "render",
    "save",
    "search",
    "solve",
    "solve_async",
    "static",
    "step",
    "track",
    "track_start",
    "track_step",
    "use_all_cores",
    "view",
]

_NAMES = {  # by module
    "jaxik.batching.devices": "enable_compilation_cache use_all_cores",
    "jaxik.collision.distances": "Distances",
    "jaxik.collision.fields": "Points VoxelField",
    "jaxik.collision.obstacles": "Boxes Capsules Cylinders Ellipsoids Hulls Planes Spheres",
    "jaxik.collision.world": "World",
    "jaxik.core.errors": "JaxikError JaxikWarning LoadError UnknownNameError",
    "jaxik.core.pytree": "leaf pytree static",
    "jaxik.core.status": "DerivativeStatus Status",
    "jaxik.datasets.dataset": "Dataset open_dataset",
    "jaxik.datasets.generate": "generate",
    "jaxik.datasets.grid": "Grid",
    "jaxik.datasets.plan": "Plan",
    "jaxik.datasets.randomize": "Randomize",
    "jaxik.datasets.trajectories": "Trajectories",
    "jaxik.kinematics.frames": "Frame",
    "jaxik.kinematics.motion": "Motion",
    "jaxik.limits.acceleration": "AccelerationLimit",
    "jaxik.limits.base": "Limit",
    "jaxik.limits.collision": "CollisionLimit",
    "jaxik.limits.configuration": "ConfigurationLimit",
    "jaxik.limits.distance": "DistanceLimit",
    "jaxik.limits.elastic": "Elastic",
    "jaxik.limits.free_joint_velocity": "FreeJointVelocityLimit",
    "jaxik.limits.jerk": "JerkLimit",
    "jaxik.limits.position": "PositionLimit",
    "jaxik.limits.task_limit": "TaskLimit",
    "jaxik.limits.velocity": "VelocityLimit",
    "jaxik.pictures.camera": "Camera",
    "jaxik.pictures.film": "film",
    "jaxik.pictures.picture": "Picture",
    "jaxik.pictures.render": "render",
    "jaxik.problem.problem": "Problem",
    "jaxik.qp_solver": "ActiveSet Certificate QPOptions QPSolution",
    "jaxik.qp_solver.qp": "qp",
    "jaxik.results.npz": "load save",
    "jaxik.results.plot": "plot_trace",
    "jaxik.results.plot_track": "plot_track",
    "jaxik.results.solution": "Solution",
    "jaxik.results.trace": "Trace",
    "jaxik.results.track": "Track",
    "jaxik.robot.loading.catalog": "bundled_robots",
    "jaxik.robot.loading.load": "load_robot",
    "jaxik.robot.loading.mechanism": "Mechanism",
    "jaxik.robot.robot": "Robot",
    "jaxik.solvers.asynchronous.handle": "SolveHandle",
    "jaxik.solvers.asynchronous.solve_async": "solve_async",
    "jaxik.solvers.differential.linearization": "Linearization",
    "jaxik.solvers.differential.step": "StepResult linearize step",
    "jaxik.solvers.nonlinear.solve": "SolveOptions solve",
    "jaxik.solvers.planning.options": "PlanningOptions",
    "jaxik.solvers.planning.plan_motion": "plan_motion",
    "jaxik.solvers.search.search": "SearchOptions search",
    "jaxik.solvers.tracking.interpolate": "interpolate",
    "jaxik.solvers.tracking.loop": "TrackState",
    "jaxik.solvers.tracking.options": "TrackOptions WholePathOptions",
    "jaxik.solvers.tracking.track": "track track_start track_step",
    "jaxik.tasks.axis_align": "AxisAlignTask",
    "jaxik.tasks.base": "Task",
    "jaxik.tasks.clearance": "ClearanceTask",
    "jaxik.tasks.com": "ComTask",
    "jaxik.tasks.damping": "DampingTask",
    "jaxik.tasks.distance": "DistanceTask",
    "jaxik.tasks.equality_constraint": "EqualityConstraintTask",
    "jaxik.tasks.frame": "FrameTask",
    "jaxik.tasks.joint_coupling": "JointCouplingTask",
    "jaxik.tasks.joint_velocity": "JointVelocityTask",
    "jaxik.tasks.kinetic_energy": "KineticEnergyTask",
    "jaxik.tasks.linear_holonomic": "LinearHolonomicTask",
    "jaxik.tasks.look_at": "LookAtTask",
    "jaxik.tasks.low_acceleration": "LowAccelerationTask",
    "jaxik.tasks.manipulability": "ManipulabilityTask",
    "jaxik.tasks.objective": "Objective",
    "jaxik.tasks.omniwheel": "OmniwheelTask",
    "jaxik.tasks.posture": "PostureTask",
    "jaxik.tasks.relative_frame": "RelativeFrameTask",
    "jaxik.tasks.rolling": "RollingTask",
    "jaxik.tasks.velocity": "VelocityTask",
    "jaxik.viewer.view": "view",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker would take any name for one that there is

    def __getattr__(name: str) -> Any:
        """Import a public name, once."""
        if name in ("retargeting", "rl"):
            return importlib.import_module(f"jaxik.{name}")
        if name not in _MODULE_OF:
            from jaxik.core.errors import near_names

            near = near_names(name, __all__)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "; dir(jaxik) lists what there is"
            raise AttributeError(f"module 'jaxik' has no attribute {name!r}{hint}")
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value  # found without this function from here on
        return value
