"""Robots as named arrays: leaves with their units, and the topology as JSON."""

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxik.core.archive import Archive, read
from jaxik.core.errors import JaxikWarning
from jaxik.core.validation import as_array
from jaxik.kinematics.equality import EQUALITY_NUMBERS, Equality, Tendon
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import DroppedPair, Geometry
from jaxik.kinematics.model import inward32
from jaxik.kinematics.topology import Joint, JointType, Topology, intern
from jaxik.robot.robot import Robot

FORMAT = "jaxik robot"


class Leaf(NamedTuple):
    """The unit of a leaf's numbers, and the axes that it has for one robot."""

    unit: str
    axes: tuple[str | int, ...]


LEAVES = {
    "body_position": Leaf("m", ("bodies", 3)),
    "body_quaternion": Leaf("1", ("bodies", 4)),
    "body_mass": Leaf("kg", ("bodies",)),
    "body_center": Leaf("m", ("bodies", 3)),
    "body_inertia": Leaf("kg m^2", ("bodies", 3, 3)),
    "joint_anchor": Leaf("m", ("joints", 3)),
    "joint_axis": Leaf("1", ("joints", 3)),
    "limit_lower": Leaf("rad or m", ("joints",)),
    "limit_upper": Leaf("rad or m", ("joints",)),
    "velocity_limit": Leaf("rad/s or m/s", ("nv",)),
    "armature": Leaf("kg m^2 or kg", ("nv",)),
    "qpos0": Leaf("see q_unit", ("nq",)),
    "q_home": Leaf("see q_unit", ("nq",)),
    "keyframes": Leaf("see q_unit", ("keyframes", "nq")),
    "site_position": Leaf("m", ("sites", 3)),
    "site_quaternion": Leaf("1", ("sites", 4)),
    "geom_position": Leaf("m", ("geoms", 3)),
    "geom_quaternion": Leaf("1", ("geoms", 4)),
    "equality_data": Leaf("MuJoCo's eq_data", ("equalities", EQUALITY_NUMBERS)),
    "tendon_coefficients": Leaf("1", ("weights",)),
    "tendon_reference": Leaf("rad or m", ("tendons",)),
    "equality_active": Leaf("1", ("equalities",)),
}
# Of robots whose equality constraints were switched.
OPTIONAL = ("equality_active",)


# Of the shapes, in files of robots that have some.
SHAPE_LEAVES = {
    "shape_position": Leaf("m", ("shapes", 3)),
    "shape_quaternion": Leaf("1", ("shapes", 4)),
    "shape_size": Leaf("m", ("shapes", 3)),
    "shape_corners": Leaf("m", ("hulls", "corners", 3)),
}
_SHAPES = "geometry"


def robot_arrays(robot: Robot) -> dict[str, Any]:
    """Every leaf by its name, with its batch axes, and the names of what stands in them."""
    bodies = np.array(robot.topology.body_names, str)
    leaves = {name: getattr(robot, name) for name in LEAVES if getattr(robot, name) is not None}
    if robot.geometry is not None:
        leaves |= {name: getattr(robot.geometry, name.removeprefix("shape_")) for name in SHAPE_LEAVES}
        leaves[_SHAPES] = json.dumps({name: getattr(robot.geometry, name) for name in _static_fields()})
    return leaves | names(robot.topology) | {"body_names": bodies}


def _static_fields() -> list[str]:
    return [f.name for f in dataclasses.fields(Geometry) if f.metadata.get("static")]


def _geometry_of(archive: Archive) -> Geometry | None:
    """The shapes that an archive holds, None without."""
    if _SHAPES not in archive.arrays:
        return None
    stored = archive.json(_SHAPES)
    try:
        stored = {"home": ()} | stored  # files of before have none
        fields: dict[str, Any] = {name: _tuples(stored[name]) for name in _static_fields()}
        fields["dropped"] = tuple(DroppedPair(*pair) for pair in fields["dropped"])
    except (KeyError, TypeError) as error:
        raise archive.wrong(f"{_SHAPES!r} is none of a robot: {error!r}") from None
    corners = np.shape(archive.arrays.get("shape_corners", 0))
    sizes = {
        "shapes": len(fields["names"]),
        "hulls": fields["kinds"].count("hull"),
        "corners": corners[-2] if len(corners) > 2 else 0,
    }
    for name, leaf in SHAPE_LEAVES.items():
        core = tuple(n if isinstance(n, int) else sizes[n] for n in leaf.axes)
        fields[name.removeprefix("shape_")] = as_array(archive.numbers(name, core))
    return Geometry(**fields)


