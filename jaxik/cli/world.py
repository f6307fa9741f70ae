"""Read the obstacles of a configuration, and the limit that keeps a robot apart from them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.cli import fields
from jaxik.cli.fields import Source
from jaxik.cli.grids import read_field, read_hulls, read_points
from jaxik.cli.poses import POSE_KEYS, Needs, Units, read_pose
from jaxik.cli.section import Section, read_numbers
from jaxik.collision.obstacles import Boxes, Capsules, Cylinders, Ellipsoids, Planes, Spheres
from jaxik.collision.world import World
from jaxik.limits.collision import CollisionLimit
from jaxik.robot.loading.geometry import SOURCES
from jaxik.robot.loading.geometry import Source as GeometrySource


def read_geometry(root: Section) -> GeometrySource | None:
    """Which shapes a robot needs: None if the configuration asks for no `CollisionLimit` and no task of distances."""
    tasks = root.get("tasks", {})
    tasks = tasks.values() if isinstance(tasks, dict) else ()
    has_distances = any(isinstance(task, dict) and task.get("type") in ("clearance", "distance") for task in tasks)
    if not has_distances and not keeps_apart(root):
        return None
    return root.choice("geometry", SOURCES) if "geometry" in root else "model"


def keeps_apart(root: Section) -> bool:
    """Whether there is a `CollisionLimit`."""
    limits = root.get("limits", {})
    return isinstance(limits, dict) and limits.get("collision", False) is not False


def read_collision(section: Section, source: Source) -> CollisionLimit:
    """Read the key `collision` of the limits: true, or a mapping."""
    given: dict[str, Any] = {}
    if section.get("collision") is not True:
        own = section.section("collision")
        own.allow("margin", "pairs", "rows", *fields.SHARE)
        given = {"margin": fields.length(own, "margin", source)} if "margin" in own else {}
        given |= {"pairs": own.get("pairs")} if "pairs" in own else {}
        given |= {"rows": own.integer("rows", least=1)} if "rows" in own else {}
        given |= fields.share(own)
    with section.at("collision").blamed():
        limit = CollisionLimit(source.world, **given)
        limit.check(source.robot)
    return limit


def read_world(root: Section, units: Units, folder: Path) -> World | None:
    """Read the obstacles under the key `world`; None without."""
    if "world" not in root:
        return None
    if read_geometry(root) is None:
        root.at("world").fail("holds obstacles that nothing keeps away from: add limits: {collision: true}")
    section = root.section("world")
    listed: dict[str, Callable[[list[Section], Units], Any]] = {
        "boxes": _boxes,
        "spheres": _spheres,
        "capsules": _capsules,
        "cylinders": _cylinders,
        "ellipsoids": _ellipsoids,
        "hulls": lambda each, units: read_hulls(each, units, folder),
        "planes": _planes,
    }
    single = {"field": read_field, "points": read_points}
    section.allow(*listed, *single)
    found: dict[str, Any] = {}
    for kind in section.values:
        if kind in single:
            found[kind] = single[kind](section.section(kind), units, folder)
            continue
        items = section.get(kind)
        if not isinstance(items, list) or not items:
            section.at(kind).fail("is a list of obstacles, one at least")
        each = [Section(item, section.at(kind) / i) for i, item in enumerate(items)]
        with section.at(kind).blamed():
            found[kind] = listed[kind](each, units)
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
