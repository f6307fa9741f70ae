"""From a compiled MuJoCo model to a `Robot`."""

import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxik.core import validation
from jaxik.core.errors import JaxikWarning, LoadError
from jaxik.kinematics.equality import EQUALITY_NUMBERS, Tendon
from jaxik.kinematics.geometry import geometry_of
from jaxik.kinematics.model import inward32
from jaxik.kinematics.sampling import coupled_coordinates, onto_couplings
from jaxik.kinematics.topology import Joint, JointType, Topology, intern
from jaxik.robot.joint_data import own_names
from jaxik.robot.loading.equalities import read_equalities, read_tendons
from jaxik.robot.loading.geometry import ALWAYS, SAMPLES, SOURCES, read_geometry
from jaxik.robot.loading.geometry import Source as GeometrySource
from jaxik.robot.loading.npz import read_robot
from jaxik.robot.loading.repair import summarise
from jaxik.robot.loading.sources import Source, bundled_robots, read_source
from jaxik.robot.loading.srdf import without_disabled
from jaxik.robot.loading.visual import read_visual
from jaxik.robot.robot import Robot


def load_robot(
    source: Any,
    *,
    geometry: GeometrySource | None = None,
    srdf: str | os.PathLike[str] | None = None,
    meshes: bool = False,
    free_root: bool = False,
) -> Robot:
    """Load a robot.

    Args:
      source: a bundled name (`jaxik.bundled_robots()`), an MJCF or URDF path, an XML string, `mujoco.MjModel`,
        `mujoco.MjSpec`, `mjx.Model`; a name of `robot_descriptions` where that package is installed, or a folder of
        MuJoCo Menagerie where the environment variable MENAGERIE_ROOT says where it is; an `.npz` that `jaxik.save`
        wrote, which gives the robot as it was, with its dtype and batch axes.
      geometry: "model" keeps the spheres, capsules, boxes, cylinders, ellipsoids and planes of the model that collide
        (contype, conaffinity) for `robot.distances` and collision limits, and finds the pairs of them that can; None
        keeps none. "hull" takes meshes that collide as well, as their convex hulls; "capsule" and "sphere" put one
        around each hull, which is quicker, and bigger by what `print(robot.geometry)` says. Pairs that never come near
        in random configurations are left out, for the poses and limits that the model has.
      srdf: the path of an SRDF: pairs of links that its `disable_collisions` names are left out, with its reasons.
      meshes: keep what the model shows, meshes, shapes and colours, so that pictures, films and pages draw it; without,
        or where there is nothing, a ball stands for each joint and a capsule for each link. Bundled robots need none;
        `jaxik.save` leaves it out.
      free_root: free the root from the world, as `robot.with_free_root()` does: a URDF has no such joint.

    Returns:
      The robot; its leaves have JAX's default float type. Kinematics load where meshes are missing or collision
      geometry is refused; what was dropped is said in one `JaxikWarning`.

    Raises:
      UnknownNameError: an unknown name; lists the near ones.
      LoadError: a missing or damaged file, malformed XML, or a model that MuJoCo refuses, with its message; one without
        shapes, where they are asked for; a saved robot, which has no meshes.
      JaxikError: for `free_root` where several bodies are on the world, or one that moves, see `with_free_root`.
    """
    if geometry is not None:
        validation.one_of("geometry", geometry, SOURCES)
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() == ".npz":
        stored = read_robot(Path(source))
        if geometry is not None and stored.geometry is None:
            raise LoadError(
                f"{source} was saved without shapes: load the model with geometry={geometry!r}, and save again"
            )
        if meshes:
            raise LoadError(f"{source} is a saved robot, which has no meshes: load its model with meshes=True")
        if srdf is not None:
            raise LoadError(f"{source} is a saved robot, with its pairs of shapes: load its model with srdf={srdf!r}")
        return stored.with_free_root() if free_root else stored
    read = read_source(source)
    robot = build_robot(read)
    notes = [*read.dropped, *_notes(robot, read.model)]
    if geometry is not None:
        robot, lost = _with_geometry(robot, read, geometry)
        notes += lost
    if srdf is not None:
        shapes = without_disabled(geometry_of(read.name, robot.geometry), robot.topology.body_names, srdf)
        robot = dataclasses.replace(robot, geometry=shapes)
    if meshes and source not in bundled_robots():
        if read.format == "mjx":
            notes.append("an mjx.Model has no meshes to draw: load the model from its file")
        else:
            visual = read_visual(read.model, robot.topology, read.format == "urdf", read.bare)
            robot = dataclasses.replace(robot, visual=visual)
    if notes:
        warnings.warn(f"{read.name}: {'; '.join(notes)}", JaxikWarning, stacklevel=2)
    return robot.with_free_root() if free_root else robot