def names(topology: Topology) -> dict[str, Any]:
    """What a robot or a configuration is read by: names of joints, joint and unit of each coordinate, the topology."""
    columns = topology.q_columns
    return {
        "robot": topology.name,
        "joint_names": np.array(topology.joint_names, str),
        "q_joint": np.array([joint for joint, _ in columns], str),
        "q_unit": np.array([unit for _, unit in columns], str),
        "topology": _topology_json(topology),
    }


def read_robot(path: Path) -> Robot:
    """The robot of a file that `jaxik.save` wrote.

    Raises:
      LoadError: see `jaxik.load`.
    """
    return robot_of(read(path, (FORMAT,)))


def robot_of(archive: Archive) -> Robot:
    """The robot that an archive holds, with the topology that robots in this process share."""
    topology = topology_of(archive)
    sizes = {
        "bodies": len(topology.body_names),
        "joints": len(topology.joints),
        "nq": topology.nq,
        "nv": topology.nv,
        "keyframes": len(topology.keyframes),
        "sites": len(topology.sites),
        "geoms": len(topology.geoms),
        "equalities": len(topology.equalities),
        "weights": sum(len(tendon.joints) + len(tendon.spans) for tendon in topology.tendons),
        "tendons": len(topology.tendons),
    }
    leaves = {
        name: archive.numbers(name, tuple(n if isinstance(n, int) else sizes[n] for n in kind.axes))
        for name, kind in LEAVES.items()
        if name in archive.arrays or name not in OPTIONAL
    }
    if rounded(archive, "limits rounded inward", *leaves.values()):
        leaves["limit_lower"], leaves["limit_upper"] = inward32(leaves["limit_lower"], leaves["limit_upper"])
    arrays: dict[str, Any] = {name: as_array(value) for name, value in leaves.items()}
    return Robot(topology, **arrays, geometry=_geometry_of(archive))


def rounded(archive: Archive, consequence: str, *arrays: np.ndarray) -> bool:
    """Whether JAX will round these to float32, which is said in a warning with what comes of it."""
    needs = [x for x in arrays if x.dtype == np.float64 and not jax.config.jax_enable_x64]
    if needs:
        warnings.warn(
            f"{archive.path} is in float64 and is read in float32, {consequence}; "
            'jax.config.update("jax_enable_x64", True) first keeps it',
            JaxikWarning,
            stacklevel=4,
        )
    return bool(needs)


def topology_of(archive: Archive) -> Topology:
    """The topology that an archive holds: the same object for the same robot."""
    stored = archive.json("topology")
    try:
        fields = {name: _tuples(value) for name, value in stored.items()}
        fields["joints"] = tuple(Joint(**{**j, "type": JointType[j["type"].upper()]}) for j in fields["joints"])
        fields["equalities"] = tuple(
            Equality(**{**e, "frames": tuple(Frame(**frame) for frame in e["frames"])}) for e in fields["equalities"]
        )
        fields["tendons"] = tuple(Tendon(**tendon) for tendon in fields["tendons"])
        return intern(*(fields[field.name] for field in dataclasses.fields(Topology)))
    except (KeyError, TypeError, AttributeError) as error:
        raise archive.wrong(f"'topology' is none of a robot: {error!r}") from None


def _topology_json(topology: Topology) -> str:
    fields = dataclasses.asdict(topology)
    for joint in fields["joints"]:
        joint["type"] = joint["type"].name.lower()
    return json.dumps(fields)


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    if isinstance(value, dict):
        return {key: _tuples(x) for key, x in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
