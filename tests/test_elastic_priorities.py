"""What yields beside tasks of several priorities: lexicographic minima in SciPy, derivatives, searches."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import scipy.optimize
from derivatives import ahead_and_behind, along_random_motion, check_tangents, solved_along
from tables import exhaustive
from test_elastic_solve import arm, points, tip_of

from jaxik import (
    ConfigurationLimit,
    DerivativeStatus,
    Elastic,
    FrameTask,
    PositionLimit,
    PostureTask,
    Problem,
    Status,
)

pytestmark = exhaustive

LENGTHS, RANGE, REST = np.array([0.5, 0.4, 0.3, 0.25]), 3.0, 0.3
COUNT, STEP = 64, 1e-5
ARM = """<mujoco model="arm"><compiler angle="radian" autolimits="true"/><worldbody>
<body><joint name="first" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
  <body pos="0.5 0 0"><joint name="second" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
    <body pos="0.4 0 0"><joint name="third" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
      <site name="elbow" pos="0.3 0 0"/>
      <body pos="0.3 0 0"><joint name="fourth" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
        <site name="tip" pos="0.25 0 0"/>
</body></body></body></body></worldbody></mujoco>"""


class Given(NamedTuple):
    """Cases: a target (n, 3); a wall (n,), a bend of the last joint (n,) and margins (n,), with penalties (3, n).

    And a posture (n, 4) of a lower priority.
    """

    target: Any
    offset: Any
    bend: Any
    margin: Any
    penalty: Any
    posture: Any


@functools.cache
def cases() -> tuple[Given, np.ndarray]:
    """Targets within reach and out of it, some beside a wall and some with margins; and starts (n, 4)."""
    rng = np.random.default_rng(0)
    target = points(rng, 0, 1.7, COUNT)
    offset = np.where(np.arange(COUNT) % 2 == 0, 9.0, rng.uniform(-0.3, 0.3, COUNT))
    margin = np.where(np.arange(COUNT) % 3 == 0, 0.0, rng.uniform(0.3, 2.5, COUNT))
    penalty = 10.0 ** rng.uniform(-2.5, 0, (3, COUNT))
    postures = rng.uniform(-2, 2, (2, COUNT, 4))
    return Given(target, offset, rng.uniform(-2, 2, COUNT), margin, penalty, postures[0]), postures[1]


def problem_of(given: Given) -> Problem:
    tip, last = arm(ARM).frame("tip"), np.array([0.0, 0.0, 0.0, 1.0])
    aim = FrameTask(tip, jaxlie.SE3.from_translation(jnp.asarray(given.target)), 1.0, None, axes="world")
    wall = Elastic(PositionLimit(arm(ARM).frame("elbow"), [1.0, 0, 0], given.offset), given.penalty[0], name="wall")
    near = Elastic(ConfigurationLimit(margin=given.margin), given.penalty[2], name="near")
    bent = Elastic(PostureTask(given.bend[:, None] * last, cost=last), given.penalty[1])
    tasks = {"tip": aim, "rest": PostureTask(given.posture, cost=REST, priority=1)}
    return Problem(arm(ARM), tasks, (ConfigurationLimit(), wall, near), {"bent": bent})


@functools.cache
def program() -> Any:
    return solved_along(problem_of, max_steps=200)


@functools.cache
def solved() -> tuple[Any, Any, Given]:
    return along_random_motion(program(), *cases())


def rows_of(given: Given, i: int, q: np.ndarray) -> np.ndarray:
    """What may yield at a configuration (4,): rows (11,) that are to be zero at most."""
    elbow = tip_of(q[:3], LENGTHS[:3])[0]
    bend, inside = q[3] - given.bend[i], RANGE - given.margin[i]
    return np.concatenate([[elbow - given.offset[i], bend, -bend], q - inside, -inside - q])


def gains(given: Given, i: int, q: np.ndarray) -> tuple[float, float]:
    """By how much the tip with what yields, and then the posture, may be improved, by SLSQP from a configuration (4,).

    The first has a slack variable for each row; the second keeps the tip, and lets no row yield more.
    """
    weights = np.repeat(given.penalty[:, i], [1, 2, 8])
    slack = np.maximum(rows_of(given, i, q), 0)
    options: dict[str, Any] = {"method": "SLSQP", "options": {"ftol": 1e-14, "maxiter": 300}}

    def off(x: np.ndarray) -> np.ndarray:
        return tip_of(x[:4], LENGTHS) - given.target[i, :2]

    def first(x: np.ndarray) -> float:
        return 0.5 * off(x) @ off(x) + weights @ x[4:]

    def second(x: np.ndarray) -> float:
        return 0.5 * REST**2 * np.sum((x - given.posture[i]) ** 2)

    start = np.concatenate([q, slack])
    held = {"type": "ineq", "fun": lambda x: x[4:] - rows_of(given, i, x[:4])}
    better = scipy.optimize.minimize(
        first, start, bounds=[(-RANGE, RANGE)] * 4 + [(0, None)] * 11, constraints=[held], **options
    )
    kept = [
        {"type": "eq", "fun": lambda x: off(x) - off(q)},
        {"type": "ineq", "fun": lambda x: slack - rows_of(given, i, x)},
    ]
    nearer = scipy.optimize.minimize(second, q, bounds=[(-RANGE, RANGE)] * 4, constraints=kept, **options)
    # Another minimum, elsewhere, says nothing of this one.
    near = np.max(np.abs(nearer.x - q)) < 0.1
    return first(start) - better.fun, second(q) - nearer.fun if near else 0.0


def test_solutions_are_lexicographic_minima() -> None:
    """Neither priority can be improved: what yields counts with the first, and the second leaves it as it is."""
    given, _ = cases()
    _, found, _ = solved()
    # A tip that is not at its target, for what yields less, is STALLED.
    ends = np.isin(found.status, [Status.CONVERGED, Status.STALLED])
    assert np.mean(ends) > 0.95, found.status
    bent, wall, near = found.yielded["bent"][:, 3], found.yielded["wall"][:, 0], found.yielded["near"]
    for yielded in (bent != 0, wall > 0, np.any(near != 0, axis=1)):
        assert 4 < np.sum(yielded) < COUNT - 4, np.sum(yielded)
    for i in np.flatnonzero(ends):
        first, second = gains(given, int(i), found.q[i])
        assert first < 1e-8 and second < 1e-7, (i, first, second)


def test_derivatives_are_central_differences() -> None:
    given, _ = cases()
    tangent, found, motion = solved()

    ahead, behind = ahead_and_behind(program(), given, motion, found.q, STEP)
    exact = found.derivative_status == DerivativeStatus.EXACT
    # Another start may lead elsewhere.
    exact &= np.max(np.abs([ahead.q - found.q, behind.q - found.q]), axis=(0, 2)) < 1e-3
    # Differences divide what is left by 2e-5.
    exact &= np.max([x.stationarity for x in (found, ahead, behind)], axis=0) < 3e-11
    # Where it takes many steps from so near, the first priority is flat: its cost tells steps of 1e-8 apart no more.
    exact &= np.maximum(ahead.iterations, behind.iterations) < 50
    assert np.mean(exact) > 0.7
    yields = [np.any(np.reshape(x, (COUNT, -1)) != 0, axis=1) for x in jax.tree.leaves(found.yielded)]
    assert min(np.sum(exact & each) for each in yields) > 2, [np.sum(exact & each) for each in yields]
    check_tangents(tangent, [ahead, behind], STEP, exact)
