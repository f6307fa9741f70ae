"""What `solve` finds: constrained minima known in closed form, honest statuses, and what it reports."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
import scipy.optimize

import jaxik
from jaxik import FrameTask, JaxikError, Problem, SolveOptions, Status, solve
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import evaluate, formulation, rows

BOUND, LENGTHS = 0.3, (1.0, 0.7)  # of the planar arm's first joint, and its links
HELD, FAR, AT, FEW = "held", "far", "at the target", "few steps"


@cache
def arm() -> Robot:
    return jaxik.load_robot(own_tasks.PLANAR)


def polar(radius: Any, angle: Any) -> np.ndarray:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), np.zeros_like(radius * angle)], -1)


def tip(q: np.ndarray) -> np.ndarray:
    return polar(LENGTHS[0], q[..., 0]) + polar(LENGTHS[1], q[..., 0] + q[..., 1])


def slopes(q: np.ndarray) -> np.ndarray:
    """Columns (..., 3, 2) of the tip's Jacobian."""
    up = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 0]])
    return np.stack([tip(q) @ up.T, (tip(q) - polar(LENGTHS[0], q[..., 0])) @ up.T], -1)


def best_behind_the_bound(target: np.ndarray) -> np.ndarray:
    """With the first joint at its bound, the second link points from the elbow to the target."""
    gap = target - polar(LENGTHS[0], np.full(len(target), BOUND))
    return np.stack([np.full(len(target), BOUND), np.arctan2(gap[:, 1], gap[:, 0]) - BOUND], -1)


@cache
def cases() -> dict[str, dict[str, np.ndarray]]:
    """For each kind of case: targets (n, 3), starts (n, 2), the most steps (n,)."""
    rng = np.random.default_rng(0)
    held = polar(rng.uniform(1.5, 3.0, 40), rng.uniform(0.8, 1.7, 40))
    far = polar(rng.uniform(2.0, 50.0, 30), rng.uniform(-BOUND, BOUND, 30))
    q = np.stack([rng.uniform(-BOUND, BOUND, 20), rng.uniform(0.2, 2.0, 20)], -1)
    start = np.array([0.05, 0.6])
    return {
        HELD: {"target": held, "q0": np.tile(start, (40, 1)), "max_steps": np.full(40, 100)},
        FAR: {"target": far, "q0": np.tile(start, (30, 1)), "max_steps": np.full(30, 100)},
        AT: {"target": tip(q), "q0": q, "max_steps": np.arange(20) % 4},
        FEW: {
            "target": np.tile(held[0], (8, 1)),
            "q0": np.tile(start, (8, 1)),
            "max_steps": np.array([0, 1, 2, 3] * 2),
        },
    }


def task(target: Any) -> FrameTask:
    return FrameTask(arm().frame("tip"), target, orientation_cost=None)


@cache
def solutions() -> dict[str, jaxik.Solution]:
    given = {k: np.concatenate([case[k] for case in cases().values()]) for k in ("target", "q0", "max_steps")}
    options = SolveOptions(max_steps=given["max_steps"])
    found = jax.device_get(solve(Problem(arm(), {"tip": task(given["target"])}), given["q0"], options=options))
    ends = np.cumsum([len(case["q0"]) for case in cases().values()])
    return {
        k: jax.tree.map(lambda x, e=e, k=k: x[e - len(cases()[k]["q0"]) : e], found)
        for k, e in zip(cases(), ends, strict=True)
    }


def test_a_joint_held_at_its_bound_leaves_the_others_at_their_exact_minimum() -> None:
    found, target = solutions()[HELD], cases()[HELD]["target"]
    best = best_behind_the_bound(target)
    outward = np.einsum("ni,ni->n", target - tip(best), slopes(best)[..., 0])
    assert (outward > 0.01).all()  # the bound holds the first joint back
    np.testing.assert_array_equal(found.q[:, 0], BOUND)
    np.testing.assert_allclose(found.q, best, atol=1e-10)
    np.testing.assert_array_equal(found.status, Status.STALLED)
    np.testing.assert_allclose(found.cost, 0.5 * np.sum((target - tip(best)) ** 2, -1), rtol=1e-12)
    assert found.stationarity.max() < 1e-8


