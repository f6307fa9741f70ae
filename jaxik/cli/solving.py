"""`jaxik solve`: read, check, solve, write, summarise."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from jaxik.batching.devices import enable_compilation_cache, use_all_cores
from jaxik.cli import summary
from jaxik.cli.batches import solve_in_batches
from jaxik.cli.job import KEYS, check_keys, read_dtype, read_job, read_output
from jaxik.cli.output import check_plot, reserved, write_solution
from jaxik.cli.yaml_file import read_yaml
from jaxik.core.errors import JaxikError
from jaxik.results.plot import plot_trace

INTERRUPTED = 130
NARROWEST = 100  # columns where the width of the terminal is not known: no line of the summary wraps


def run_solve(arguments: argparse.Namespace) -> int:
    """Solve what a configuration asks for; the exit code is 0 whatever converged."""
    started = time.perf_counter()
    # A process that uses JAX already keeps its own settings.
    with contextlib.suppress(JaxikError):
        use_all_cores()
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        enable_compilation_cache()
    file = read_yaml(arguments.config)
    check_keys(file.root, KEYS)
    dtype, output = read_dtype(file.root, arguments.dtype), read_output(file, arguments.output)
    replaced = {
        "num_targets": arguments.num_targets,
        "seed": arguments.seed,
        "max_steps": arguments.max_steps,
        "dtype": dtype,
    }
    check_plot(arguments.trace, arguments.force)
    with jax.enable_x64(dtype == "float64"), reserved(output, arguments.force) as written:
        given = {"count": arguments.num_targets, "seed": arguments.seed, "max_steps": arguments.max_steps}
        job = read_job(file, **given, trace=arguments.trace is not None)
        load_seconds = time.perf_counter() - started
        with _progress(job.count, arguments.batch_size, arguments.quiet) as (compiled, advance):
            outcome = solve_in_batches(job, arguments.batch_size, compiled, advance)
        if written is not None:
            write_solution(written, job, outcome.solution, file.text, replaced)
    if arguments.trace is not None:
        plot_trace(outcome.solution, arguments.trace)
    place = str(output) if output else None
    if arguments.json:
        print(json.dumps(summary.as_json(job, outcome, load_seconds, place), indent=2))
    elif not arguments.quiet:
        console = Console(width=None if sys.stdout.isatty() else NARROWEST, highlight=False)
        summary.show(console, job, outcome, load_seconds, place)
    if outcome.interrupted:
        done = f"{len(outcome.solution.q)} of {job.count} elements were solved"
        kept = f"written to {place}" if place else "nothing was written"
        print(f"jaxik: interrupted: {done}; {kept}", file=sys.stderr)
        return INTERRUPTED
    return 0


@contextlib.contextmanager
def _progress(count: int, batch_size: int, quiet: bool) -> Iterator[tuple[Callable[[], None], Callable[[int], None]]]:
    """On a terminal: that it compiles, and then how far it is, where that takes more than one call."""
    console = Console(stderr=True)
    left = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
    right = (MofNCompleteColumn(), TimeRemainingColumn())
    shown = console.is_terminal and not quiet
    with Progress(*left, *right, console=console, transient=True, disable=not shown) as progress:
        bar = progress.add_task("compiling", total=None)
        yield (
            lambda: progress.reset(bar, total=count, description="solving"),
            lambda solved: progress.advance(bar, solved),
        )
