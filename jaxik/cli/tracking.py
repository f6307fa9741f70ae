"""`jaxik track`: read, check, follow, write, summarise."""

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxik.batching.devices import enable_compilation_cache
from jaxik.cli.elastic import yielded_facts, yielded_table
from jaxik.cli.fields import Source
from jaxik.cli.job import KEYS as SOLVED_KEYS
from jaxik.cli.job import check_keys, read_dtype, read_output, target_count
from jaxik.cli.output import check_new, check_plot, reserved
from jaxik.cli.paths import read_paths
from jaxik.cli.poses import read_units
from jaxik.cli.restrictions import read_constraints, read_fixed_joints, read_limits
from jaxik.cli.robot import read_robot
from jaxik.cli.section import Section
from jaxik.cli.start import read_start
from jaxik.cli.tasks import read_tasks
from jaxik.cli.world import read_world
from jaxik.cli.yaml_file import YamlFile, read_yaml
from jaxik.core.status import Status
from jaxik.limits.elastic import Elastic
from jaxik.problem.problem import Problem
from jaxik.results import text, track_files
from jaxik.results.plot_track import plot_track
from jaxik.results.track import Track, stops_of
from jaxik.solvers.options import SearchOptions
from jaxik.solvers.planning.options import PlanningOptions
from jaxik.solvers.planning.plan_motion import plan_motion
from jaxik.solvers.search.search import search
from jaxik.solvers.tracking.options import TrackOptions, WholePathOptions
from jaxik.solvers.tracking.track import track
from jaxik.tasks.base import Task

KEYS = (*(key for key in SOLVED_KEYS if key not in ("search", "options")), "track")
OPTIONS: dict[str, Any] = {"online": TrackOptions, "whole": WholePathOptions, "planned": PlanningOptions}
NUMBERS = {"online": ("damping", "feed_forward"), "whole": ("longest_step",), "planned": ("reach",)}
NARROWEST = 100  # columns where the width of the terminal is not known


@dataclasses.dataclass(frozen=True)
class TrackJob:
    """What `track` is called with; in the mode "planned", `search` and `plan_motion`."""

    problem: Problem
    start: np.ndarray | None
    dt: float
    targets: dict[str, Any]
    num_steps: int
    options: TrackOptions | WholePathOptions | PlanningOptions
    mode: str
    seed: int


def run_track(arguments: argparse.Namespace) -> int:
    """Follow the paths of a configuration; the exit code is 0 however near it came."""
    started = time.perf_counter()
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        enable_compilation_cache()
    file = read_yaml(arguments.config)
    check_keys(file.root, KEYS)
    dtype, output = read_dtype(file.root, arguments.dtype), read_output(file, arguments.output)
    check_plot(arguments.plot, arguments.force)
    if arguments.csv is not None:
        check_new(f"csv {arguments.csv}", arguments.csv, arguments.force)
    with jax.enable_x64(dtype == "float64"), reserved(output, arguments.force) as written:
        job = read_track_job(file)
        loaded = time.perf_counter()
        found = jax.device_get(follow(job))
        seconds = {"load": loaded - started, "run": time.perf_counter() - loaded}
        if written is not None:
            track_files.write_track(written, found)
        if arguments.csv is not None:
            found.to_csv(arguments.csv)
        if arguments.plot is not None:
            plot_track(found, job.problem.robot, arguments.plot)
        facts = as_json(found, seconds, str(output) if output else None)
    if arguments.json:
        print(json.dumps(facts, indent=2))
    elif not arguments.quiet:
        show(Console(width=None if sys.stdout.isatty() else NARROWEST, highlight=False), facts)
    return 0


def follow(job: TrackJob) -> Track:
    """The motion that a job asks for.

    Raises:
      JaxikError: where nothing is found to which a motion is to be planned.
    """
    if isinstance(job.options, PlanningOptions):
        searching, planning = jax.random.split(jax.random.key(job.seed))
        search_options = SearchOptions(rank_by="reference", reference=job.start)
        goal = search(job.problem, searching, options=search_options).check()
        given = {"dt": job.dt, "num_steps": job.num_steps, "options": job.options}
        return plan_motion(job.problem, job.start, goal.q, planning, **given)
    return track(
        job.problem, job.start, job.dt, job.targets, mode=job.mode, num_steps=job.num_steps, options=job.options
    )