def test_clipping_would_not_find_that_minimum() -> None:
    """A Gauss-Newton step of all joints, clipped, leaves the minimum; so does the free solution, clipped."""
    target = cases()[HELD]["target"]
    best = best_behind_the_bound(target)
    step = np.stack(
        [np.linalg.lstsq(j, r, rcond=None)[0] for j, r in zip(slopes(best), target - tip(best), strict=True)]
    )
    clipped = np.clip(best + step, [-BOUND, -2.5], [BOUND, 2.5])
    assert (np.abs(clipped - best).max(-1) > 1e-3).all()
    pointing = np.stack([np.clip(np.arctan2(target[:, 1], target[:, 0]), -BOUND, BOUND), np.zeros(len(target))], -1)
    assert (np.sum((target - tip(pointing)) ** 2, -1) > 1.01 * np.sum((target - tip(best)) ** 2, -1)).all()


def test_out_of_reach_the_best_pose_is_the_projection() -> None:
    found, target = solutions()[FAR], cases()[FAR]["target"]
    np.testing.assert_array_equal(found.status, Status.STALLED)
    np.testing.assert_allclose(found.q[:, 0], np.arctan2(target[:, 1], target[:, 0]), atol=1e-8)
    np.testing.assert_allclose(found.q[:, 1], 0, atol=1e-8)
    left = (1 - sum(LENGTHS) / np.linalg.norm(target, axis=-1))[:, None] * target
    gap = found.residuals["tip"]["position"]
    np.testing.assert_allclose(np.linalg.norm(gap, axis=-1), np.linalg.norm(left, axis=-1), rtol=1e-12)
    assert found.stationarity.max() < 1e-8


def test_a_start_at_the_target_converges_in_no_steps() -> None:
    found = solutions()[AT]
    np.testing.assert_array_equal(found.status, Status.CONVERGED)
    np.testing.assert_array_equal(found.iterations, 0)
    np.testing.assert_allclose(found.q, cases()[AT]["q0"], atol=1e-12)


def test_no_more_steps_are_taken_than_allowed() -> None:
    found, most = solutions()[FEW], cases()[FEW]["max_steps"]
    np.testing.assert_array_equal(found.status, Status.TIMEOUT)
    np.testing.assert_array_equal(found.iterations, most)
    np.testing.assert_allclose(found.q[most == 0], cases()[FEW]["q0"][most == 0], atol=0)
    assert (np.diff(found.cost[:4]) <= 0).all()  # the best configuration so far is returned
    assert (found.stationarity > 1e-3).all()
    assert solutions()[HELD].iterations.max() <= 100


def test_residuals_and_costs_are_those_of_the_returned_configuration() -> None:
    for name, found in solutions().items():
        here = jaxlie.SO3.exp(np.stack([0 * found.q[:, 0], 0 * found.q[:, 0], found.q.sum(-1)], -1))
        gap = here.inverse() @ jnp.asarray(cases()[name]["target"] - tip(found.q))
        np.testing.assert_allclose(found.residuals["tip"]["position"], gap, atol=1e-12)
        np.testing.assert_allclose(found.cost, 0.5 * np.sum(gap**2, -1), atol=1e-12 * (1 + found.cost.max()))


PANDA, NEARBY = 400, 64


