"""`jaxik generate`: read a configuration as a plan, and make its dataset."""

import argparse
import contextlib
import dataclasses
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from jaxik.batching.devices import enable_compilation_cache, use_all_cores
from jaxik.cli.job import KEYS as SOLVED_KEYS
from jaxik.cli.job import read_dtype, read_job
from jaxik.cli.section import Section, read_numbers
from jaxik.cli.yaml_file import YamlFile, read_yaml
from jaxik.core.errors import JaxikError
from jaxik.datasets.dataset import Dataset
from jaxik.datasets.generate import generate
from jaxik.datasets.grid import Grid
from jaxik.datasets.plan import KEEPS, SPREADS, Plan
from jaxik.robot.loading.catalog import bundled_robots
from jaxik.solvers.options import SearchOptions

KEYS = (*(key for key in SOLVED_KEYS if key != "output"), "dataset")
INTERRUPTED = 130
# Between two lines of --json [s].
PERIOD = 2.0


def run_generate(arguments: argparse.Namespace) -> int:
    """Make a dataset; the exit code is 0 whatever converged."""
    # A process that uses JAX already keeps its own settings.
    with contextlib.suppress(JaxikError):
        use_all_cores()
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        enable_compilation_cache()
    part = read_part(arguments.part)
    file = read_yaml(arguments.config)
    file.root.allow(*KEYS)
    with jax.enable_x64(read_dtype(file.root, arguments.dtype) == "float64"):
        plan = read_plan(file, count=arguments.count, seed=arguments.seed)
        started = time.perf_counter()
        total = sum(last - first for first, last in map(plan.rows_of, range(part[0] - 1, plan.shards, part[1])))
        try:
            with _progress(total, arguments) as advance:
                given = {"part": part, "resume": arguments.resume, "strict": arguments.strict}
                given |= {"engine": arguments.engine, "address": arguments.address, "workers": arguments.workers}
                dataset = generate(plan, arguments.output, batch_size=arguments.batch_size, **given, advance=advance)
        except KeyboardInterrupt:
            print(f"jaxik: interrupted; go on with: {_again()}", file=sys.stderr)
            return INTERRUPTED
    seconds = time.perf_counter() - started
    if arguments.json:
        print(json.dumps(_facts(dataset, seconds)))
    elif not arguments.quiet:
        print(f"{dataset}\n{arguments.output}, in {seconds:.1f} s; look into it with: jaxik dataset info, or verify")
    return 0


def read_plan(file: YamlFile, *, count: int | None, seed: int | None) -> Plan:
    """Read a plan; arguments that are not None replace values of the configuration.

    Raises:
      ConfigError: names the place of the mistake, and what is allowed.
    """
    root = file.root
    section = root.section("dataset") if "dataset" in root else Section({}, root.at("dataset"))
    section.allow("count", "shard", "spread", "keep", "solutions", "grid")
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
    given: dict[str, Any] = {"shard": section.integer("shard", least=1)} if "shard" in section else {}
    with section.place.blamed():
        return Plan(
            problem,
            _count(section, count, counts),
            seed=job.seed,
            sampled=tuple(sorted(sampled)),
            spread=section.choice("spread", SPREADS, "joints"),
            grid=_grid(section),
            keep=section.choice("keep", KEEPS, "all"),
            start=job.start,
            options=options,
            model=_model(root, file.path.parent),
            **given,
        )


def _count(section: Section, given: int | None, sampled: list[int]) -> int | None:
    """How many rows; None: as many as the grid has."""
    stated = section.integer("count", least=1) if "count" in section else None
    return given or stated or (None if "grid" in section else max(sampled, default=1))


def _grid(section: Section) -> Grid | None:
    if "grid" not in section:
        return None
    grid = section.section("grid")
    grid.allow("center", "size", "resolution", "directions")
    vectors = {key: read_numbers(grid.get(key), (3,), grid.at(key)) for key in ("center", "size")}
    with grid.place.blamed():
        return Grid(**vectors, resolution=grid.number("resolution"), directions=grid.integer("directions", 1, least=1))


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


def read_part(text: str) -> tuple[int, int]:
    """Read K/N, or "auto" and "auto/N", which take them from the variables of a Slurm array or a Kubernetes job.

    Raises:
      JaxikError: for anything else.
    """
    own, _, parts = text.partition("/")
    if own == "auto":
        own, parts = _part_of_environment(parts)
    if not (own.isdecimal() and parts.isdecimal() and 1 <= int(own) <= int(parts)):
        raise JaxikError(f"--part is K/N with K from 1 to N, or auto, or auto/N; not {text!r}")
    return int(own), int(parts)


def _part_of_environment(parts: str) -> tuple[str, str]:
    variables = os.environ
    if "SLURM_ARRAY_TASK_ID" in variables:
        first = int(variables.get("SLURM_ARRAY_TASK_MIN", "0"))
        return str(int(variables["SLURM_ARRAY_TASK_ID"]) - first + 1), parts or variables.get(
            "SLURM_ARRAY_TASK_COUNT", ""
        )
    if "JOB_COMPLETION_INDEX" in variables:
        if not parts:
            raise JaxikError(
                "--part auto: Kubernetes does not say how many pods there are: --part auto/N, N completions"
            )
        return str(int(variables["JOB_COMPLETION_INDEX"]) + 1), parts
    raise JaxikError("--part auto: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set; say --part K/N")


def _again() -> str:
    """The command that goes on."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    return shlex.join(["jaxik", *words, "--resume"])


@contextlib.contextmanager
def _progress(total: int, arguments: argparse.Namespace) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate, share solved and time left on a terminal; with --json a line now and then."""
    console = Console(stderr=True)
    left = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    right = (TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[solved]}"), TimeRemainingColumn())
    shown = console.is_terminal and not (arguments.quiet or arguments.json)
    done = converged = 0
    started = said = time.perf_counter()
    with Progress(*left, *right, console=console, transient=True, disable=not shown) as progress:
        bar = progress.add_task("rows", total=total, rate="compiling", solved="")

        def advance(rows: int, good: int) -> None:
            nonlocal done, converged, said
            done, converged, now = done + rows, converged + good, time.perf_counter()
            rate = done / (now - started)
            progress.update(bar, advance=rows, rate=f"{rate:,.0f}/s", solved=f"{100 * converged / done:.2f} % solved")
            if arguments.json and now - said > PERIOD:
                said = now
                print(
                    json.dumps({"rows": done, "of": total, "converged": converged, "per_second": round(rate)}),
                    flush=True,
                )

        yield advance


def _facts(dataset: Dataset, seconds: float) -> dict[str, Any]:
    return {
        "output": str(dataset.path),
        "rows": len(dataset),
        "complete": dataset.complete,
        "missing_shards": len(dataset.missing),
        "status": dataset.status_counts,
        "digest": dataset.digest,
        "seconds": round(seconds, 3),
    }
