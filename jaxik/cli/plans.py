"""Read a configuration as the plan of a dataset: of rows that are solved, or of motions."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.cli.fields import Source
from jaxik.cli.job import KEYS as SOLVED_KEYS
from jaxik.cli.job import read_job, target_count
from jaxik.cli.poses import Units, read_units
from jaxik.cli.restrictions import read_constraints, read_fixed_joints, read_limits
from jaxik.cli.robot import read_robot
from jaxik.cli.section import Section, read_numbers
from jaxik.cli.start import read_start
from jaxik.cli.tasks import read_tasks
from jaxik.cli.tracking import read_steps
from jaxik.cli.world import read_world
from jaxik.cli.yaml_file import YamlFile
from jaxik.datasets.grid import Grid
from jaxik.datasets.plan import KEEPS, SPREADS, Plan
from jaxik.datasets.randomize import Randomize
from jaxik.datasets.trajectories import Trajectories
from jaxik.problem.problem import Problem
from jaxik.robot.loading.catalog import bundled_robots
from jaxik.solvers.options import SearchOptions
from jaxik.solvers.tracking.options import TrackOptions
from jaxik.solvers.tracking.shapes import SHAPES

KEYS = (*(key for key in SOLVED_KEYS if key != "output"), "dataset", "track")


def read_plan(file: YamlFile, *, count: int | None, seed: int | None) -> Plan:
    """Read a plan; arguments that are not None replace values of the configuration.

    Raises:
      ConfigError: names the place of the mistake, and what is allowed.
    """
    if "track" in file.root:
        return _plan_of_trajectories(file, count, seed)
    root = file.root
    section = _dataset_section(root)
    section.allow("count", "shard", "spread", "keep", "solutions", "grid", "randomize")
    sampled = _sampled(root)
    job = read_job(file, count=1, seed=seed, max_steps=None)
    if job.start is not None and job.start.ndim > 1:
        root.at("start").fail("sample is not for datasets: say home, mid-range or a configuration, or leave it out")
    problem = job.part(np.zeros(1, int))[0]
    options = job.options
    if "solutions" in section:
        if not isinstance(options, SearchOptions):
            section.at("solutions").fail("needs search: true")
        options = dataclasses.replace(options, solutions=section.integer("solutions", least=1))
    counts = [sample for sample in sampled.values() if sample]
    with section.place.blamed():
        return Plan(
            problem,
            _count(section, count, counts),
            seed=job.seed,
            sampled=tuple(sorted(sampled)),
            spread=section.choice("spread", SPREADS, "joints"),
            grid=_grid(section, read_units(root)),
            keep=section.choice("keep", KEEPS, "all"),
            randomize=_randomize(section, read_units(root)),
            start=job.start,
            options=options,
            shard=_shard(section),
            model=_model(root, file.path.parent),
        )


def _plan_of_trajectories(file: YamlFile, count: int | None, seed: int | None) -> Plan:
    """The plan of a configuration with the section `track`: rows are motions."""
    root, folder, section = file.root, file.path.parent, _dataset_section(file.root)
    section.allow("count", "shard", "keep", "randomize")
    for key in ("search", "options"):
        if key in root:
            root.at(key).fail("is for rows that are solved; motions have the section track")
    sampled, units = _sampled(root), read_units(root)
    robot = read_robot(root, folder, units, meshes=False)
    stated = root.integer("seed", 0) if seed is None else seed
    source = Source(robot, folder, units, stated, 1, read_world(root, units, folder))
    written = root.section("tasks")
    tasks, constraints = read_tasks(written, source, of_motion=True), read_constraints(root, written, source)
    for name, task in (tasks | (constraints or {})).items():
        if target_count(task) > 1:
            (root.at("tasks") / name).fail("has several targets: a motion follows one")
    is_random = root.get("start", "sample") == "sample"
    start = None if is_random else read_start(root, robot, units, source.seed, 1, searches=False)
    track = root.section("track")
    numbers: dict[str, Any] = {key: track.number(key) for key in ("damping", "feed_forward") if key in track}
    numbers |= {"continuous": track.get("continuous")} if "continuous" in track else {}
    with track.place.blamed():
        options = TrackOptions(**numbers)
    problem = Problem(
        robot, tasks, read_limits(root, source, of_motion=True), constraints, read_fixed_joints(root, source)
    )
    with section.place.blamed():
        return Plan(
            problem,
            _count(section, count, [sample for sample in sampled.values() if sample]),
            seed=source.seed,
            sampled=tuple(sorted(sampled)),
            keep=section.choice("keep", KEEPS, "all"),
            randomize=_randomize(section, units),
            start=start,
            options=options,
            trajectories=_trajectories(track, source),
            shard=_shard(section),
            model=_model(root, folder),
        )


def _trajectories(track: Section, source: Source) -> Trajectories:
    """What is random of motions: the section `track`, with one random path in the place of paths by task."""
    track.allow("dt", "duration", "path", "damping", "feed_forward", "continuous")
    dt, num_steps = read_steps(track)
    path = track.section("path") if "path" in track else Section({}, track.at("path"))
    shape = path.choice("shape", ("waypoints", *SHAPES), "waypoints")
    path.allow("shape", *(("waypoints", "speed") if shape == "waypoints" else ("size", "laps")))
    given: dict[str, Any] = {"waypoints": path.integer("waypoints", least=1)} if "waypoints" in path else {}
    for key in ("speed", "size", "laps"):
        if key in path:
            value = path.get(key)
            numbers = read_numbers(value, (2,) if isinstance(value, list) else (), path.at(key))
            given[key] = numbers * (source.units.length if key == "size" else 1.0)
    with path.place.blamed():
        return Trajectories(num_steps, dt, shape, **given)


def _dataset_section(root: Section) -> Section:
    return root.section("dataset") if "dataset" in root else Section({}, root.at("dataset"))


def _shard(section: Section) -> int | None:
    return section.integer("shard", least=1) if "shard" in section else None


def _count(section: Section, given: int | None, sampled: list[int]) -> int | None:
    """How many rows; None: as many as the grid has."""
    stated = section.integer("count", least=1) if "count" in section else None
    return given or stated or (None if "grid" in section else max(sampled, default=1))


def _grid(section: Section, units: Units) -> Grid | None:
    if "grid" not in section:
        return None
    grid = section.section("grid")
    grid.allow("center", "size", "resolution", "directions")
    vectors = {key: units.length * read_numbers(grid.get(key), (3,), grid.at(key)) for key in ("center", "size")}
    with grid.place.blamed():
        resolution = units.length * grid.number("resolution")
        return Grid(**vectors, resolution=resolution, directions=grid.integer("directions", 1, least=1))


def _randomize(section: Section, units: Units) -> Randomize | None:
    """What of the robot and of obstacles is drawn for each row."""
    if "randomize" not in section:
        return None
    given, factors = (
        section.section("randomize"),
        {"link_lengths": 1.0, "joint_limits": 1.0, "base_rotation": units.angle},
    )
    factors |= dict.fromkeys(("tool_offset", "base_position", "obstacles"), units.length)
    given.allow(*factors)
    numbers = {}
    for name in given.values:
        value = given.get(name)
        shape = (len(value),) if isinstance(value, list) else ()
        read = read_numbers(value, shape, given.at(name)) * factors[name]
        numbers[name] = read.tolist()
    with given.place.blamed():
        return Randomize(**numbers)


def _sampled(root: Section) -> dict[str, int]:
    """Tasks whose targets are drawn, and how many the configuration draws of each."""
    found, tasks = {}, root.section("tasks")
    for name in tasks.values:
        target = tasks.section(name).get("target", None)
        several = isinstance(target, list) and bool(target) and not isinstance(target[0], int | float)
        if several or (isinstance(target, Mapping) and "file" in target):
            (tasks.at(name) / "target").fail("are several: rows of a dataset draw theirs, {sample: N}, or share one")
        if isinstance(target, Mapping) and "sample" in target:
            count = target["sample"]
            found[name] = count if isinstance(count, int) else 0
    if not found:
        root.at("tasks").fail("draw nothing: a dataset needs a task with target: {sample: N}")
    return found


def _model(root: Section, folder: Path) -> str | None:
    """Name or path of the model, where the robot is that of a model as it is."""
    source = root.get("robot")
    if not isinstance(source, str):
        return None
    if source in bundled_robots() or not (folder / source).exists():
        return source
    return str((folder / Path(source).expanduser()).resolve())