@cache
def poses() -> tuple[Robot, FrameTask, jax.Array]:
    """Elements of one program.

    First 400 poses of uniform samples, from one start; then 64 each of targets 0.3, 0.05 and 0.005 rad away from their
    starts.
    """
    robot = jaxik.load_robot("panda")
    frame = robot.frame("tcp")
    anywhere = robot.sample(jax.random.key(0), (PANDA,))
    q = jnp.tile(robot.sample(jax.random.key(0), (NEARBY,)), (3, 1))
    way = jnp.tile(jax.random.normal(jax.random.key(1), (NEARBY, robot.nq)), (3, 1))
    away = jnp.repeat(jnp.asarray([0.3, 0.05, 0.005]), NEARBY)[:, None]
    goal = jnp.clip(q + away * way / jnp.linalg.norm(way, axis=-1, keepdims=True), robot.limit_lower, robot.limit_upper)
    middle = jnp.broadcast_to((robot.limit_lower + robot.limit_upper) / 2, anywhere.shape)
    cost = np.where(np.arange(PANDA + len(q))[:, None] < PANDA, [2.0, 1.0, 0.5], 1.0)
    target = robot.frame_pose(jnp.concatenate([anywhere, goal]), frame)
    return robot, FrameTask(frame, target, cost, np.array([1.0])), jnp.concatenate([middle, q])


def found(task: FrameTask) -> jaxik.Solution:
    robot, _, start = poses()
    return jax.device_get(solve(Problem(robot, {"tip": task}), start))


@cache
def posed() -> jaxik.Solution:
    return found(poses()[1])


def panda() -> tuple[Robot, jaxlie.SE3, jaxik.Solution]:
    """Of the poses anywhere, of which one in ten ends elsewhere."""
    robot, task, _ = poses()
    target = jaxlie.SE3(task.target.wxyz_xyz[:PANDA])
    return robot, target, jax.tree.map(lambda x: x[:PANDA], posed())


def test_stalled_means_stationary() -> None:
    _, _, found = panda()
    stalled = found.status == Status.STALLED
    assert stalled.sum() > PANDA / 20
    assert np.mean(found.stationarity[stalled] < 1e-8) > 0.97
    assert found.stationarity[stalled].max() < 1e-6
    assert np.mean(found.status == Status.TIMEOUT) < 0.03  # where the Hessian is nearly singular


def test_positions_out_of_reach_are_told_within_the_steps() -> None:
    """A stretched arm turns to them along a narrow valley; a damping that fails at every other step took 18 %."""
    _, task, _ = poses()
    away = np.array(task.target.wxyz_xyz) * np.repeat([1.0, 1.6], [4, 3])
    ended = found(FrameTask(task.frame, jaxlie.SE3(jnp.asarray(away)), task.position_cost, np.array([0.0])))
    status = ended.status[:PANDA]
    assert np.mean(status == Status.STALLED) > 0.5 and np.mean(status == Status.TIMEOUT) < 0.09


def test_where_a_solve_stalls_scipy_finds_no_better_configuration_nearby() -> None:
    robot, target, found = panda()
    lower, upper = np.asarray(robot.limit_lower), np.asarray(robot.limit_upper)

    @jax.jit
    def model(q: jax.Array, target: jaxlie.SE3) -> tuple[jax.Array, jax.Array]:
        task = FrameTask(robot.frame("tcp"), target, np.array([2.0, 1.0, 0.5]), np.array([1.0]))
        prepared = formulation(Problem(robot, {"tip": task}))
        at = rows(prepared, evaluate(prepared, q), prepared.levels[0])
        return 0.5 * jnp.sum(at.residual**2), at.jacobian.T @ at.residual

    bounded = ((found.q == lower) | (found.q == upper)).any(-1)
    where = np.flatnonzero((found.status == Status.STALLED) & bounded)[:8]
    assert len(where) == 8
    for i in where:
        goal = jaxlie.SE3(target.wxyz_xyz[i])
        start = np.clip(found.q[i] + 1e-3 * np.random.default_rng(i).standard_normal(7), lower, upper)
        best = scipy.optimize.minimize(
            lambda q, goal=goal: [np.asarray(x) for x in model(jnp.asarray(q), goal)],
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(lower, upper, strict=True)),
            options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000, "maxfun": 20000},
        )
        assert found.cost[i] <= best.fun + 1e-10
        # In flat valleys L-BFGS-B stops short of the minimum: by 3e-4 rad at one target, with a higher cost.
        np.testing.assert_allclose(found.q[i], best.x, atol=1e-3)