def read_track_job(file: YamlFile, meshes: bool = False) -> TrackJob:
    """Read what a configuration asks to follow.

    Raises:
      ConfigError: names the place of the mistake, and what is allowed.
    """
    root, folder = file.root, file.path.parent
    units, written = read_units(root), root.section("tasks")
    robot = read_robot(root, folder, units, meshes=meshes)
    source = Source(robot, folder, units, root.integer("seed", 0), None, read_world(root, units, folder))
    tasks, constraints = (
        read_tasks(written, source, of_motion=True),
        read_constraints(root, written, source, of_motion=True),
    )
    for name, task in (tasks | (constraints or {})).items():
        if target_count(task) > 1:
            (root.at("tasks") / name).fail("has several targets: a robot follows one; paths says how it moves")
    limits = read_limits(root, source, of_motion=True)
    section = root.section("track")
    mode = section.choice("mode", (*OPTIONS,)) if "mode" in section else "online"
    whole, planned = mode == "whole", mode == "planned"
    keys, counts = NUMBERS[mode], ("max_attempts", "max_looks", "shortcuts") if planned else ()
    more = {"online": ("paths", "continuous"), "whole": ("paths",), "planned": ()}[mode]
    section.allow("mode", "dt", "duration", *more, *keys, *counts)
    dt, num_steps = read_steps(section)
    times = dt * np.arange(1, num_steps + 1)
    paths = section.section("paths") if "paths" in section else Section({}, section.at("paths"))
    numbers: dict[str, Any] = {key: section.number(key) for key in keys if key in section}
    numbers |= {key: section.integer(key) for key in counts if key in section}
    numbers |= {"continuous": section.get("continuous")} if "continuous" in section else {}
    with section.place.blamed():
        options = OPTIONS[mode](**numbers)
    free = whole and "start" not in root
    start = None if free else read_start(root, robot, units, source.seed, 1, searches=False)
    return TrackJob(
        Problem(robot, tasks, limits, constraints, read_fixed_joints(root, source)),
        None if start is None else np.asarray(start).reshape(-1, robot.nq)[0],
        dt,
        read_paths(paths, *_followed(tasks, constraints, root), times, source),
        num_steps,
        options,
        mode,
        source.seed,
    )


def _followed(
    tasks: dict[str, Task], constraints: dict[str, Any] | None, root: Section
) -> tuple[dict[str, Task], Section]:
    """Tasks, and constraints that may yield, by name, and how these are written."""
    yielding = {name: task.of for name, task in (constraints or {}).items() if isinstance(task, Elastic)}
    written = root.section("tasks")
    given = {name: root.section("constraints").get(name) for name in yielding}
    return tasks | yielding, Section(written.values | given, written.place)


def read_steps(section: Section) -> tuple[float, int]:
    """The duration of a step [s], and how many there are."""
    dt = section.number("dt") if "dt" in section else 0.01
    duration = section.number("duration")
    if not dt > 0:
        section.at("dt").fail("is the duration of a step, above 0 s")
    if (steps := round(duration / dt)) < 1:
        section.at("duration").fail(f"is {duration:g} s, less than one step of {dt:g} s")
    return dt, steps


def as_json(found: Track, seconds: dict[str, float], output: str | None) -> dict[str, Any]:
    """The summary in SI units; an error that is not finite is null."""
    status = np.asarray(found.status)
    errors = {}
    for part, norm, unit in text.residual_norms(found.residuals, found.residual_units, len(status)):
        shares = dict(zip(text.SHARES, text.quantiles(norm, text.SHARES.values()), strict=True)) | {"end": norm[-1]}
        numbers = {share.replace(" %", "_percent"): float(x) if np.isfinite(x) else None for share, x in shares.items()}
        errors[part] = {"unit": unit or None} | numbers
    return {
        "robot": found.topology.name,
        "dtype": str(found.q.dtype),
        "steps": len(status),
        "dt": float(f"{float(found.dt):.7g}"),
        "status": {kind.name: int(np.sum(status == kind)) for kind in Status},
        "yielded": yielded_facts(found.yielded),
        "jumps": np.flatnonzero(found.jumped).tolist(),
        "errors": errors,
        "stops": stops_of(found),
        "peak_speed": float(found.peak_speed),
        "peak_acceleration": float(found.peak_acceleration),
        "peak_jerk": float(found.peak_jerk),
        "seconds": seconds,
        "output": output,
    }


def show(console: Console, facts: dict[str, Any]) -> None:
    """Print the summary for a person."""
    title = Text(facts["robot"], "bold").append(
        f"  {facts['steps']:,} steps of {facts['dt']:g} s, {facts['dtype']}", "not bold dim"
    )
    ended = ", ".join(f"{count:,} {kind}" for kind, count in facts["status"].items() if count)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("error")
    for share in (*text.SHARES, "end"):
        table.add_column(share, justify="right")
    for part, error in facts["errors"].items():
        numbers = [error[share.replace(" %", "_percent")] for share in (*text.SHARES, "end")]
        name = f"{part} [{error['unit']}]" if error["unit"] else part
        table.add_row(Text(name), *("not finite" if x is None else f"{x:.3g}" for x in numbers))
    yielded = [Padding(yielded_table(facts["yielded"]), (0, 0, 1, 1), expand=False)] if facts["yielded"] else []
    end = Table.grid(padding=(0, 2))
    end.add_column(style="bold")
    end.add_column()
    end.add_row("steps", ended)
    if jumps := facts["jumps"]:
        end.add_row("jumps", f"{len(jumps)}, at step {', '.join(map(str, jumps[:8]))}{', ...' if jumps[8:] else ''}")
    peaks = ", ".join(f"{name} {facts[f'peak_{name}']:.3g}" for name in ("speed", "acceleration", "jerk"))
    end.add_row("peaks", f"{peaks}, of their limits (0: without)")
    if stops := facts["stops"]:
        end.add_row("stops", f"{stops} abrupt (NaN in a target, or limits that conflict or are passed)")
    end.add_row("time", f"load {facts['seconds']['load']:.2f} s, compile and run {facts['seconds']['run']:.2f} s")
    if facts["output"]:
        end.add_row("output", Text(facts["output"]))
    errors = [Padding(table, (1, 0, 1, 1), expand=False)] if facts["errors"] else []
    console.print(title, *errors, *yielded, end, sep="\n")
