"""From a compiled MuJoCo model to a `Robot`."""

import warnings
from typing import Any

import jax.numpy as jnp
import mujoco
import numpy as np

from jaxik.errors import JaxikWarning
from jaxik.robot.model import Robot
from jaxik.robot.sources import Source, read_source
from jaxik.robot.topology import Coupling, Equality, Joint, JointType, Topology, intern


def load_robot(source: Any) -> Robot:
    """Load a robot.

    Args:
      source: a bundled name (`jaxik.bundled_robots()`), an MJCF or URDF path, an XML string, `mujoco.MjModel`,
        `mujoco.MjSpec`, `mjx.Model`; a name of `robot_descriptions` where that package is installed, or a folder of
        MuJoCo Menagerie where the environment variable MENAGERIE_ROOT says where it is.

    Returns:
      The robot; its leaves have JAX's default float type. Kinematics load where meshes are missing or collision
      geometry is refused; what was dropped is said in one `JaxikWarning`.

    Raises:
      UnknownNameError: an unknown name; lists the near ones.
      LoadError: a missing file, malformed XML, or a model that MuJoCo refuses, with its message.
    """
    read = read_source(source)
    robot = build_robot(read)
    notes = [*read.dropped, *_notes(robot, read.model)]
    if notes:
        warnings.warn(f"{read.name}: {'; '.join(notes)}", JaxikWarning, stacklevel=2)
    return robot


def build_robot(source: Source) -> Robot:
    """The robot of a compiled model, without saying what was dropped."""
    model = source.model
    topology = _topology(model, source.name)
    limited = model.jnt_limited.astype(bool)
    dtype = jnp.result_type(float)
    lower, upper = model.jnt_range.T if dtype == np.float64 else _inward32(*model.jnt_range.T)
    lower, upper = np.where(limited, lower, -np.inf), np.where(limited, upper, np.inf)
    velocity = np.full(model.nv, np.inf)
    for name, limit in source.velocity_limits.items():
        velocity[list(topology.joints[topology.joint_index(name)].v_indices)] = limit
    couplings = _couplings(model)
    home = np.flatnonzero([key == "home" for key in topology.keyframes])
    leaves = dict(
        body_position=model.body_pos,
        body_quaternion=model.body_quat,
        body_mass=model.body_mass,
        body_center=model.body_ipos,
        joint_anchor=model.jnt_pos,
        joint_axis=model.jnt_axis,
        limit_lower=lower,
        limit_upper=upper,
        velocity_limit=velocity,
        q_reference=model.qpos0,
        q_home=model.key_qpos[home[0]] if home.size else _inside(topology, model.qpos0, lower, upper),
        keyframes=model.key_qpos.reshape(model.nkey, model.nq),
        site_position=model.site_pos,
        site_quaternion=model.site_quat,
        geom_position=model.geom_pos,
        geom_quaternion=model.geom_quat,
        coupling_coefficients=model.eq_data[couplings, :5],
    )
    return Robot(
        topology=topology,
        **{name: jnp.array(value, dtype) for name, value in leaves.items()},  # no view of the model
    )


def _inside(topology: Topology, q: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """`q` (nq,) with hinges and slides moved inside their limits; a ball's identity is inside any."""
    q = q.copy()
    joints = list(topology.scalar_joints)
    at = [topology.joints[j].q_index for j in joints]
    q[at] = np.clip(q[at], lower[joints], upper[joints])
    return q


def _inward32(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 limits inside the float64 ones; where none lies between two limits, the nearest."""
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    up = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
    down = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    nearest = ((low + high) / 2).astype(np.float32)
    empty = up > down
    return np.where(empty, nearest, up), np.where(empty, nearest, down)


def _names(model: mujoco.MjModel, kind: mujoco.mjtObj, count: int) -> tuple[str, ...]:
    return tuple(mujoco.mj_id2name(model, kind, i) or "" for i in range(count))


def _topology(model: mujoco.MjModel, name: str) -> Topology:
    obj = mujoco.mjtObj
    joint_names = _names(model, obj.mjOBJ_JOINT, model.njnt)
    joints = tuple(
        Joint(
            name=joint_names[i] or f"joint{i}",
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
    equality_names = _names(model, obj.mjOBJ_EQUALITY, model.neq)
    return intern(
        name,
        tuple(n or f"body{i}" for i, n in enumerate(body_names)),
        tuple(int(p) for p in model.body_parentid),
        joints,
        tuple(zip(site_names, map(int, model.site_bodyid), strict=True)),
        tuple(zip(geom_names, map(int, model.geom_bodyid), strict=True)),
        tuple(int(b) for b in np.flatnonzero(model.body_mocapid >= 0)),
        _names(model, obj.mjOBJ_KEY, model.nkey),
        tuple(
            Coupling(
                equality_names[i],
                int(model.eq_obj1id[i]),
                int(model.eq_obj2id[i]) if model.eq_obj2id[i] >= 0 else None,
            )
            for i in _couplings(model)
        ),
        tuple(_equality(model, i, equality_names[i]) for i in _other_equalities(model)),
    )


def _couplings(model: mujoco.MjModel) -> list[int]:
    joint = mujoco.mjtEq.mjEQ_JOINT
    return [i for i in range(model.neq) if model.eq_active0[i] and model.eq_type[i] == joint]


def _other_equalities(model: mujoco.MjModel) -> list[int]:
    joint = mujoco.mjtEq.mjEQ_JOINT
    return [i for i in range(model.neq) if model.eq_active0[i] and model.eq_type[i] != joint]


def _equality(model: mujoco.MjModel, i: int, name: str) -> Equality:
    kind = mujoco.mjtEq(int(model.eq_type[i])).name.removeprefix("mjEQ_").lower()
    ends = [int(model.eq_obj1id[i]), int(model.eq_obj2id[i])]
    if model.eq_objtype[i] == mujoco.mjtObj.mjOBJ_SITE:
        bodies = tuple(int(model.site_bodyid[e]) for e in ends if e >= 0)
    elif model.eq_objtype[i] == mujoco.mjtObj.mjOBJ_BODY:
        bodies = tuple(e for e in ends if e >= 0)
    else:
        bodies = ()
    return Equality(name, kind, bodies)


def _notes(robot: Robot, model: mujoco.MjModel) -> list[str]:
    notes = []
    mocap = set(robot.topology.mocap_bodies)
    pulled = [e.name or e.kind for e in robot.topology.equalities if mocap & set(e.bodies)]
    if pulled:
        notes.append(f"equality constraints with a mocap body are no constraints here: {', '.join(pulled)}")
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
