"""Read the obstacles of a configuration, and the limit that keeps a robot apart from them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxik.cli import fields
from jaxik.cli.fields import Source
from jaxik.cli.poses import POSE_KEYS, Needs, Units, read_pose
from jaxik.cli.section import Section, read_numbers
from jaxik.collision.obstacles import Boxes, Capsules, Cylinders, Ellipsoids, Planes, Spheres
from jaxik.collision.world import World
from jaxik.limits.collision import CollisionLimit
from jaxik.robot.loading.geometry import SOURCES
from jaxik.robot.loading.geometry import Source as GeometrySource


def read_geometry(root: Section) -> GeometrySource | None:
    """Which shapes a robot needs: None if the configuration asks for no `CollisionLimit`."""
    limits = root.get("limits", {})
    if not isinstance(limits, dict) or limits.get("collision", False) is False:
        return None
    return root.choice("geometry", SOURCES) if "geometry" in root else "model"


def read_collision(section: Section, root: Section, source: Source) -> CollisionLimit:
    """Read the key `collision` of the limits: true, or a mapping, with the obstacles under the key `world`."""
    given: dict[str, Any] = {}
    if section.get("collision") is not True:
        own = section.section("collision")
        own.allow("margin", "pairs")
        given = {"margin": fields.length(own, "margin", source)} if "margin" in own else {}
        given |= {"pairs": own.get("pairs")} if "pairs" in own else {}
    world = read_world(root, source.units)
    with section.at("collision").blamed():
        limit = CollisionLimit(world, **given)
        limit.check(source.robot)
    return limit


def read_world(root: Section, units: Units) -> World | None:
    """Read the obstacles under the key `world`; None without."""
    if "world" not in root:
        return None
    section = root.section("world")
    readers: dict[str, Callable[[list[Section], Units], Any]] = {
        "boxes": _boxes,
        "spheres": _spheres,
        "capsules": _capsules,
        "cylinders": _cylinders,
        "ellipsoids": _ellipsoids,
        "planes": _planes,
    }
    section.allow(*readers)
    found = {}
    for kind in section.values:
        items = section.get(kind)
        if not isinstance(items, list) or not items:
            section.at(kind).fail("is a list of obstacles, one at least")
        each = [Section(item, section.at(kind) / i) for i, item in enumerate(items)]
        with section.at(kind).blamed():
            found[kind] = readers[kind](each, units)
    with section.place.blamed():
        return World(**found)


def _boxes(each: list[Section], units: Units) -> Boxes:
    for item in each:
        item.allow("size", *POSE_KEYS)
    poses = [read_pose(item, units, Needs(rotation=False)) for item in each]
    return Boxes(np.stack(poses), np.stack([_numbers(item, "size", (3,), units) / 2 for item in each]))


def _ellipsoids(each: list[Section], units: Units) -> Ellipsoids:
    boxes = _boxes(each, units)
    return Ellipsoids(boxes.pose, boxes.half_size)


def _cylinders(each: list[Section], units: Units) -> Cylinders:
    for item in each:
        item.allow("radius", "length", *POSE_KEYS)
    poses = [read_pose(item, units, Needs(rotation=False)) for item in each]
    radius, length = (np.stack([_numbers(item, key, (), units) for item in each]) for key in ("radius", "length"))
    return Cylinders(np.stack(poses), radius, length / 2)


def _spheres(each: list[Section], units: Units) -> Spheres:
    for item in each:
        item.allow("position", "radius")
    centers = [_numbers(item, "position", (3,), units) for item in each]
    return Spheres(np.stack(centers), np.stack([_numbers(item, "radius", (), units) for item in each]))


def _capsules(each: list[Section], units: Units) -> Capsules:
    for item in each:
        item.allow("from", "to", "radius")
    start, end = (np.stack([_numbers(item, key, (3,), units) for item in each]) for key in ("from", "to"))
    return Capsules(start, end, np.stack([_numbers(item, "radius", (), units) for item in each]))


def _planes(each: list[Section], units: Units) -> Planes:
    for item in each:
        item.allow("normal", "offset")
    normals = [read_numbers(item.get("normal"), (3,), item.at("normal")) for item in each]
    return Planes(np.stack(normals), np.stack([_numbers(item, "offset", (), units) for item in each]))


def _numbers(section: Section, key: str, shape: tuple[int, ...], units: Units) -> np.ndarray:
    return read_numbers(section.get(key), shape, section.at(key)) * units.length