def _with_geometry(robot: Robot, read: Source, source: GeometrySource) -> tuple[Robot, list[str]]:
    """The robot with its shapes that collide, and what is to be said of them."""
    samples = np.asarray(robot.sample(jax.random.key(0), SAMPLES))
    try:
        shapes = read_geometry(read.model, read.name, source, samples, np.asarray(robot.q_home))
    except LoadError as error:  # what was dropped may be why, and would be said of a robot alone
        raise LoadError("; ".join([str(error), *read.dropped])) from None
    notes = [f"shapes that no distance is known of: {what}" for what in shapes.lost]
    always = [f"{pair.first} - {pair.second}" for pair in shapes.dropped if pair.reason.startswith(ALWAYS)]
    if always:
        notes.append(f"pairs of shapes that always touch, which nothing can keep apart: {summarise(always)}")
    return dataclasses.replace(robot, geometry=shapes), notes


def build_robot(source: Source) -> Robot:
    """The robot of a compiled model, without saying what was dropped."""
    model = source.model
    tendons, tendon_coefficients = read_tendons(model)
    topology = _topology(model, source.name, tendons)
    limited = model.jnt_limited.astype(bool)
    dtype = jnp.result_type(float)
    lower, upper = model.jnt_range.T if dtype == np.float64 else inward32(*model.jnt_range.T)
    lower, upper = np.where(limited, lower, -np.inf), np.where(limited, upper, np.inf)
    velocity = np.full(model.nv, np.inf)
    for name, limit in source.velocity_limits.items():
        velocity[list(topology.joints[topology.joint_index(name)].v_indices)] = limit
    leaves = dict(
        body_position=model.body_pos,
        body_quaternion=model.body_quat,
        body_mass=model.body_mass,
        body_center=model.body_ipos,
        body_inertia=_inertias(model),
        joint_anchor=model.jnt_pos,
        joint_axis=model.jnt_axis,
        limit_lower=lower,
        limit_upper=upper,
        velocity_limit=velocity,
        armature=model.dof_armature,
        qpos0=model.qpos0,
        q_home=model.key("home").qpos if topology.has_home else _inside(topology, model.qpos0, lower, upper),
        keyframes=model.key_qpos.reshape(model.nkey, model.nq),
        site_position=model.site_pos,
        site_quaternion=model.site_quat,
        geom_position=model.geom_pos,
        geom_quaternion=model.geom_quat,
        equality_data=np.pad(model.eq_data, ((0, 0), (0, EQUALITY_NUMBERS)))[:, :EQUALITY_NUMBERS],
        tendon_coefficients=tendon_coefficients,
        tendon_reference=model.tendon_length0,
    )
    # Copies, no views of the model, and cast by NumPy: `jnp.array` compiles a program for each shape.
    arrays: dict[str, Any] = {name: jnp.asarray(np.array(value, dtype), dtype) for name, value in leaves.items()}
    robot = Robot(topology=topology, **arrays)
    if topology.couplings and not topology.has_home:
        # Mimic joints have an offset: zeros are not on it.
        robot = dataclasses.replace(robot, q_home=_onto_couplings(robot))
    return robot


def _onto_couplings(robot: Robot) -> Any:
    """`q_home` (nq,) with joints that others drive where their couplings have them."""
    topology, q = robot.topology, np.array(robot.q_home)
    qpos0, data = np.asarray(robot.qpos0), np.asarray(robot.equality_data)
    # By NumPy: `coupling_coefficients` would compile a program.
    coefficients = data[[e.index for e in topology.equalities if e.active and e.kind == "joint"], :5]
    for i in coupled_coordinates(topology).couplings:
        leader, j = topology.couplings[i].leader, topology.couplings[i].follower
        at = topology.joints[j].q_index
        place = None if leader is None else topology.joints[leader].q_index
        q[at] = qpos0[at] + np.polyval(coefficients[i][::-1], 0 if place is None else q[place] - qpos0[place])
        if not np.asarray(robot.limit_lower)[j] <= q[at] <= np.asarray(robot.limit_upper)[j]:
            # Compiled, which takes a second: leaders have to move as well.
            return jax.jit(onto_couplings)(robot, robot.q_home)
    return jnp.asarray(q)


def _inertias(model: mujoco.MjModel) -> np.ndarray:
    """Rotational inertia (nbody, 3, 3) of each body about its centre of mass, in the body's axes."""
    axes = np.empty((model.nbody, 9))
    for matrix, quaternion in zip(axes, model.body_iquat, strict=True):
        mujoco.mju_quat2Mat(matrix, quaternion)
    axes = axes.reshape(-1, 3, 3)
    return np.einsum("bij,bj,bkj->bik", axes, model.body_inertia, axes)