def test_reported_residuals_are_distances_although_the_objective_is_a_twist() -> None:
    robot, target, found = panda()
    here = robot.frame_pose(found.q, "tcp")
    gap = here.rotation().inverse() @ (target.translation() - here.translation())
    turn = (here.rotation().inverse() @ target.rotation()).log()
    np.testing.assert_allclose(found.residuals["tip"]["position"], gap, atol=1e-12)
    np.testing.assert_allclose(found.residuals["tip"]["orientation"], turn, atol=1e-10)
    twist = np.asarray((here.inverse() @ target).log()) * np.array([2, 1, 0.5, 1, 1, 1])
    np.testing.assert_allclose(found.cost, 0.5 * np.sum(twist**2, -1), atol=1e-12)


def test_converged_is_within_the_tolerances() -> None:
    _, _, found = panda()
    errors = found.residuals["tip"]
    distance, angle = (np.linalg.norm(errors[part], axis=-1) for part in ("position", "orientation"))
    np.testing.assert_array_equal(found.status == Status.CONVERGED, (distance <= 1e-4) & (angle <= 1e-3))
    # The polishing step leaves far less than the tolerance.
    assert np.median(distance[found.converged]) < 1e-8


def test_check_names_elements_reasons_and_remedies() -> None:
    statuses = np.array([[0, 1, 0], [3, 5, 1]], np.int32)
    found = jaxik.Solution(np.zeros((2, 3, 2)), statuses, {}, *[statuses] * 4, topology=arm().topology)
    with pytest.raises(JaxikError) as failure:
        found.check()
    lines = str(failure.value).splitlines()
    assert lines[0].startswith("2 of 6 elements are STALLED ((0, 1), (1, 2)): ") and "try other starts q0" in lines[0]
    remedy = "raise SolveOptions(max_steps=...) or QPOptions(max_iterations=...), or start nearer"
    assert lines[1] == f"1 of 6 elements are TIMEOUT ((1, 0)): {remedy}"
    assert lines[2].startswith("1 of 6 elements are NONFINITE ((1, 1)): look for NaN")
    good = jax.tree.map(lambda x: x[0, ::2], found)
    assert good.check() is good and good.converged.all()
    one = jaxik.Solution(np.zeros(2), np.int32(1), {}, np.int32(3), np.int32(1), 0.1, 0.0, topology=arm().topology)
    with pytest.raises(JaxikError, match=r"^1 of 1 elements are STALLED: .*try other starts"):
        one.check()
    many = jaxik.Solution(np.zeros((20, 2)), np.full(20, 3), {}, *np.zeros((4, 20)), topology=arm().topology)
    with pytest.raises(JaxikError, match=r"20 of 20 elements are TIMEOUT \(0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\)"):
        many.check()
    assert "2 STALLED" in repr(found) and "batch (2, 3)" in repr(found)


def test_a_start_nearby_takes_few_steps() -> None:
    """With one damping for all distances it took 5.8, 4.8 and 3.6 steps."""
    near = jax.tree.map(lambda x: x[PANDA:], posed())
    assert near.converged.all()
    np.testing.assert_array_less(near.iterations.reshape(3, NEARBY).mean(axis=1), [4.2, 2.5, 1.15])


def test_a_target_without_a_rotation_is_not_finite_and_touches_no_other() -> None:
    """A padded row of data is zero."""
    task = poses()[1]
    padded = found(dataclasses.replace(task, target=jaxlie.SE3(task.target.wxyz_xyz.at[PANDA + 5].set(0))))
    assert padded.status[PANDA + 5] == Status.NONFINITE and np.isfinite(padded.q).all()
    assert np.flatnonzero(padded.status != posed().status).tolist() == [PANDA + 5]
