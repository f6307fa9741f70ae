"""What became of a batch, in numbers and as a page."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxik.cli.batches import Outcome
from jaxik.cli.elastic import yielded_facts, yielded_table
from jaxik.cli.job import Job, target_count
from jaxik.cli.measures import MEASURES, error_parts, named
from jaxik.core.status import Status
from jaxik.limits.distance import DistanceLimit
from jaxik.limits.elastic import Elastic
from jaxik.limits.position import PositionLimit
from jaxik.problem.problem import inside
from jaxik.tasks.base import Task

SHARES = {"median": 0.5, "90 %": 0.9, "99 %": 0.99, "max": 1.0}
SHOWN_UNITS = {"m": ("mm", 1e3), "rad": ("deg", 180 / math.pi)}
HELD_WHERE_IT_CAN = "held where it can be"
MEANINGS = {
    Status.CONVERGED: "every tolerance is met",
    Status.STALLED: "stuck within the joint limits: try another start",
    Status.DIVERGED: "the steps grew without bound",
    Status.TIMEOUT: "the steps were used up: raise max_steps",
    Status.INFEASIBLE: "constraints contradict each other or the limits",
    Status.COLLIDES: "shapes are nearer than the margin: move the target or the obstacle",
    Status.NONFINITE: "the target or the start is NaN or infinite",
}


@dataclasses.dataclass(frozen=True)
class Errors:
    """The errors of one part of one task over all elements, in SI units.

    Attributes:
      shares: for each of SHARES, the error below which that share of the elements is; infinite where one is not finite.
      unit: of the part, "" where it has none.
      tolerance: of the part; None where it has none.
      within: share of the elements that meet it.
    """

    task: str
    part: str
    unit: str
    shares: dict[str, float]
    tolerance: float | None
    within: float | None


def errors(job: Job, outcome: Outcome) -> list[Errors]:
    """The errors of every part of every task and constraint, as tolerances judge them: norms over weighted rows."""
    found = []
    for name, task in sorted(job.reported.items()):
        for error in error_parts(task, outcome.solution.residuals[name]):
            norm = np.linalg.norm(error.rows[:, error.counts].astype(float), axis=1)
            ordered = np.sort(np.where(np.isfinite(norm), norm, np.inf))
            shares = {share: float(ordered[math.ceil(p * len(ordered)) - 1]) for share, p in SHARES.items()}
            within = None if error.tolerance is None else float(np.mean(ordered <= error.tolerance))
            found.append(Errors(name, error.part, error.unit, shares, error.tolerance, within))
    return found


def as_json(job: Job, outcome: Outcome, load_seconds: float, output: str | None) -> dict[str, Any]:
    """The summary in SI units; an error that is not finite is null."""
    status, iterations, starts = (getattr(outcome.solution, name) for name in ("status", "iterations", "num_starts"))
    count = len(status)
    by_task: dict[str, Any] = {name: {} for name in sorted(job.reported)}
    for error in errors(job, outcome):
        by_task[error.task][error.part] = {
            "unit": error.unit or None,
            **{key.replace(" %", "_percent"): x if math.isfinite(x) else None for key, x in error.shares.items()},
            # 1e-4 was rounded to float32.
            "tolerance": None if error.tolerance is None else float(f"{error.tolerance:.7g}"),
            "within_tolerance": error.within,
        }
    return {
        "robot": job.robot.name,
        "degrees_of_freedom": job.robot.nv,
        "dtype": str(outcome.solution.q.dtype),
        "device": jax.default_backend(),
        "elements": count,
        "elements_asked": job.count,
        "success_rate": float(np.mean(status == Status.CONVERGED)),
        "status": {kind.name: int(np.sum(status == kind)) for kind in Status},
        "errors": by_task,
        "yielded": yielded_facts(outcome.solution.yielded),
        "iterations": {"mean": float(iterations.mean()), "max": int(iterations.max())},
        "num_starts": {"mean": float(starts.mean()), "max": int(starts.max())},
        "seconds": {"load": load_seconds, "compile": outcome.compile_seconds, "run": outcome.run_seconds},
        "elements_per_second": count / outcome.run_seconds,
        "output": output,
    }


def show(console: Console, job: Job, outcome: Outcome, load_seconds: float, output: str | None) -> None:
    """Print the summary for a person."""
    facts = as_json(job, outcome, load_seconds, output)
    title = Text(f"{job.robot.name}", "bold").append(
        f"  {job.robot.nv} degrees of freedom, {facts['dtype']} on {facts['device']}", "not bold dim"
    )
    solved, count = facts["status"]["CONVERGED"], facts["elements"]
    style = "green" if solved == count else "yellow" if solved else "red"
    result = Text(f"{solved:,} of {count:,} solved ({_percent(solved, count)})", f"bold {style}")
    if count < job.count:
        result.append(f", {job.count - count:,} left out by the interruption", "bold red")
    seconds = facts["seconds"]
    times = (
        f"load {_seconds(seconds['load'])}, compile {_seconds(seconds['compile'])}, run {_seconds(seconds['run'])}"
        f" ({_two_digits(facts['elements_per_second'])} elements/s)"
    )
    page = Table.grid(padding=(0, 2))
    page.add_column(style="dim")
    page.add_column()
    found = errors(job, outcome)
    for name, task in sorted(job.tasks.items()):
        page.add_row(Text(name), Text(task_line(task, [error for error in found if error.task == name])))
    for name, task in sorted((job.constraints or {}).items()):
        held = HELD_WHERE_IT_CAN if isinstance(task, Elastic) else "held before all tasks"
        page.add_row(Text(name), Text(f"{_wants(inside(task))}: {held}"))
    for given in job.limits or ():
        limit, may_yield = inside(given), f": {HELD_WHERE_IT_CAN}" if isinstance(given, Elastic) else ""
        if isinstance(limit, PositionLimit):
            page.add_row(Text("half space"), Text(_half_space(limit) + may_yield))
        if isinstance(limit, DistanceLimit):
            ends = f"{named(limit.first)} and {named(limit.second)}"
            apart = f"{ends} no nearer than {_small(float(limit.distance) * 1e3)} mm"
            page.add_row(Text("distance"), Text(apart + may_yield))
    console.print(title, Padding(page, (0, 0, 1, 1), expand=False), result, sep="\n")
    console.print(Padding(_status_table(facts), (0, 0, 1, 1), expand=False))
    console.print(Text("errors, over all elements", "bold"))
    console.print(Padding(_error_table(found), (0, 0, 1, 1), expand=False))
    if facts["yielded"]:
        console.print(Padding(yielded_table(facts["yielded"]), (0, 0, 1, 1), expand=False))
    end = Table.grid(padding=(0, 2))
    end.add_column(style="bold")
    end.add_column()
    steps = facts["iterations"]
    end.add_row("steps", f"mean {steps['mean']:.1f}, most {steps['max']}")
    if facts["num_starts"]["max"] > 1:
        end.add_row("num_starts", f"mean {facts['num_starts']['mean']:.1f}, most {facts['num_starts']['max']}")
    end.add_row("time", times)
    if output:
        end.add_row("output", Text(output))
    console.print(end)


def task_line(task: Task, found: list[Errors]) -> str:
    """What a task wants, in a line, given its errors."""
    masked = ", some directions only" if _leaves_rows_out(task) else ""
    parts = " and ".join(error.part for error in found)
    allowed = [" ".join(_shown(error.tolerance, error.unit)).strip() for error in found if error.tolerance is not None]
    within = f"within {' and '.join(allowed)}" if allowed else "as near as may be"
    level = f", at priority {task.priority}" if task.priority else ""
    return f"{_wants(task)}: {parts}{masked}, {within}{level}"


def _wants(task: Task) -> str:
    count = target_count(task)
    return MEASURES[type(task)].describe(task, "a target" if count == 1 else f"{count:,} targets")


def _half_space(limit: PositionLimit) -> str:
    normal, offset = np.asarray(limit.normal), float(limit.offset)
    along = " ".join(f"{x:.3g}" for x in normal / np.linalg.norm(normal))
    return f"{named(limit.frame)} no further than {_small(offset * 1e3)} mm along {along}"


def _leaves_rows_out(task: Task) -> bool:
    mask = getattr(task, "mask", None)
    return mask is not None and bool((np.asarray(mask) == 0).any())


def _shown(value: float, unit: str) -> tuple[str, str]:
    """A tolerance and its unit as a person reads them."""
    unit, factor = SHOWN_UNITS.get(unit, (unit, 1.0))
    return f"{value * factor:.3g}", unit


def _status_table(facts: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify)  # type: ignore[arg-type]
    for kind in Status:
        count = facts["status"][kind.name]
        if count or kind is Status.CONVERGED:
            style = "green" if kind is Status.CONVERGED else "yellow"
            share = _percent(count, facts["elements"])
            table.add_row(Text(kind.name, style), f"{count:,}", share, Text(MEANINGS[kind], "dim"))
    return table


def _error_table(found: list[Errors]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("task")
    table.add_column("part")
    for share in (*SHARES, "allowed", "within"):
        table.add_column(share, justify="right", no_wrap=True)
    named = set()
    for error in found:
        unit, factor = SHOWN_UNITS.get(error.unit, (error.unit, 1.0))
        numbers = [_small(x * factor) for x in error.shares.values()]
        numbers.append("any" if error.tolerance is None else _shown(error.tolerance, error.unit)[0])
        within = "" if error.within is None else f"{100 * math.floor(error.within * 1000) / 1000:.1f} %"
        table.add_row(
            Text("" if error.task in named else error.task),
            Text(f"{error.part} [{unit}]" if unit else error.part),
            *(Text(x) for x in numbers),
            within,
        )
        named.add(error.task)
    return table


def _percent(part: int, whole: int) -> str:
    """Rounded down, so that 100 % is all of them, and never to nothing."""
    return "< 0.1 %" if 0 < 1000 * part < whole else f"{math.floor(1000 * part / whole) / 10:.1f} %"


def _small(x: float) -> str:
    """Three digits; below a thousandth there is nothing to tell."""
    if not math.isfinite(x):
        return "not finite"
    return "< 0.001" if x < 1e-3 else f"{x:.3f}" if x < 1 else f"{x:#.3g}".rstrip(".") if x < 1000 else f"{x:,.0f}"


def _seconds(x: float) -> str:
    return f"{x:.2f} s" if x < 10 else f"{x:.1f} s"


def _two_digits(x: float) -> str:
    """A rate to two digits, as it repeats."""
    digits = max(math.floor(math.log10(x)) - 1, 0) if x > 0 else 0
    return f"{round(x, -digits):,.0f}"
