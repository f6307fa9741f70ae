"""Read the obstacles of a configuration that are arrays: grids of distances, clouds of points, hulls."""

from pathlib import Path

import numpy as np

from jaxik.cli.arrays import read_array
from jaxik.cli.poses import POSE_KEYS, Needs, Units, read_pose
from jaxik.cli.section import Section, read_numbers
from jaxik.collision.fields import Points, VoxelField
from jaxik.collision.mesh_hulls import padded
from jaxik.collision.obstacles import Hulls

# What a grid is made from, and the keys beside the pose that each way has.
_FIELDS = {
    "heights": ("spacing", "cell", "room"),
    "points": ("radius", "cell", "room"),
    "cubes": ("cell",),
    "distance": ("cell",),
}


def read_field(section: Section, units: Units, folder: Path) -> VoxelField:
    """Read a grid from the one key of `heights`, `points`, `cubes` and `distance` that a section has."""
    given = [key for key in _FIELDS if key in section]
    if len(given) != 1:
        section.place.fail(f"is made from one of {', '.join(_FIELDS)}, not {' and '.join(given) or 'none'}")
    kind = given[0]
    section.allow(kind, *_FIELDS[kind], *(() if kind == "points" else POSE_KEYS))
    numbers = {key: section.number(key) * units.length for key in ("cell", "room", "radius") if key in section}
    pose = read_pose(section, units, Needs(position=False, rotation=False))
    if kind == "points":
        points = read_array(section, kind, ("n", "3"), folder) * units.length
        with section.place.blamed():
            return VoxelField.from_points(points, **numbers)
    if kind == "heights":
        heights = read_array(section, kind, ("nx", "ny"), folder) * units.length
        spacing = section.get("spacing")
        spacing = read_numbers(spacing, (2,) if isinstance(spacing, list) else (), section.at("spacing"))
        with section.place.blamed():
            return VoxelField.from_heights(heights, spacing * units.length, pose, **numbers)
    if "cell" not in section:
        section.place.fail("has no 'cell', and needs one")
    array = read_array(section, kind, ("nx", "ny", "nz"), folder)
    if kind == "distance":
        with section.place.blamed():
            return VoxelField(array * units.length, numbers["cell"], pose)
    if not np.isin(array, (0, 1)).all():
        section.at(kind).fail("are 1 where it is solid, and 0 where it is free")
    with section.place.blamed():
        return VoxelField.from_occupancy(array.astype(bool), numbers["cell"], pose)


def read_points(section: Section, units: Units, folder: Path) -> Points:
    """Read a cloud: `positions`, and the `radius` of all."""
    section.allow("positions", "radius")
    positions = read_array(section, "positions", ("n", "3"), folder) * units.length
    with section.place.blamed():
        return Points(positions, section.number("radius") * units.length)


def read_hulls(each: list[Section], units: Units, folder: Path) -> Hulls:
    """Read hulls: `corners` in the axes of a pose."""
    for item in each:
        item.allow("corners", *POSE_KEYS)
    poses = [read_pose(item, units, Needs(position=False, rotation=False)) for item in each]
    corners = [read_array(item, "corners", ("n", "3"), folder) * units.length for item in each]
    return Hulls(np.stack(poses), padded(corners))
