"""Read a whole configuration into a `Job`: the problem, starts and options to solve."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxik.cli.fields import Source
from jaxik.cli.poses import read_units
from jaxik.cli.restrictions import read_constraints, read_fixed_joints, read_limits
from jaxik.cli.robot import read_robot
from jaxik.cli.section import Section
from jaxik.cli.start import read_start
from jaxik.cli.tasks import read_tasks
from jaxik.cli.world import read_world
from jaxik.cli.yaml_file import YamlFile
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import core_ranks
from jaxik.limits.base import Limit
from jaxik.limits.elastic import Elastic
from jaxik.problem.problem import Problem, targeted
from jaxik.robot.robot import Robot
from jaxik.solvers.options import PREFERENCES, SearchOptions, SolveOptions
from jaxik.tasks.base import Task

KEYS = (
    "robot",
    "tasks",
    "limits",
    "world",
    "geometry",
    "constraints",
    "fixed_joints",
    "start",
    "options",
    "search",
    "units",
    "seed",
    "dtype",
    "output",
)
DTYPES = ("float32", "float64")
# Sections of one command alone; a configuration of motions as rows has the first two, and is for the first.
COMMANDS = {"dataset": "generate", "track": "track", "search": "solve"}


@dataclasses.dataclass(frozen=True)
class Job:
    """The problem, starts and options of n elements.

    Attributes:
      robot, limits: as in `Problem`.
      tasks, constraints: as in `Problem`, with one target each, or with n.
      moves: (nv,) of bool, False where a degree of freedom is fixed; None: all move.
      start: (nq,), or (n, nq); None: a search begins as it does by default.
      options: of `solve`, or of `search`, which tries other starts as well.
      seed: of the starts of a search.
      count: the number of elements, n.
    """

    robot: Robot
    tasks: dict[str, Task]
    limits: tuple[Limit | Elastic, ...] | None
    constraints: dict[str, Task | Elastic] | None
    moves: np.ndarray | None
    start: np.ndarray | None
    options: SolveOptions | SearchOptions
    seed: int
    count: int

    @property
    def reported(self) -> dict[str, Task]:
        """The tasks and constraints by the names under which a solution has their residuals."""
        return self.tasks | targeted(self.constraints or {})

    def part(
        self, rows: np.ndarray
    ) -> tuple[Problem, np.ndarray | None, SolveOptions | SearchOptions, jax.Array | None]:
        """Select elements by index: their problem, starts, options and keys, for one call on the device."""
        dtype = self.robot.q_home.dtype

        def pick(x: Any, rank: int) -> np.ndarray:
            selected = np.asarray(x)[rows] if np.ndim(x) > rank else np.asarray(x)
            return selected.astype(dtype) if np.issubdtype(selected.dtype, np.floating) else selected

        tasks, constraints = jax.tree.map(pick, both := (self.tasks, self.constraints), core_ranks(both))
        start = None
        if self.start is not None:
            start = np.broadcast_to(self.start, (self.count, self.robot.nq))[rows].astype(dtype)
        problem = Problem(self.robot, tasks, self.limits, constraints, self.moves)
        keys = None
        if isinstance(self.options, SearchOptions):
            keys = jax.vmap(lambda row: jax.random.fold_in(jax.random.key(self.seed), row))(rows)
        return problem, start, self.options, keys


def check_keys(root: Section, keys: tuple[str, ...]) -> None:
    """Refuse keys that are not those of a command; name the command that a section is for.

    Raises:
      ConfigError: for the first such key.
    """
    for section, command in COMMANDS.items():
        both = section == "search" and "track" in root  # neither command takes it as it is
        if section in root and section not in keys and not both:
            root.place.fail(f"has the section {section}: jaxik {command} CONFIG")
    root.allow(*keys)


def read_dtype(root: Section, given: str | None) -> str:
    """Read the precision: of the command line, else of the key `dtype`, else float32."""
    stated = root.choice("dtype", DTYPES, "float32")
    return given or stated


def read_output(file: YamlFile, given: Path | None) -> Path | None:
    """Read the output path: of the command line, else of the key `output`, relative to the configuration."""
    stated = file.root.text("output", None)
    return given or (file.path.parent / Path(stated).expanduser() if stated else None)


def read_job(
    file: YamlFile,
    *,
    count: int | None,
    seed: int | None,
    max_steps: int | None,
    trace: bool = False,
    meshes: bool = False,
) -> Job:
    """Read a job; arguments that are not None replace values of the configuration, `meshes` are of `load_robot`.

    Raises:
      ConfigError: names the place of the mistake, and what is allowed.
    """
    root, folder = file.root, file.path.parent
    units = read_units(root)
    stated = root.integer("seed", 0)
    options = (
        _search_options(root, max_steps, trace)
        if root.get("search", False) is not False
        else _options(root, max_steps, trace)
    )
    wanted = root.section("tasks")
    robot = read_robot(root, folder, units, meshes)
    world = read_world(root, units, folder)
    source = Source(robot, folder, units, stated if seed is None else seed, count, world)
    tasks, constraints = read_tasks(wanted, source), read_constraints(root, wanted, source)
    length = _length(root, tasks, constraints or {}, count)
    return Job(
        robot,
        tasks,
        limits=read_limits(root, source),
        constraints=constraints,
        moves=read_fixed_joints(root, source),
        start=read_start(root, robot, units, source.seed, length, searches=isinstance(options, SearchOptions)),
        options=options,
        seed=source.seed,
        count=length,
    )


def _options(root: Section, max_steps: int | None, trace: bool) -> SolveOptions:
    given: dict[str, Any] = {}
    if "options" in root:
        section = root.section("options")
        section.allow("max_steps", "initial_damping", "step_tolerance")
        if "max_steps" in section:
            given["max_steps"] = section.integer("max_steps", least=1)
        given |= {key: section.number(key) for key in ("initial_damping", "step_tolerance") if key in section}
    if max_steps is not None:
        given["max_steps"] = max_steps
    return SolveOptions(**given, record_trace=trace and given.get("max_steps", True))


def _search_options(root: Section, max_steps: int | None, trace: bool) -> SearchOptions:
    if trace:
        root.at("search").fail("records no steps for --trace: leave it out, and start from one of its solutions")
    given: dict[str, Any] = {}
    if root.get("search") is not True:
        section = root.section("search")
        section.allow("max_starts", "max_steps_per_start", "num_candidates", "rank_by", "unlimited_range")
        counts = ("max_starts", "max_steps_per_start", "num_candidates")
        given = {key: section.integer(key, least=1) for key in counts if key in section}
        given |= {"unlimited_range": section.number("unlimited_range")} if "unlimited_range" in section else {}
        given |= {"rank_by": section.choice("rank_by", PREFERENCES)} if "rank_by" in section else {}
    finish = (
        SearchOptions().solve_options
        if "options" not in root and max_steps is None
        else _options(root, max_steps, False)
    )
    return SearchOptions(**given, solve_options=finish)


def target_count(task: Task | Elastic) -> int:
    ranked = zip(jax.tree.leaves(task), jax.tree.leaves(core_ranks(task)), strict=True)
    return max(len(x) if np.ndim(x) > rank else 1 for x, rank in ranked)


def _length(root: Section, tasks: dict[str, Task], constraints: dict[str, Task | Elastic], count: int | None) -> int:
    """Count the targets: tasks and constraints have as many each, or a single one that all elements share."""
    held = {f"constraints.{name}": task for name, task in constraints.items()}
    lengths = {name: target_count(task) for name, task in (tasks | held).items()}
    length = max(lengths.values())
    if any(n not in (1, length) for n in lengths.values()):
        given = ", ".join(f"{name} {n}" for name, n in lengths.items())
        root.at("tasks").fail(f"have different numbers of targets: {given}; give as many to each, or a single one")
    if count is not None and length != count:
        raise JaxikError(f"--num-targets {count}: the configuration has {length}")
    return length
