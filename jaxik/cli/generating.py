"""`jaxik generate`: read a configuration as a plan, and make its dataset."""

import argparse
import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from jaxik.batching.devices import enable_compilation_cache, use_all_cores
from jaxik.cli.job import check_keys, read_dtype
from jaxik.cli.plans import KEYS, read_plan
from jaxik.cli.yaml_file import read_yaml
from jaxik.core.errors import JaxikError
from jaxik.datasets.dataset import Dataset
from jaxik.datasets.generate import generate

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
    check_keys(file.root, KEYS)
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
