"""Limits of motion and of joints that yield along whole paths: slack variables in DAQP, derivatives, statuses."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import mostly_exhaustive
from two_slides import (
    DT,
    RANGE,
    START,
    STEPS,
    VELOCITY,
    along,
    differences,
    known,
    minimum,
    movement,
    of_joint,
    places,
    slides,
)

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    DerivativeStatus,
    Elastic,
    FrameTask,
    Problem,
    Status,
    VelocityLimit,
    WholePathOptions,
    track,
)
from jaxik.core.pytree import pytree

SPARE = 0.995
# Limits [m/s, m/s2] of "far" and "near", how far "far" may go [m], "near" less by what their ranges differ, and
# penalties of the three kinds; by what the path makes of them.
CASES = {
    "held by the other joint": ([9.0, 0.22], [9.0, 9.0], 9.0, [22.0, 22.0, 1.0]),
    "to a stop": ([0.0, 9.0], [9.0, 9.0], 9.0, [22.0, 22.0, 1.0]),
    "too fast": ([0.22, 0.25], [9.0, 9.0], 9.0, [0.2, 0.2, 1.0]),
    "too hard": ([9.0, 9.0], [0.2, 0.22], 9.0, [2.0, 2.0, 1.0]),
    "both": ([0.25, 0.29], [0.2, 0.23], 9.0, [0.15, 9.0, 1.0]),
    "cheap": ([0.24, 0.3], [0.4, 0.5], 9.0, [0.005, 0.03, 1.0]),
    "unequal": ([0.245, 0.3], [0.4, 0.5], 9.0, [2.5, 0.25, 1.0]),
    "one joint far enough": ([9.0, 9.0], [9.0, 9.0], 0.55, [2.0, 2.0, 5.0]),
    "both joints too far": ([9.0, 9.0], [9.0, 9.0], 0.5, [2.0, 2.0, 0.2]),
    "hardly too far": ([9.0, 9.0], [9.0, 9.0], 0.5, [2.0, 2.0, 1e-4]),
    "all three": ([0.25, 0.29], [0.2, 0.23], 0.5, [0.15, 9.0, 0.05]),
}


@pytree
class OwnLimit(VelocityLimit):
    """Of a user."""


def run(at: dict[str, Any]) -> jaxik.Track:
    tip = FrameTask(slides().frame("tip"), jaxlie.SE3.identity(), orientation_cost=None)
    speed, acceleration = OwnLimit(at["speed"]), AccelerationLimit(at["acceleration"])
    limits = (
        ConfigurationLimit(),
        Elastic(speed, penalty=at["penalty"][..., 0], name="fast"),
        # A rank multiplies by 10.
        Elastic(acceleration, penalty=at["penalty"][..., 1] / 10, order=1),
        Elastic(ConfigurationLimit(margin=RANGE[0] - at["reach"]), penalty=at["penalty"][..., 2], name="reach"),
    )
    options = WholePathOptions(candidates=2, smoothing_tolerance=1e-9)
    q0, velocity = jnp.asarray(START), jnp.asarray(VELOCITY)
    problem = Problem(slides(), {"tip": tip}, limits)
    return track(problem, q0, DT, {"tip": along(at["places"])}, velocity=velocity, mode="whole", options=options)


# What is moved in which case: the path by a stretch, since noise from waypoint to waypoint would change which limits
# are active.
MOVED = [("both", name) for name in ("speed", "acceleration", "penalty", "places")]
MOVED += [("all three", name) for name in ("reach", "penalty")]
STEP = 1e-4


def given() -> dict[str, jax.Array]:
    """All cases, then those that are moved by a step, and those by a step back; of the path by its second axis."""
    rows = [CASES[name] for name in (*CASES, *(case for case, _ in MOVED * 2))]
    speed, acceleration, reach, penalty = (jnp.asarray(x) for x in zip(*rows, strict=True))
    along = jnp.broadcast_to(jnp.asarray(places())[:, None], (STEPS, len(rows)))
    at = {"places": along, "speed": speed, "acceleration": acceleration, "reach": reach, "penalty": penalty}
    for i, (case, name) in enumerate(MOVED * 2):
        element = (..., len(CASES) + i)[name != "places" :]
        at[name] = at[name].at[element].add((STEP if i < len(MOVED) else -STEP) * way(case, name))
    return at


def way(case: str, name: str) -> np.ndarray:
    speed, acceleration, reach, penalty = (np.asarray(x) for x in CASES[case])
    value = {"places": places(), "speed": speed, "acceleration": acceleration, "reach": reach, "penalty": penalty}[name]
    rng = np.random.default_rng(MOVED.index((case, name)))
    return 0.3 * value * (1 if name == "places" else rng.standard_normal(value.shape))


@cache
def differentiated(names: tuple[str, ...]) -> tuple[dict[str, jax.Array], jax.Array, jaxik.Track]:
    """Derivatives of a number of each motion by what is named, the numbers, and the motions."""
    slides()  # once, outside of `jit`
    weight, at = jax.random.normal(jax.random.key(0), (STEPS, 1, 2)), given()

    def total(moved: dict[str, jax.Array]) -> tuple[jax.Array, Any]:
        motion = run(at | moved)
        each = jnp.sum(weight * jnp.diff(motion.q, axis=0, prepend=motion.q[:1]), axis=(0, 2))
        return jnp.sum(each), (each, motion)

    slopes, (each, motion) = jax.jit(jax.grad(total, has_aux=True))({name: at[name] for name in names})
    return slopes, each, motion


EVERYTHING = ("speed", "acceleration", "penalty", "places", "reach")


@cache
def found() -> jaxik.Track:
    return jax.tree.map(lambda x: x[:, : len(CASES)] if jnp.ndim(x) > 1 else x, differentiated(EVERYTHING)[2])


def motion(name: str) -> tuple[np.ndarray, jaxik.Track]:
    i = list(CASES).index(name)
    return np.asarray(found().q)[:, i], jax.tree.map(lambda x: x[:, i] if jnp.ndim(x) > 1 else x, found())


def program(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """H, c, and rows between lower and upper bounds of both joints over time, then a slack for each row that yields.

    The first three of all times are given: those of the start and before it.
    """
    speed, acceleration, reach, penalties = CASES[name]
    bent, (both, given), blocks, widths, prices = movement(), known(), [], [], []
    for order, most in enumerate((np.multiply(speed, DT), np.multiply(acceleration, DT**2))):
        for joint in range(2):
            blocks.append(of_joint(differences()[order], joint))
            widths.append(np.full(len(blocks[-1]), SPARE * most[joint]))
            prices.append(np.full(len(blocks[-1]), penalties[order]))
    for joint in range(2):
        blocks.append(of_joint(np.eye(STEPS + 3)[3:], joint))
        widths.append(np.full(STEPS, RANGE[joint] - (RANGE[0] - reach)))
        prices.append(np.full(STEPS, penalties[2]))
    rows, width, price = np.concatenate(blocks), np.concatenate(widths), np.concatenate(prices)
    k, n = rows.shape
    none = np.zeros((len(both), k))
    matrix = np.block([[np.zeros((k, n)), np.eye(k)], [rows, -np.eye(k)], [rows, np.eye(k)], [both, none]])
    far = np.full(k, 1e30)
    lower = np.concatenate([np.zeros(k), -far, -width, given])
    upper = np.concatenate([far, width, far, given])
    return np.pad(bent, [(0, k)] * 2), np.concatenate([np.zeros(n), price]), matrix, lower, upper


def worth(name: str, q: np.ndarray) -> float:
    """The cost of a motion (3 + STEPS, 2) and the price of what yields."""
    bent, price, matrix, _, upper = program(name)
    n, x = q.size, q.ravel()
    k = bent.shape[0] - n
    beyond = np.maximum(np.abs(matrix[k : 2 * k, :n] @ x) - upper[k : 2 * k], 0)
    return float(0.5 * x @ bent[:n, :n] @ x + price[n:] @ beyond)


@pytest.mark.parametrize("name", CASES)
def test_motions_are_minima_of_the_program_with_slack_variables(name: str) -> None:
    exact = minimum(program(name))
    q, _ = motion(name)
    assert worth(name, np.concatenate([exact[:3], q])) == pytest.approx(worth(name, exact), rel=1e-7)
    np.testing.assert_allclose(q, exact[3:], atol=1e-6)


def test_what_is_followed_is_converged_and_what_yields_is_said() -> None:
    assert (found().status == Status.CONVERGED).all() and found().check().jumps.sum() == 0
    np.testing.assert_allclose(np.asarray(found().q).sum(axis=-1), places()[:, None] * np.ones(len(CASES)), atol=1e-9)
    assert sorted(found().yielded) == ["acceleration_limit", "fast", "reach"]
    _, held = motion("held by the other joint")
    assert not any(np.asarray(x).any() for x in held.yielded.values()) and float(held.speed_share.max()) < 1
    q, stopped = motion("to a stop")
    np.testing.assert_array_equal(stopped.yielded["fast"][-9:, 0], 0)
    np.testing.assert_allclose(np.diff(q[-9:, 0]), 0, atol=1e-9)
    q, fast = motion("too fast")
    beyond = np.abs(np.diff(q, axis=0, prepend=START[None])) - np.array(CASES["too fast"][0]) * DT
    np.testing.assert_allclose(fast.yielded["fast"], np.where(beyond > 1e-9, beyond, 0), atol=1e-12)
    assert (beyond > 1e-3).any() and float(fast.speed_share.max()) > 1
    assert not np.asarray(fast.yielded["acceleration_limit"]).any()
    q, far = motion("both joints too far")
    most = RANGE - (RANGE[0] - CASES["both joints too far"][2])
    beyond = np.sign(q) * np.maximum(np.abs(q) - most, 0)
    np.testing.assert_allclose(far.yielded["reach"], np.where(np.abs(beyond) > 1e-8, beyond, 0), atol=1e-12)
    assert (beyond[-1] > 1e-3).any()
    assert not np.asarray(motion("one joint far enough")[1].yielded["reach"]).any()
    assert "yielded" in str(found())


@pytest.mark.parametrize("names", mostly_exhaustive([EVERYTHING, EVERYTHING[:3], ("places",)], [EVERYTHING]))
def test_derivatives_are_those_of_the_motion_where_limits_yield_and_hold(names: tuple[str, ...]) -> None:
    """By all of it; by limits and penalties alone, and by the path alone."""
    slopes, each, motion = differentiated(names)
    # Of these cases as they are and moved; the others are there for their motions.
    moved = [*(list(CASES).index(case) for case, _ in MOVED), *range(len(CASES), len(each))]
    assert (motion.derivative_status[:, np.array(moved)] == DerivativeStatus.EXACT).all()
    ahead, back = np.asarray(each)[len(CASES) :].reshape(2, -1)
    for (case, name), high, low in zip(MOVED, ahead, back, strict=True):
        i = list(CASES).index(case)
        yields = [bool((x[:, i] != 0).any()) and bool((x[:, i] == 0).any()) for x in motion.yielded.values()]
        assert sum(yields) == (2 if case == "both" else 3)
        if name in names:
            slope = jnp.take(slopes[name], i, axis=1 if name == "places" else 0)
            ours, difference = float(jnp.vdot(slope, way(case, name))), (high - low) / (2 * STEP)
            assert abs(difference) > 1e-5 and ours == pytest.approx(difference, rel=1e-4), (case, name)
