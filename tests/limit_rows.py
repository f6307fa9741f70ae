"""Robots of the tests of limits, and what a limit asks for as rows `G dq <= h`, as mink and pink have them."""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import own_tasks

import jaxik
from jaxik.limits.base import Limit
from jaxik.robot.loading.load import build_robot
from jaxik.robot.loading.sources import read_source
from jaxik.robot.robot import Robot

UNOPTIMISED = {"xla_backend_optimization_level": 0}
BUNDLED = Path(jaxik.__file__).parent / "robot" / "bundled"
DT = 0.02


@cache
def mixed() -> Robot:
    """Free, ball, slide and hinge joints; "loose" is a ball without limits, "endless" a hinge, "lone" a slide."""
    return jaxik.load_robot(own_tasks.MIXED)


@cache
def planar() -> Robot:
    """Hinges "first", 0.3 rad either way, and "second", 2.5 rad."""
    return jaxik.load_robot(own_tasks.PLANAR)


def frames_of(limits: Sequence[Limit]) -> tuple[Any, ...]:
    return tuple(frame for limit in limits for frame in limit.frames)


@cache
def jaxik_robot(source: str) -> Robot:
    return build_robot(read_source(source))


def finite_rows(robot: Robot, limits: Sequence[Limit], qs: np.ndarray, previous: np.ndarray | None = None) -> Any:
    """For each limit and each configuration `G dq <= h`: finite upper bounds, finite lower bounds, finite rows."""

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    @jax.vmap
    def all_of(q: jax.Array, previous: jax.Array) -> Any:
        kin, motion = robot.kinematics(q), jaxik.Motion(DT, previous)
        return [(limit.bounds(robot, kin, motion), limit.inequalities(robot, kin, motion)) for limit in limits]

    previous = np.zeros((len(qs), robot.nv)) if previous is None else previous
    stacked = jax.device_get(all_of(qs, previous))
    return [[_as_rows(*(jax.tree.map(lambda x, i=i: x[i], part))) for i in range(len(qs))] for part in stacked]


def _as_rows(bounds: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    matrices, most = [], []
    if bounds is not None:
        for sign, bound in ((1, bounds[1]), (-1, -bounds[0])):
            finite = np.isfinite(bound)
            matrices.append(sign * np.eye(len(bound))[finite])
            most.append(bound[finite])
    if rows is not None:
        finite = np.isfinite(rows[1])
        matrices.append(rows[0][finite])
        most.append(rows[1][finite])
    return np.concatenate(matrices), np.concatenate(most)


def by_row(matrix: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Rows with their right-hand side, in an order of their own: libraries number joints differently."""
    table = np.column_stack([matrix, most]) + 0.0
    return table[np.lexsort(np.round(table, 7).T)]


def agree(ours: Any, theirs: Any) -> None:
    assert len(ours[1]) == len(theirs[1])
    np.testing.assert_allclose(by_row(*ours), by_row(*theirs), rtol=0, atol=1e-9)
