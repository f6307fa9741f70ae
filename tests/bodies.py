"""Bundled robots with several limbs: a table written apart from their files, their postures and mirror images."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import mujoco
import numpy as np
import oracle

import jaxik
from jaxik.robot.loading.catalog import find_by_name

MIRROR = np.diag([1.0, -1.0, 1.0])
PANDA_MASS = 0.629769 + 4.970684 + 0.646926 + 3.228604 + 3.587895 + 1.225946 + 1.666555 + 0.735522 + 0.73
UR5E_MASS = 4.0 + 3.761 + 8.058 + 2.846 + 1.37 + 1.3 + 0.365
LEGS = ("front_left", "front_right", "rear_left", "rear_right")


@dataclass(frozen=True)
class Body:
    """What a bundled robot is to be.

    Attributes:
      nq, nv: sizes.
      mass: together [kg].
      sites: all of them.
      negated: joints, without their side, that the mirror image of a posture negates; None: no left and right.
      mirrored_mass: whether the mirror image of a posture has the mirror image of its centre of mass.
      contacts: sites whose hull carries the standing robot, and their height at home [m].
      margin: of the centre of mass at home inside that hull, along x and y [m].
      couplings: pairs of joints, the follower first.
    """

    nq: int
    nv: int
    mass: float
    sites: tuple[str, ...]
    negated: tuple[str, ...] | None = None
    mirrored_mass: bool = True
    contacts: tuple[str, ...] = ()
    height: float = 0.0
    margin: tuple[float, float] = (0.0, 0.0)
    couplings: tuple[tuple[str, str], ...] = ()

    @property
    def floating(self) -> bool:
        return bool(self.contacts)


def both(*names: str) -> tuple[str, ...]:
    return tuple(f"{side}_{name}" for side in ("left", "right") for name in names)


SOLES = both("heel", "toe")
WAIST, SHOULDER, WRIST = ("waist_yaw", "waist_roll"), ("shoulder_roll", "shoulder_yaw"), ("wrist_yaw", "wrist_roll")
HIP, HAND = ("hip_roll", "hip_yaw", "ankle_roll"), ("fingers", "thumb")

BODIES = {
    "dual_arm": Body(
        nq=15,
        nv=15,
        mass=80 + 2 * PANDA_MASS,
        sites=both("flange", "tcp"),
        negated=("torso_yaw", "joint1", "joint3", "joint5", "joint7"),
        mirrored_mass=False,
    ),
    "hand": Body(
        nq=16,
        nv=16,
        mass=0.45,
        sites=("index_tip", "middle_tip", "ring_tip", "thumb_tip"),
        couplings=tuple((f"{finger}_distal", f"{finger}_middle") for finger in ("index", "middle", "ring")),
    ),
    "mobile_manipulator": Body(nq=9, nv=9, mass=60 + UR5E_MASS, sites=("tcp",)),
    "wheeled_biped": Body(
        nq=7 + 6,
        nv=6 + 6,
        mass=10,
        sites=both("wheel"),
        negated=(),
        contacts=both("wheel"),
        height=0.08,
        margin=(-1e-12, 0.1),  # balanced on the axis of its wheels
    ),
    "quadruped": Body(
        nq=7 + 12,
        nv=6 + 12,
        mass=14,
        sites=tuple(f"{leg}_foot" for leg in LEGS),
        negated=("front_abduction", "rear_abduction"),
        contacts=tuple(f"{leg}_foot" for leg in LEGS),
        margin=(0.15, 0.1),
    ),
    "humanoid": Body(
        nq=7 + 12 + 3 + 14 + 2 + 4,
        nv=6 + 12 + 3 + 14 + 2 + 4,
        mass=60,
        sites=("head", *both("hand", "foot", "heel", "toe")),
        negated=(*WAIST, "neck_yaw", *SHOULDER, *WRIST, *HIP, *HAND),
        contacts=SOLES,
        margin=(0.08, 0.08),
    ),
}
FLOATING = [name for name, body in BODIES.items() if body.floating]
SYMMETRIC = [name for name, body in BODIES.items() if body.negated is not None]


@functools.cache
def model_of(name: str) -> mujoco.MjModel:
    return oracle.exact(mujoco.MjModel.from_xml_path(str(find_by_name(name))))


@functools.cache
def robot_of(name: str) -> jaxik.Robot:
    return jaxik.load_robot(name)


def at(name: str, q: np.ndarray) -> mujoco.MjData:
    return oracle.evaluated(model_of(name), q)


def home(name: str) -> np.ndarray:
    return model_of(name).key("home").qpos.copy()


def joint_names(model: mujoco.MjModel) -> list[str]:
    return [model.joint(i).name for i in range(model.njnt)]


def scalar_joints(model: mujoco.MjModel) -> np.ndarray:
    return np.flatnonzero(model.jnt_type != mujoco.mjtJoint.mjJNT_FREE)


def random_postures(name: str, count: int, seed: int = 0) -> np.ndarray:
    """Configurations (count, nq): uniform inside the limits, or within half a turn and one metre; any free pose."""
    model, rng = model_of(name), np.random.default_rng(seed)
    q = np.zeros((count, model.nq))
    for i in range(model.njnt):
        start = model.jnt_qposadr[i]
        if model.jnt_type[i] == mujoco.mjtJoint.mjJNT_FREE:
            quaternion = rng.normal(size=(count, 4))
            q[:, start : start + 3] = rng.uniform(-1, 1, (count, 3))
            q[:, start + 3 : start + 7] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
        else:
            lower, upper = model.jnt_range[i] if model.jnt_limited[i] else (-np.pi, np.pi)
            q[:, start] = rng.uniform(lower, upper, count)
    return q


def other_side(name: str) -> str:
    left, right = name.replace("left", "right"), name.replace("right", "left")
    return left if left != name else right


def without_side(name: str) -> str:
    return name.replace("left_", "").replace("right_", "")


def mirror_image(name: str, q: np.ndarray) -> np.ndarray:
    """The configuration (nq,) with left and right exchanged: the reflection in the plane y = 0."""
    model, negated = model_of(name), BODIES[name].negated
    assert negated is not None
    image = np.empty_like(q)
    for joint in joint_names(model):
        start, source = model.joint(joint).qposadr[0], model.joint(other_side(joint)).qposadr[0]
        if model.joint(joint).type[0] == mujoco.mjtJoint.mjJNT_FREE:
            image[start : start + 7] = q[start : start + 7] * [1, -1, 1, 1, -1, 1, -1]
        else:
            image[start] = -q[source] if without_side(joint) in negated else q[source]
    return image


def site_poses(name: str, q: np.ndarray, sites: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    data = at(name, q)
    found = [data.site(site) for site in sites]
    return np.array([site.xpos for site in found]), np.array([site.xmat.reshape(3, 3) for site in found])
