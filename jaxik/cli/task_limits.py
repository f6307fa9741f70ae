"""Read limits of tasks: what their residuals may be."""

from typing import Any

import numpy as np

from jaxik.cli import fields
from jaxik.cli.elastic import KEY, elastic
from jaxik.cli.fields import Source
from jaxik.cli.section import Place, Section, read_numbers
from jaxik.cli.tasks import read_task
from jaxik.limits.elastic import Elastic
from jaxik.limits.task_limit import TaskLimit
from jaxik.tasks.base import Task

FORM = "{task: {type: TYPE, ...}, upper: BOUNDS}, and lower, largest"
BOUNDS = ("lower", "upper", "largest")


def read_task_limit(section: Section, number: int, source: Source) -> TaskLimit | Elastic:
    """Read one: `lower` and `upper` of rows, `largest` of their norm, by the names of parts where there are several."""
    section.allow("task", *BOUNDS, *fields.SHARE, KEY)
    task = read_task(section.section("task"), source)
    given = {key: _parts(section.get(key), key, task, section.at(key), source) for key in BOUNDS if key in section}
    with section.place.blamed():
        limit = TaskLimit(task, **given, **fields.share(section))
        limit.check(source.robot)
    return elastic(section, KEY, limit, name=f"task_{number}") if KEY in section else limit


def _parts(value: Any, key: str, task: Task, place: Place, source: Source) -> Any:
    if isinstance(value, dict):
        return {name: _bound(x, key, _factor(name, task, source), place / name) for name, x in value.items()}
    return _bound(value, key, _factor("", task, source), place)


def _bound(value: Any, key: str, factor: float, place: Place) -> np.ndarray:
    """A number, or one for each row; null for none."""
    none = -np.inf if key == "lower" else np.inf
    given = [none if x is None else x for x in value] if isinstance(value, list) else value
    return factor * read_numbers(given, (len(given),) if isinstance(given, list) else (), place)


def _factor(part: str, task: Task, source: Source) -> float:
    unit = {"position": "m", "orientation": "rad"}.get(part, task.unit)
    return source.units.length if unit == "m" else source.units.angle if unit == "rad" else 1.0
