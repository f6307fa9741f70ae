"""What yields where it cannot be held: quadratic programs against slack variables, steps, tracks, derivatives."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
import qp_oracle

import jaxik
from jaxik import (
    ConfigurationLimit,
    DerivativeStatus,
    Elastic,
    FrameTask,
    JaxikError,
    JerkLimit,
    PositionLimit,
    PostureTask,
    Problem,
    Status,
    VelocityLimit,
)
from jaxik.datasets.rows import RowSolver
from jaxik.qp_solver import Program
from jaxik.results.npz import targets_of

ARM = """<mujoco model="arm"><compiler angle="radian" autolimits="true"/><worldbody>
<body name="upper"><joint name="first" axis="0 0 1" range="-3 3"/>
  <inertial pos="0.2 0 0" mass="1" diaginertia="1 1 1"/>
  <body name="middle" pos="0.5 0 0"><joint name="second" axis="0 0 1" range="-3 3"/>
    <inertial pos="0.2 0 0" mass="1" diaginertia="1 1 1"/>
    <body name="lower" pos="0.4 0 0"><joint name="third" axis="0 0 1" range="-3 3"/>
      <inertial pos="0.2 0 0" mass="1" diaginertia="1 1 1"/><site name="tip" pos="0.3 0 0"/>
</body></body></body></worldbody></mujoco>"""
BENT = np.array([0.5, -0.8, -0.5])
BATCH, N, M, P = 1000, 6, 5, 3


@functools.cache
def arm() -> Any:
    return jaxik.load_robot(ARM)


def tip_at(position: Any, **fields: Any) -> FrameTask:
    return FrameTask(arm().frame("tip"), jaxlie.SE3.from_translation(jnp.asarray(position)), 1.0, None, **fields)


@functools.cache
def start() -> np.ndarray:
    with jax.ensure_compile_time_eval():
        return np.asarray(arm().frame_pose(jnp.asarray(BENT), arm().frame("tip")).translation())


@functools.cache
def programs() -> Program:
    """Contradictory rows and equalities, some of which hold."""
    rng = np.random.default_rng(0)
    made = qp_oracle.random_program(rng, BATCH, N, M, P)
    row_penalties, equality_penalties = 10.0 ** rng.uniform(-1, 3, (BATCH, M)), 10.0 ** rng.uniform(-1, 3, (BATCH, P))
    right = made.h - rng.uniform(0, 3, (BATCH, M)) * (rng.random((BATCH, M)) < 0.5)
    offset = made.b + rng.normal(size=(BATCH, P)) * (rng.random((BATCH, P)) < 0.5)
    # The first row and the first equality hold, and can.
    row_penalties[:, 0], equality_penalties[:, 0], offset[:, 0] = np.inf, np.inf, made.b[:, 0]
    right[:, 0] = np.inf
    return made._replace(h=right, b=offset, row_penalties=row_penalties, equality_penalties=equality_penalties)


def solved(program: Program, dtype: Any = jnp.float64, **more: Any) -> jaxik.QPSolution:
    given = {name: jnp.asarray(x, dtype) for name, x in program._asdict().items()}
    return jax.tree.map(np.asarray, jaxik.qp(given.pop("H"), given.pop("c"), **given, **more))


def with_slack_variables(one: Program) -> Program:
    """The same program of one element without penalties: a variable for each way to miss a row."""
    rows, equalities = (np.flatnonzero(np.isfinite(x)) for x in (one.row_penalties, one.equality_penalties))
    n, k = N, len(rows) + 2 * len(equalities)
    first, second = len(rows), len(rows) + len(equalities)
    bent = np.zeros((n + k, n + k))
    bent[:n, :n] = one.H
    penalties = one.row_penalties[rows], one.equality_penalties[equalities], one.equality_penalties[equalities]
    above, apart = np.zeros((M, n + k)), np.zeros((P, n + k))
    above[:, :n], apart[:, :n] = one.G, one.A
    above[rows, n + np.arange(len(rows))] = -1
    apart[equalities, n + first + np.arange(len(equalities))] = -1
    apart[equalities, n + second + np.arange(len(equalities))] = 1
    lower, upper = np.concatenate([one.lower, np.zeros(k)]), np.concatenate([one.upper, np.full(k, np.inf)])
    return Program(bent, np.concatenate([one.c, *penalties]), lower, upper, above, one.h, apart, one.b)


def test_programs_agree_with_slack_variables_in_daqp() -> None:
    program, solution = programs(), solved(programs())
    assert np.all(solution.status == Status.CONVERGED)
    misses = np.einsum("bpn,bn->bp", program.A, solution.x) - program.b
    over = np.einsum("bmn,bn->bm", program.G, solution.x) - program.h
    rows, equalities = solution.active.yielding[:, :M], solution.active.yielding[:, M:]
    assert 0.2 < np.mean(rows != 0) < 0.6 and 0.2 < np.mean(equalities != 0) < 0.6
    np.testing.assert_array_equal(rows[:, 0], 0)
    for i in range(BATCH):
        found = qp_oracle.from_daqp(with_slack_variables(qp_oracle.element(program, i)))
        assert found is not None, i
        np.testing.assert_allclose(solution.x[i], found[0][:N], atol=1e-7, err_msg=str(i))
        slack = found[0][N:]
        np.testing.assert_allclose(np.where(rows[i, 1:] != 0, over[i, 1:], 0), slack[: M - 1], atol=1e-7)
        signed = slack[M - 1 : M + P - 2] - slack[M + P - 2 :]
        np.testing.assert_allclose(np.where(equalities[i, 1:] != 0, misses[i, 1:], 0), signed, atol=1e-7)
    single = solved(programs(), jnp.float32)
    assert np.all(single.status == Status.CONVERGED)
    np.testing.assert_allclose(single.x, solution.x, atol=2e-4)


def test_contradictions_of_what_may_yield_are_never_infeasible_in_float32() -> None:
    """Equalities that nearly follow from each other, of singular values from 1e-4 to 1, in a narrow box."""
    rng = np.random.default_rng(3)
    count, n, p = 500, 7, 6
    left, right = (np.linalg.qr(rng.normal(size=(count, k, p)))[0] for k in (p, n))
    matrix = np.einsum("bij,bj,bkj->bik", left, 10.0 ** rng.uniform(-4, 0, (count, p)), right)
    given = 0.01 * np.tile(np.eye(n), (count, 1, 1)), 0.01 * rng.normal(size=(count, n)), matrix
    bent, slopes, matrix, right = (jnp.asarray(x, jnp.float32) for x in (*given, 0.1 * rng.normal(size=(count, p))))
    found = jaxik.qp(bent, slopes, lower=-0.02, upper=0.02, A=matrix, b=right, equality_penalties=10.0)
    np.testing.assert_array_equal(found.status, Status.CONVERGED)


def test_a_warm_start_finds_what_yields_at_once() -> None:
    cold = solved(programs())
    warm = solved(programs(), warm_start=cold.active)
    np.testing.assert_array_equal(warm.iterations, 0)
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-9)
    np.testing.assert_array_equal(warm.active.yielding, cold.active.yielding)


def test_derivatives_of_programs_are_central_differences() -> None:
    program = qp_oracle.element(programs(), slice(0, 40))
    given = {name: jnp.asarray(x) for name, x in program._asdict().items()}
    rng = np.random.default_rng(1)

    def varied(x: Any) -> jax.Array:
        size = np.where(np.isfinite(x), np.abs(x), 0)
        return jnp.asarray(rng.normal(size=x.shape) * np.minimum(1, size))

    moves = {name: varied(np.asarray(x)) for name, x in given.items()}
    moves |= {"lower": 0 * given["c"], "upper": 0 * given["c"]}
    moves["H"] = moves["H"] + jnp.swapaxes(moves["H"], 1, 2)

    def outcome(given: dict[str, jax.Array]) -> Any:
        rest = dict(given)
        solution = jaxik.qp(rest.pop("H"), rest.pop("c"), **rest)
        return solution.x, solution.row_multipliers, solution.equality_multipliers

    found = jax.jit(lambda: jax.jvp(outcome, (given,), (moves,))[1])()
    far = jax.jit(outcome)
    ahead, behind = (far(jax.tree.map(lambda x, t, s=s: x + s * t, given, moves)) for s in (1e-6, -1e-6))
    for derivative, above, below in zip(found, ahead, behind, strict=True):
        np.testing.assert_allclose(derivative, (above - below) / 2e-6, atol=1e-6, rtol=1e-6)


def reaching(demand: Any = None, **elastic: Any) -> Problem:
    """A tip that is to go some way in a step, below a speed; three elements: a little, too far, and too far aside."""
    ways = np.array([[0.001, 0.0, 0], [0.2, 0.0, 0], [0.001, 0.3, 0]]) if demand is None else demand
    rest = {"rest": PostureTask(BENT, cost=0.1)}
    tip = tip_at(start() + ways)
    limits = ConfigurationLimit(), VelocityLimit(1.0)
    return Problem(arm(), rest, limits, {"tip": Elastic(tip, **elastic) if elastic else tip})


def test_what_can_be_held_is_held_as_if_it_were_hard() -> None:
    given = {"penalty": 10.0, "singular_value": 0.05}
    soft = jaxik.step(reaching(**given), BENT, 0.01)
    hard = jaxik.step(reaching(), BENT, 0.01)
    assert list(np.asarray(hard.status)) == [Status.CONVERGED, Status.INFEASIBLE, Status.INFEASIBLE]
    assert np.all(np.asarray(soft.status) == Status.CONVERGED)
    np.testing.assert_allclose(soft.velocity[0], hard.velocity[0], atol=1e-9)
    yielded = np.asarray(soft.yielded["tip"]["position"])
    np.testing.assert_array_equal(yielded[0], 0)
    assert np.all(np.any(yielded[1:] != 0, axis=1))
    # The residual after a full step to the speed limit, that no other step makes less.
    assert np.max(np.abs(soft.velocity[1:])) <= 1 + 1e-12
    np.testing.assert_allclose(np.max(np.abs(soft.velocity[1:]), axis=1), 1, atol=1e-9)


def test_the_higher_order_holds_and_one_rank_shares() -> None:
    robot, tip = arm(), arm().frame("tip")
    rest = {"rest": PostureTask(BENT, cost=0.1)}
    wall = PositionLimit(tip, [1.0, 0, 0], start()[0] + 0.001, gain=1.0)
    # In the axes of the wall: in those of the tip it is one row that yields, by another length.
    aim = tip_at(start() + np.array([0.01, 0, 0]), axes="world")
    yielded = []
    for first, second in ((None, 1), (1, None)):
        limits = ConfigurationLimit(), Elastic(wall, order=second)
        taken = jaxik.step(Problem(robot, rest, limits, {"tip": Elastic(aim, order=first)}), BENT, 0.01)
        assert taken.status == Status.CONVERGED
        yielded.append((np.asarray(taken.yielded["tip"]["position"]), np.asarray(taken.yielded["position_limit"])))
    np.testing.assert_allclose(yielded[0][0], [0.009, 0, 0], atol=1e-9)
    assert np.all(yielded[0][1] == 0)
    assert np.all(yielded[1][0] == 0) and yielded[1][1][0] == pytest.approx(0.009, abs=1e-9)


def test_an_elastic_velocity_limit_is_passed_by_the_least_that_a_constraint_needs() -> None:
    ways = np.array([[0.001, 0.0, 0], [0.02, 0.0, 0]])
    problem = dataclasses.replace(
        reaching(ways), limits=(ConfigurationLimit(), Elastic(VelocityLimit(1.0), penalty=1.0, name="speed"))
    )
    taken = jaxik.step(problem, BENT, 0.01)
    assert np.all(np.asarray(taken.status) == Status.CONVERGED)
    beyond = np.asarray(taken.yielded["speed"])
    np.testing.assert_array_equal(beyond[0], 0)
    speed = np.asarray(taken.velocity)[1]
    np.testing.assert_allclose(beyond[1], 0.01 * np.sign(speed) * np.maximum(np.abs(speed) - 1, 0), atol=1e-12)
    assert np.max(np.abs(beyond[1])) > 1e-3


def test_a_step_that_is_shortened_before_an_obstacle_yields_all_that_it_misses() -> None:
    """Past balls that the tip touches: none, half of the step, and all of it."""
    ended = ARM.replace("<site", '<geom type="sphere" size="0.02" pos="0.3 0 0"/><site')
    robot = jaxik.load_robot(ended, geometry="model")
    away = np.array([[-0.1270, -0.0336, 0], [-0.1141, -0.1441, 0], [0, 1.0, 0]])
    ways = np.array([[-0.0677, -0.1210, 0], [0.4552, -0.3021, 0], [0.01, 0, 0]])
    radius = np.linalg.norm(away, axis=1) - 0.021
    ball = jaxik.World(spheres=jaxik.Spheres(jnp.asarray(start() + away)[:, None], jnp.asarray(radius)[:, None]))
    speed, dt = np.array([1, 1, np.inf]), 0.4
    aim = FrameTask(robot.frame("tip"), jnp.asarray(start() + ways), 1.0, None)
    limits = ConfigurationLimit(), jaxik.CollisionLimit(ball, margin=0.0, gain=1.0)
    yielding = Elastic(VelocityLimit(speed), penalty=1e-3, name="speed")
    problem = Problem(robot, {"rest": PostureTask(BENT, cost=0.1)}, (*limits, yielding), {"tip": Elastic(aim)})
    taken = jax.tree.map(np.asarray, jaxik.step(problem, BENT, dt))
    np.testing.assert_array_equal(taken.fraction, [0, 0.5, 1])
    step = 1e-5 * dt * taken.velocity
    poses = arm().frame_pose(BENT + np.stack([0 * step, step, -step]), arm().frame("tip"))
    now, ahead, behind = poses.rotation().inverse() @ jnp.asarray(start() + ways - poses.translation())
    missed = now + (ahead - behind) / 2e-5
    np.testing.assert_allclose(taken.yielded["tip"]["position"], missed, atol=1e-8)
    np.testing.assert_array_equal(np.any(taken.yielded["tip"]["position"] != 0, axis=1), taken.fraction < 1)
    beyond = np.sign(taken.velocity) * np.maximum(np.abs(taken.velocity) - speed, 0)
    np.testing.assert_allclose(taken.yielded["speed"], dt * beyond, atol=1e-12)
    # Rows: one of the ball, then upper and lower bounds; the last joint has none.
    upper, lower = np.moveaxis(taken.limit_margins["rows"][:, 1:].reshape(3, 2, 3), 1, 0)
    np.testing.assert_allclose(upper, dt * (speed - taken.velocity), atol=1e-12)
    np.testing.assert_allclose(lower, dt * (speed + taken.velocity), atol=1e-12)


def test_lower_priorities_move_nothing_that_yields() -> None:
    problem = reaching(penalty=10.0)
    levels = dataclasses.replace(
        problem,
        tasks={"turn": FrameTask(arm().frame("tip"), jaxlie.SE3.identity(), None, 0.1)}
        | {"rest": PostureTask(BENT, cost=0.1, priority=1)},
    )
    first = dataclasses.replace(levels, tasks={"turn": levels.tasks["turn"]})
    both, alone = jaxik.step(levels, BENT, 0.01), jaxik.step(first, BENT, 0.01)
    assert np.all(np.asarray(both.status) == Status.CONVERGED)
    np.testing.assert_allclose(both.yielded["tip"]["position"], alone.yielded["tip"]["position"], atol=1e-9)


def test_derivatives_of_steps_are_central_differences() -> None:
    """Of a constraint that yields to speed limits, and of one that is held."""
    ways = jnp.asarray([[0.001, 0.0, 0], [0.1, 0.02, 0], [0.03, 0.2, 0]])
    # Small enough that no direction is weak.
    problem = functools.partial(reaching, penalty=10.0, singular_value=0.0)

    def outcome(ways: jax.Array, q: jax.Array) -> Any:
        taken = jaxik.step(problem(0.1 * ways), q, 0.005)
        return (taken.velocity, taken.yielded), taken.derivative_status

    q, step = jnp.broadcast_to(jnp.asarray(BENT), (3, 3)), 1e-6
    moves = jax.random.normal(jax.random.key(0), ways.shape, ways.dtype), jax.random.normal(jax.random.key(1), q.shape)

    moves = moves[0].at[:, 2].set(0), moves[1]  # the arm is planar

    @jax.jit
    def tangent() -> Any:
        _, found, status = jax.jvp(outcome, (ways, q), moves, has_aux=True)
        return found, status

    found, status = tangent()
    far = jax.jit(lambda s: outcome(ways + s * moves[0], q + s * moves[1])[0])
    difference = jax.tree.map(lambda a, b: (a - b) / (2 * step), far(step), far(-step))
    assert np.all(np.asarray(status) == DerivativeStatus.EXACT), status
    assert list(np.any(np.asarray(far(0.0)[1]["tip"]["position"]) != 0, axis=1)) == [False, True, True]
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(difference), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)


@functools.cache
def loop() -> Any:
    """A loop of 5 s in which the target goes out of reach of the arm and comes back within 4 s."""

    @functools.partial(jax.jit, static_argnums=1)
    def run(dt: Any, steps: int, away: Any) -> jaxik.Track:
        phase = jnp.minimum((jnp.arange(steps) + 1) * dt / 4.0, 1)
        share = 0.5 * (1 - jnp.cos(2 * jnp.pi * phase))
        places = start() + away * share[:, None] * start() / np.linalg.norm(start())
        rest = {"rest": PostureTask(BENT, cost=0.1, gain=5 * dt)}
        aim = Elastic(tip_at(start(), gain=5 * dt), singular_value=0.2)
        limits = ConfigurationLimit(), VelocityLimit(2.0)
        targets = {"tip": jaxlie.SE3.from_translation(places)}
        return jaxik.track(Problem(arm(), rest, limits, {"tip": aim}), BENT, dt, targets)

    return run


def test_a_target_out_of_reach_and_back_makes_the_arm_yield_and_recover_without_chatter() -> None:
    """Both ways: velocities change by less in shorter steps, or little where the demand changes its sign."""
    out, both = [], []
    for steps in (500, 5000):
        track = loop()(5.0 / steps, steps, 0.35)
        assert np.all(np.asarray(track.status) != Status.INFEASIBLE)
        misses = np.linalg.norm(np.asarray(track.yielded["tip"]["position"]), axis=1)
        assert misses.shape == (steps,) and misses[0] == 0 and misses[2 * steps // 5] > 0
        away = np.linalg.norm(np.asarray(track.residuals["tip"]["position"]), axis=-1)
        # 1.384 m from the base, of which the arm reaches 1.2.
        np.testing.assert_allclose(np.max(away), np.linalg.norm(start()) + 0.35 - 1.2, atol=2e-4)
        # It lags on the way back; half a second and a second after the target's return:
        assert away[int(0.9 * steps)] < 0.01 and away[-1] < 1e-3
        jumps = np.max(np.abs(np.diff(np.asarray(track.velocity), axis=0)), axis=1)
        out.append(np.max(jumps[: int(0.52 * steps)]))
        both.append(np.max(jumps))
    assert out[0] < 0.15 and out[1] < 0.2 * out[0], out
    assert both[0] < 0.3 and both[1] < 0.1, both


def test_a_loop_of_single_steps_is_the_track_and_files_keep_what_yields(tmp_path: Any) -> None:
    problem, steps = reaching(np.zeros((2, 3)), penalty=10.0), 3
    ways = np.array([[0.001, 0, 0], [0.2, 0, 0]]) * np.arange(1, steps + 1)[:, None, None]
    targets = jaxlie.SE3.from_translation(jnp.asarray(start() + ways))
    whole = jaxik.track(problem, BENT, 0.01, {"tip": targets})
    state = jaxik.track_start(problem, BENT, {"tip": jax.tree.map(lambda x: x[0], targets)})
    np.testing.assert_array_equal(state.yielded["tip"]["position"], np.zeros((2, 3)))
    for k in range(steps):
        state = jaxik.track_step(problem, state, 0.01, {"tip": jax.tree.map(lambda x, k=k: x[k], targets)})
        np.testing.assert_allclose(state.yielded["tip"]["position"], whole.yielded["tip"]["position"][k], atol=1e-12)
    assert np.all(np.asarray(whole.yielded["tip"]["position"])[:, 0] == 0)
    assert "targets/tip/position" in targets_of(problem.constraints or {}, (2,))
    jaxik.save(tmp_path / "track.npz", whole)
    again = jaxik.load(tmp_path / "track.npz")
    np.testing.assert_array_equal(again.yielded["tip"]["position"], whole.yielded["tip"]["position"])
    assert not whole.resample(0.004).yielded


def test_rows_of_motions_have_the_units_of_what_yields() -> None:
    robot = arm()
    turn = FrameTask.from_configuration(robot, robot.q_home, "tip", position_cost=None)
    problem = Problem(robot, {"turn": turn}, constraints={"tip": Elastic(tip_at(start()))})
    plan = jaxik.Plan(problem, 4, trajectories=jaxik.Trajectories(3, 0.05, waypoints=1))
    columns = RowSolver(plan, 4).columns()
    assert columns["residuals/tip/position"].shape == (3,) and columns["residuals/tip/position"].unit == "m"


def test_new_penalties_recompile_nothing() -> None:
    calls = []

    @jax.jit
    def taken(problem: Problem) -> Any:
        calls.append(None)
        return jaxik.step(problem, BENT, 0.01).yielded

    weak, strong = (
        Problem(
            arm(),
            {"tip": tip_at(start() + np.array([0.05, 0, 0]))},
            (ConfigurationLimit(), Elastic(VelocityLimit(1.0), penalty=penalty)),
        )
        for penalty in (1e-3, np.array(10.0))
    )
    assert np.any(np.asarray(taken(weak)["velocity_limit"]) != 0)
    np.testing.assert_array_equal(taken(strong)["velocity_limit"], 0)
    assert len(calls) == 1


def test_what_is_no_number_under_jit_is_a_status() -> None:
    """A penalty, and a target."""

    @jax.jit
    def taken(penalty: Any, demand: Any) -> Any:
        result = jaxik.step(reaching(demand, penalty=penalty), BENT, 0.01)
        return result.status, (result.velocity, result.yielded)

    for penalty, way in ((np.nan, 0.0), (-1.0, 0.0), (1.0, np.nan)):
        status, zero = taken(penalty, np.full(3, way))
        assert status == Status.NONFINITE
        for values in jax.tree.leaves(zero):
            np.testing.assert_array_equal(values, 0)


SPEED = VelocityLimit(1.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: Elastic(SPEED, penalty=0.0), "penalty is above zero and finite"),
        (lambda: Elastic(SPEED, penalty=np.nan), "penalty is above zero and finite"),
        (lambda: Elastic(SPEED, singular_value=-1.0), "singular_value must not be negative"),
        (lambda: Elastic(SPEED, order=-1), "order is a rank, 0"),
        (lambda: Elastic(SPEED, order=0.5), "order is a rank, 0"),  # type: ignore[arg-type]
        (lambda: Elastic(SPEED, name=3), "name is a text"),  # type: ignore[arg-type]
        (lambda: Elastic(Elastic(SPEED)), "not of an Elastic"),
        (lambda: Elastic("speed"), "a task such as FrameTask or a limit such as VelocityLimit, not str"),
        (lambda: Elastic(JerkLimit(1.0)), "a JerkLimit does not yield"),
        (lambda: Elastic(tip_at(start()), name="tip"), "has its name in the problem"),
        (lambda: Problem(arm(), {"tip": Elastic(tip_at(start()))}), "tasks['tip'] is a Task"),
        (lambda: Problem(arm(), {"tip": tip_at(start())}, (Elastic(tip_at(start())),)), "is a constraint"),
        (lambda: Problem(arm(), {"tip": tip_at(start())}, None, {"a": Elastic(SPEED)}), "belongs into limits"),
        (lambda: Problem(arm(), {"tip": tip_at(start())}, (Elastic(SPEED), Elastic(SPEED))), "say Elastic(..., name="),
        (lambda: jaxik.qp(np.eye(2), np.ones(2), row_penalties=1.0), "row_penalties are of the rows of G"),
        (lambda: jaxik.qp(np.eye(2), np.ones(2), A=np.eye(2), b=np.ones(2), equality_penalties=0), "above zero"),
    ],
)
def test_mistakes_are_told_in_one_line(given: Any, said: str) -> None:
    with pytest.raises(JaxikError) as raised:
        given()
    assert said in str(raised.value) and "\n" not in str(raised.value), str(raised.value)