def _inside(topology: Topology, q: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """`q` (nq,) with hinges and slides moved inside their limits; a ball's identity is inside any."""
    q = q.copy()
    joints = list(topology.scalar_joints)
    at = [topology.joints[j].q_index for j in joints]
    q[at] = np.clip(q[at], lower[joints], upper[joints])
    return q


def _names(model: mujoco.MjModel, kind: mujoco.mjtObj, count: int) -> tuple[str, ...]:
    return tuple(mujoco.mj_id2name(model, kind, i) or "" for i in range(count))


def _topology(model: mujoco.MjModel, name: str, tendons: tuple[Tendon, ...]) -> Topology:
    obj = mujoco.mjtObj
    joint_names = own_names(_names(model, obj.mjOBJ_JOINT, model.njnt), "joint")
    joints = tuple(
        Joint(
            name=joint_names[i],
            type=JointType(int(model.jnt_type[i])),
            body=int(model.jnt_bodyid[i]),
            q_index=int(model.jnt_qposadr[i]),
            v_index=int(model.jnt_dofadr[i]),
        )
        for i in range(model.njnt)
    )
    body_names = _names(model, obj.mjOBJ_BODY, model.nbody)
    site_names = _names(model, obj.mjOBJ_SITE, model.nsite)
    geom_names = _names(model, obj.mjOBJ_GEOM, model.ngeom)
    return intern(
        name,
        own_names(body_names, "body"),
        tuple(int(p) for p in model.body_parentid),
        joints,
        tuple(zip(site_names, map(int, model.site_bodyid), strict=True)),
        tuple(zip(geom_names, map(int, model.geom_bodyid), strict=True)),
        tuple(int(b) for b in np.flatnonzero(model.body_mocapid >= 0)),
        _names(model, obj.mjOBJ_KEY, model.nkey),
        read_equalities(model, tendons),
        tendons,
    )


def _notes(robot: Robot, model: mujoco.MjModel) -> list[str]:
    notes = []
    topology = robot.topology
    mocap = set(topology.mocap_bodies)
    if not topology.joints:
        notes.append("it has no joints: nothing moves")
    pulled = [e.label for e in topology.closures if mocap & set(e.bodies)]
    if pulled:
        notes.append(f"equality constraints with a mocap body are no constraints here: {', '.join(pulled)}")
    unknown = [e.label for e in topology.closures if not topology.can_evaluate(e)]
    if unknown:
        notes.append(
            "equality constraints that kinematics cannot evaluate (flexes, tendons round a geom) are left out: "
            + ", ".join(unknown)
        )
    tendons = _names(model, mujoco.mjtObj.mjOBJ_TENDON, model.ntendon)
    limited = [name for name, held in zip(tendons, model.tendon_limited, strict=True) if held]
    if limited:
        notes.append(f"ranges of tendons are no limits here: {', '.join(own_names(tuple(limited), 'tendon'))}")
    outside = _home_outside(topology, model)
    if outside:
        notes.append(f'the keyframe "home" is outside the limits of {", ".join(outside)}: solve starts inside them')
    if robot.limit_lower.dtype == np.float32:
        low, high = model.jnt_range[:, 0], model.jnt_range[:, 1]
        lower, upper = np.asarray(robot.limit_lower, float), np.asarray(robot.limit_upper, float)
        narrow = [
            joint.name
            for i, joint in enumerate(robot.topology.joints)
            if model.jnt_limited[i] and joint.type is not JointType.FREE and (lower[i] < low[i] or upper[i] > high[i])
        ]
        if narrow:
            notes.append(f"no float32 lies between the limits of {', '.join(narrow)}: the nearest is their limit")
    return notes


def _home_outside(topology: Topology, model: mujoco.MjModel) -> list[str]:
    """The joints that the keyframe "home" has outside their limits, by how much; 1e-6 is what digits are written to."""
    if not topology.has_home:
        return []
    home = model.key_qpos[topology.keyframes.index("home")]
    found = []
    for joint, limited, (lower, upper) in zip(topology.joints, model.jnt_limited, model.jnt_range, strict=True):
        if not limited or joint.type is JointType.FREE:
            continue
        at = home[list(joint.q_indices)]
        if joint.type is JointType.BALL:
            lower, at = 0.0, [2 * np.arctan2(np.linalg.norm(at[1:]), abs(at[0]))]
        excess = max(lower - at[0], at[0] - upper)
        if excess > 1e-6:
            found.append(f"{joint.name} (by {excess:.3g} {'m' if joint.type is JointType.SLIDE else 'rad'})")
    return found
