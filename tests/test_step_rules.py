"""Step rules by name: each takes the step that its source says, keeps limits exactly, and ends honestly."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import optax
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import FrameTask, JaxikError, PostureTask, Problem, SearchOptions, SolveOptions, Status, solve
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.solve import _solve

ARM = """<mujoco model="arm"><compiler angle="radian" autolimits="true"/><worldbody>
  <body name="a"><joint name="turn" axis="0 0 1" range="-2 2"/><geom size=".1" mass="1"/>
    <body name="b" pos="0 0 .3"><joint name="lift" axis="0 1 0" range="-1.5 1.5"/><geom size=".1" mass="1"/>
      <body name="c" pos=".5 0 0"><joint name="bend" axis="0 1 0" range="0 2"/><geom size=".1" mass="1"/>
        <body name="d" pos=".4 0 0"><joint name="roll" axis="1 0 0" range="-2 2"/><geom size=".1" mass="1"/>
          <site name="tip" pos=".1 .05 0"/></body></body></body></body></worldbody></mujoco>"""
START = np.array([0.1, -0.3, 0.9, 0.3])
# What costs, factors and clamps make of the six rows.
COST = np.array([2.0, 1.0, 1.0, 0.5, 0.5, 0.5])
SGD = optax.sgd(1.0)
RULES = {"dls": "dls", "sdls": "sdls", "svd": "svd", "transpose": "transpose", "optax": SGD}
# How many of the numbers below are for a rule, and steps that it may take to a target nearby.
OWN = {
    "dls": {"damping": 0.05},
    "sdls": {"step_clamp": 0.4},
    "svd": {"truncation": 1e-3},
    "transpose": {"learning_rate": 1.0},
    "optax": {"learning_rate": 0.4},
}
EVERY = pytest.mark.parametrize("name", RULES)


@cache
def arm() -> Robot:
    return jaxik.load_robot(ARM).astype(np.float64)


def posed(target: Any) -> Problem:
    tip = arm().frame("tip")
    task = FrameTask(tip, target, position_cost=COST[:3], orientation_cost=COST[3:])
    return Problem(arm(), {"tip": task})


def found(name: str, target: Any, q0: Any = START, **numbers: Any) -> jaxik.Solution:
    options = SolveOptions(step_rule=RULES[name], **(OWN[name] | numbers))
    return jax.device_get(solve(posed(target), q0, options=options))


def pose(q: Any) -> jaxlie.SE3:
    return arm().frame_pose(jnp.asarray(q), arm().frame("tip"))


def clamp(error: np.ndarray, most: tuple[float, float]) -> np.ndarray:
    ends = [e * min(1, m / np.linalg.norm(e)) for e, m in zip((error[:3], error[3:]), most, strict=True)]
    return np.concatenate(ends)


def textbook_step(name: str, error: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
    """The step (n,) towards an error (6,) that is to be removed, as the sources write it."""
    own = OWN[name]
    if name == "dls":
        square = jacobian @ jacobian.T + own["damping"] ** 2 * np.eye(6)
        return jacobian.T @ np.linalg.solve(square, error)
    if name == "svd":
        return np.linalg.pinv(jacobian, own["truncation"]) @ error
    if name == "transpose":
        seen = jacobian @ jacobian.T @ error
        return (error @ seen) / (seen @ seen) * jacobian.T @ error
    if name == "optax":
        return own["learning_rate"] * jacobian.T @ error
    left, values, right = np.linalg.svd(jacobian, full_matrices=False)
    total, largest = np.zeros(4), own["step_clamp"]
    for i in range(4):
        together = sum(np.linalg.norm(left[3 * k : 3 * k + 3, i]) for k in range(2))
        apart = 0.0
        for k in range(2):
            by_joint = np.linalg.norm(jacobian[3 * k : 3 * k + 3], axis=0)
            apart += np.abs(right[i]) @ by_joint / values[i]
        most = min(1, together / apart) * largest
        along = (left[:, i] @ error) / values[i] * right[i]
        total += along * min(1, most / np.abs(along).max())
    return total * min(1, largest / np.abs(total).max())


@EVERY
@pytest.mark.parametrize("distance", [0.02, 0.3])
def test_a_step_is_the_one_that_the_source_of_its_rule_says(name: str, distance: float) -> None:
    target = pose(START + distance * np.array([1.0, -0.5, 0.7, -1.0]))
    most, factors = (0.05, 0.1), np.repeat([0.8, 1.1], 3)
    solution = found(
        name,
        target,
        max_steps=1,
        translation_error_clamp=most[0],
        rotation_error_clamp=most[1],
        translation_factor=factors[0],
        rotation_factor=factors[3],
    )
    error = clamp(np.asarray((pose(START).inverse() @ target).log()), most)
    # The residual is the error itself, so that it changes by minus what the frame moves by, to first order.
    near = jax.jit(jax.jacfwd(lambda q, target: -(pose(q).inverse() @ target).log()))(jnp.asarray(START), target)
    rows = factors * COST
    expected = START + textbook_step(name, rows * error, rows[:, None] * np.asarray(near))
    assert solution.iterations == 1 and solution.status in (Status.TIMEOUT, Status.CONVERGED)
    np.testing.assert_allclose(solution.q, expected, atol=1e-9)


@EVERY
def test_targets_nearby_are_met_within_tolerance_and_the_limits(name: str) -> None:
    there = np.array([0.4, -0.5, 0.01, 0.5])  # close to a limit
    solution = found(name, pose(there), max_steps=5000, **({"damping": 0.01} if name == "dls" else {}))
    assert solution.status == Status.CONVERGED
    reached = np.asarray((pose(solution.q).inverse() @ pose(there)).log())
    assert np.linalg.norm(reached[:3]) <= 1e-4 and np.linalg.norm(reached[3:]) <= 1e-3


@EVERY
def test_a_target_out_of_reach_stalls_inside_the_limits(name: str) -> None:
    far = jaxlie.SE3.from_translation(jnp.array([3.0, 0.0, 0.3]))
    whole = {"translation_error_clamp": 10.0, "rotation_error_clamp": 10.0}
    solution = found(name, far, max_steps=3000, **whole)
    assert solution.status != Status.CONVERGED and np.isfinite(solution.q).all()
    assert (solution.q >= arm().limit_lower).all() and (solution.q <= arm().limit_upper).all()
    exact = jax.device_get(solve(posed(far), START))
    assert solution.cost >= exact.cost * (1 - 1e-9)
    if name not in ("dls", "svd"):  # these, without acceptance, go to and fro between the limits
        assert solution.status == Status.STALLED
        np.testing.assert_allclose(solution.cost, exact.cost, rtol=1e-3)


@EVERY
def test_what_is_not_finite_is_told(name: str) -> None:
    target = jaxlie.SE3(jnp.asarray(pose(START).wxyz_xyz).at[5].set(jnp.nan))
    solution = found(name, target, max_steps=5)
    assert solution.status == Status.NONFINITE and np.isfinite(solution.q).all()


@exhaustive
def test_steps_that_lead_nowhere_end_as_stalled_without_a_tolerance_too() -> None:
    options = SolveOptions(step_rule="transpose", learning_rate=1e-5)
    rest = PostureTask(arm().q_home + 0.3)
    assert solve(Problem(arm(), {"rest": rest}), arm().q_home, options=options).status == Status.STALLED


def test_steps_that_lead_away_diverge_and_the_best_iterate_is_returned() -> None:
    target = pose(START + 0.05)
    solution = found("optax", target, learning_rate=30.0, max_steps=200)
    assert solution.status == Status.DIVERGED and solution.iterations < 200
    start = np.asarray((pose(START).inverse() @ target).log())
    assert solution.cost <= 0.5 * np.sum((COST * start) ** 2) * (1 + 1e-12)
    with pytest.raises(JaxikError, match="smaller learning_rate"):
        solution.check()
    # The same steps are no divergence for one who allows for them.
    loose = found("optax", target, learning_rate=30.0, max_steps=200, divergence_threshold=1e9)
    assert loose.status == Status.STALLED


def test_numbers_of_a_rule_and_targets_do_not_recompile() -> None:
    found("dls", pose(START + 0.1))
    before = _solve._cache_size()  # type: ignore[attr-defined]
    found("dls", pose(START - 0.1), damping=0.2, translation_error_clamp=0.1, stall_threshold=0.1, max_steps=7)
    default = SolveOptions(step_rule="dls")
    solve(posed(pose(START)), START, options=default)
    solve(posed(pose(START)), START, options=dataclasses.replace(default, damping=0.3))
    assert _solve._cache_size() == before  # type: ignore[attr-defined]


def linked() -> Problem:
    four_bar = jaxik.load_robot("four_bar").astype(np.float64)
    pen = four_bar.frame("pen")
    return Problem(
        four_bar,
        {"pen": FrameTask(pen, four_bar.frame_pose(four_bar.q_home, pen).translation(), orientation_cost=None)},
    )


@pytest.mark.parametrize("name", mostly_exhaustive(RULES, ["svd"]))
def test_closures_are_rows_that_are_met_within_a_tolerance_and_bent_by_what_is_out_of_reach(name: str) -> None:
    problem = linked()
    four_bar = problem.robot
    home = four_bar.frame_pose(four_bar.q_home, "pen").translation()
    # Ten times the cost of tasks is a hundred times their curvature.
    numbers = {"learning_rate": 0.02} if name == "optax" else {}
    options = SolveOptions(step_rule=RULES[name], max_steps=20000, **numbers)
    for target, reached in ((home, True), (home + 1.0, False)):
        task = dataclasses.replace(problem.tasks["pen"], target=target)
        solution = solve(Problem(four_bar, {"pen": task}), four_bar.q_home + 0.1, options=options)
        missed = float(np.linalg.norm(solution.residuals["model"]))
        if reached:
            assert missed <= 1e-4 and (name == "optax" or solution.status == Status.CONVERGED)
        else:
            assert missed > 5e-5 and solution.status in (Status.STALLED, Status.DIVERGED)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"step_rule": "newton"}, "step_rule is one of lm, dls, sdls, svd, transpose, or an optax.Gradient"),
        ({"step_rule": optax.adam}, "step_rule is one of"),
        ({"step_rule": {}}, "step_rule is one of"),
        ({"damping": 0.1}, "damping is a number of the step rules dls, not of 'lm'"),
        ({"step_rule": "svd", "learning_rate": 1}, "learning_rate is a number of the step rules transpose, optax"),
        ({"translation_error_clamp": 0.1}, "of the step rules dls, sdls, svd, transpose, optax, not of 'lm'"),
        ({"step_rule": "dls", "damping": -1}, "damping must not be negative"),
    ],
)
def test_unknown_rules_and_numbers_of_other_rules_are_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(JaxikError, match=message):
        SolveOptions(**given)


def test_what_a_rule_cannot_hold_is_told_before_anything_is_compiled() -> None:
    task = FrameTask(arm().frame("tip"), pose(START))
    rest = PostureTask(arm().q_home, priority=1)
    ceiling = jaxik.PositionLimit(arm().frame("tip"), jnp.array([0.0, 0.0, 1.0]), 0.3)
    options = SolveOptions(step_rule="sdls")
    with pytest.raises(JaxikError, match="step_rule='sdls' knows one priority"):
        solve(Problem(arm(), {"tip": task, "rest": rest}), options=options)
    with pytest.raises(JaxikError, match="step_rule='sdls' does not hold a PositionLimit"):
        solve(Problem(arm(), {"tip": task}, (jaxik.ConfigurationLimit(), ceiling)), options=options)
    with pytest.raises(JaxikError, match="a search takes step_rule='lm'"):
        SearchOptions(solve_options=options)


def test_a_line_search_is_told_the_cost() -> None:
    """optax.lbfgs asks for values along its way, and raises while it is traced where nobody gives them."""
    options = SolveOptions(step_rule=optax.lbfgs())
    assert jax.eval_shape(lambda q: solve(posed(pose(START)), q, options=options), START).q.shape == (4,)


@exhaustive
def test_a_line_search_is_told_the_cost_and_converges() -> None:
    """optax.lbfgs asks for values along its way; without them it raises."""
    q = START + np.array([[0.3, 0.2, -0.3, 0.4], [-0.4, 0.5, 0.2, -0.6], [0.0, -0.2, 0.6, 0.2]])
    options = SolveOptions(
        step_rule=optax.lbfgs(), max_steps=60, translation_error_clamp=10.0, rotation_error_clamp=10.0
    )
    solution = jax.device_get(solve(posed(pose(q)), START, options=options))
    assert np.all(solution.status == Status.CONVERGED) and np.all(solution.iterations < 50)
    np.testing.assert_allclose(arm().clamp(solution.q), solution.q, atol=0)


@exhaustive
@pytest.mark.parametrize("name", [*RULES, "adam", "lbfgs"])
def test_every_joint_type_stays_inside_its_limits_in_a_batch(name: str) -> None:
    import own_tasks

    robot = jaxik.load_robot(own_tasks.MIXED).astype(np.float64)
    q = robot.sample(jax.random.key(0), (64,))
    target = robot.frame_pose(robot.sample(jax.random.key(1), (64,)), "tip")
    rule = {"adam": optax.adam(0.05), "lbfgs": optax.scale_by_lbfgs()}.get(name) or RULES[name]
    problem = Problem(robot, {"tip": FrameTask(robot.frame("tip"), target)})
    options = SolveOptions(step_rule=rule, max_steps=500)
    solution = jax.device_get(solve(problem, q, options=options))
    np.testing.assert_allclose(robot.clamp(solution.q), solution.q, atol=1e-6)
    third = Problem(robot, {"tip": FrameTask(robot.frame("tip"), jaxlie.SE3(target.wxyz_xyz[3]))})
    alone = jax.device_get(solve(third, q[3], options=options))
    assert alone.status == solution.status[3]
    before = 0.5 * np.sum(np.asarray((robot.frame_pose(q, "tip").inverse() @ target).log()) ** 2, -1)
    # L-BFGS without a line search has steps of any length.
    assert np.median(solution.cost / before) < (1.0 if name == "lbfgs" else 0.5)
