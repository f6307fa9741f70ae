"""What derivatives are worth: elements that have none, or no unique one, and what they get by the documented rule."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivatives import PLANAR, places, planar
from tables import exhaustive, mostly_exhaustive

import jaxik
from benchmarks import float32
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    DerivativeStatus,
    FrameTask,
    PositionLimit,
    PostureTask,
    Problem,
    SolveOptions,
    Status,
)


def reached(q: jax.Array) -> jax.Array:
    """Where the tip of `PLANAR` is in its plane (2,), written down."""
    return jnp.stack([jnp.cos(q[0]) + 0.7 * jnp.cos(q[0] + q[1]), jnp.sin(q[0]) + 0.7 * jnp.sin(q[0] + q[1])])


def residual(q: jax.Array, aim: jax.Array, rest: jax.Array) -> jax.Array:
    """Of `planar`, weighted."""
    return jnp.concatenate([reached(q) - aim, 0.3 * (q - rest)])


@exhaustive
def test_what_has_not_settled_has_the_derivative_of_one_step() -> None:
    """Newton's where the Hessian has a minimum, and Gauss-Newton's where it has none."""
    aim, rest = places()
    q0 = jnp.asarray([[2.9, 0.2], [0.4, 0.8], [-2.0, 0.5]])

    def solved(aim: jax.Array, rest: jax.Array) -> jaxik.Solution:
        problem = dataclasses.replace(planar(aim, rest), limits=())
        return jaxik.solve(problem, q0, options=SolveOptions(max_steps=1))

    along = jnp.ones_like(aim), jnp.asarray([[0.3, -0.2]] * 3)
    solution, moved = jax.jvp(solved, (aim, rest), along)
    np.testing.assert_array_equal(solution.derivative_status, DerivativeStatus.NOT_STATIONARY)
    minima = []
    for q, a, r, da, dr, found in zip(solution.q, aim, rest, *along, moved.q, strict=True):

        def slope(q: jax.Array, a: jax.Array, r: jax.Array) -> jax.Array:
            return jax.grad(lambda q: jnp.sum(residual(q, a, r) ** 2) / 2)(q)

        hessian, jacobian = jax.jacfwd(slope)(q, a, r), jax.jacfwd(residual)(q, a, r)
        minima.append(np.linalg.eigvalsh(hessian).min() > 0)
        bent = hessian if minima[-1] else jacobian.T @ jacobian
        change = jax.jvp(lambda a, r, q=q: slope(q, a, r), (a, r), (da, dr))[1]
        np.testing.assert_allclose(found, -np.linalg.solve(bent, change), rtol=1e-7)
    assert 0 < sum(minima) < len(minima)


@exhaustive
def test_at_a_kink_the_derivative_is_that_of_the_joints_that_may_leave_their_bounds() -> None:
    """A posture at a limit: nothing presses."""
    rest = jnp.asarray([PLANAR.limit_upper[0], 0.5])

    def solved(rest: jax.Array) -> jaxik.Solution:
        return jaxik.solve(Problem(PLANAR, {"rest": PostureTask(rest)}), jnp.zeros(2))

    solution, moved = jax.jvp(solved, (rest,), (jnp.asarray([-1.0, 2.0]),))
    assert solution.derivative_status == DerivativeStatus.WEAKLY_ACTIVE
    np.testing.assert_allclose(moved.q, [-1, 2], atol=1e-9)


def test_float32_tells_a_bound_that_is_pressed_from_rounding() -> None:
    """Postures beyond a limit press by how far they are beyond it; those inside are where they are asked."""
    beyond = np.asarray([1e-3, 1e-4, 2e-5, 0, -2e-5, -1e-4, -1e-3])
    rest = np.stack([PLANAR.limit_upper[0] + beyond, np.full(beyond.shape, 0.5)], axis=-1).astype(np.float32)

    def solved(rest: jax.Array) -> jaxik.Solution:
        return jaxik.solve(Problem(PLANAR, {"rest": PostureTask(rest)}), jnp.zeros(2, jnp.float32))

    solution, moved = jax.jit(lambda rest, along: jax.jvp(solved, (rest,), (along,)))(rest, np.ones_like(rest))
    assert moved.q.dtype == np.float32
    expected = np.where(beyond == 0, DerivativeStatus.WEAKLY_ACTIVE, DerivativeStatus.EXACT)
    np.testing.assert_array_equal(solution.derivative_status, expected)
    np.testing.assert_allclose(moved.q[:, 0], beyond <= 0, atol=1e-6)


@exhaustive
@pytest.mark.parametrize("verb", ["step", "solve"])
@pytest.mark.parametrize("name", float32.FRAMES)
def test_derivatives_in_float32_say_what_those_in_float64_say(name: str, verb: str) -> None:
    """Of random elements of six robots; `benchmarks/README.md` has the numbers."""
    cases = float32.STEPS if verb == "step" else float32.SOLVES
    robot, positions = jaxik.load_robot(name), name in float32.POSITIONS
    sides = float32.both(robot, float32.FRAMES[name], verb, cases, 1024, positions)
    for i, case in enumerate(cases):
        narrow, wide = (float32.Side(*(x[i] for x in side)) for side in sides)
        found = float32.compared(narrow, wide, same_point=verb == "solve")
        assert float32.good(case, found), (case, found)


@pytest.mark.parametrize("planes", mostly_exhaustive([False, True], [True]))
def test_what_tasks_leave_undetermined_stays(planes: bool) -> None:
    """One row for two hinges: of all tangents that keep it, the smallest, however a plane far away moves."""
    q0 = jnp.asarray([0.1, 0.6])

    def solved(x: Any, y: Any) -> jaxik.Solution:
        target = jnp.stack([x, jnp.zeros(()), jnp.zeros(())])
        cost = jnp.asarray([1.0, 0, 0])
        task = FrameTask(PLANAR.frame("tip"), target, position_cost=cost, orientation_cost=None, axes="world")
        plane = (PositionLimit(PLANAR.frame("tip"), [0.0, 1, 0], y),) if planes else ()
        return jaxik.solve(Problem(PLANAR, {"tip": task}, limits=(ConfigurationLimit(), *plane)), q0)

    solution, moved = jax.jit(lambda *at: jax.jvp(solved, at, (jnp.ones(()), jnp.ones(()))))(1.5, 9.0)
    assert solution.derivative_status == DerivativeStatus.NON_UNIQUE
    row = PLANAR.frame_jacobian(solution.q, "tip", reference="world_aligned")[:1]
    np.testing.assert_allclose(moved.q, np.linalg.pinv(row)[:, 0], rtol=1e-6)


def test_a_limit_moves_what_it_holds_all_the_way() -> None:
    """By the margin."""
    rest = jnp.asarray([9.0, 9.0])

    def held(margin: Any) -> jax.Array:
        limits = (ConfigurationLimit(margin=margin), PositionLimit(PLANAR.frame("tip"), [0.0, 1, 0], 9.0))
        return jaxik.solve(Problem(PLANAR, {"rest": PostureTask(rest)}, limits=limits), jnp.zeros(2)).q

    np.testing.assert_allclose(jax.jit(jax.jacfwd(held))(0.0), [-1, -1], atol=1e-9)


@exhaustive
def test_two_limits_that_are_equal_move_what_they_lock_and_so_does_a_start_that_a_mask_holds() -> None:
    limit, rest = PLANAR.limit_upper, jnp.asarray([9.0, 9.0])

    def locked(lower: Any) -> jax.Array:
        robot = dataclasses.replace(PLANAR, limit_lower=lower)
        return jaxik.solve(Problem(robot, {"rest": PostureTask(rest)}), jnp.zeros(2)).q

    def masked(q0: Any) -> jax.Array:
        return jaxik.solve(Problem(PLANAR, {"rest": PostureTask(rest)}, dof_mask=jnp.asarray([False, True])), q0).q

    np.testing.assert_allclose(jax.jacfwd(locked)(jnp.asarray(limit)), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(jax.jacfwd(masked)(jnp.asarray(limit))[0], [1, 0], atol=1e-9)


@exhaustive
def test_a_joint_that_stops_at_its_limit_has_no_derivative_there() -> None:
    """Braked by what its acceleration allows it ahead of the limit: a root, of zero."""
    q = jnp.asarray([PLANAR.limit_upper[0], 0.2])
    problem = Problem(
        PLANAR, {"rest": PostureTask(q + 1.0)}, limits=(AccelerationLimit({"first": 2.0, "second": 2.0}),)
    )
    result, _ = jax.jvp(lambda q: jaxik.step(problem, q, 0.1), (q,), (jnp.ones(2),))
    assert result.derivative_status == DerivativeStatus.WEAKLY_ACTIVE and "derivative WEAKLY_ACTIVE" in repr(result)


def test_where_there_is_no_derivative_the_result_says_so_and_nothing_is_nan() -> None:
    aim, rest = places()
    limit = PLANAR.limit_upper[0]
    # A rest at its limit, where nothing presses; a target that is no number; and one that is well.
    rest = rest.at[1].set(jnp.asarray([limit, 0.5]))
    aim = aim.at[1].set(reached(rest[1]))
    spoilt = aim.at[2, 0].set(jnp.nan)

    @jax.jit
    def pulled(aim: Any, options: SolveOptions) -> Any:
        def total(aim: Any, rest: Any) -> Any:
            solution = jaxik.solve(planar(aim, rest), jnp.zeros(2), options=options)
            return jnp.sum(solution.q), solution

        return jax.grad(total, (0, 1), has_aux=True)(aim, rest)

    (by_aim, by_rest), solution = pulled(spoilt, SolveOptions())
    np.testing.assert_array_equal(
        solution.derivative_status,
        [DerivativeStatus.EXACT, DerivativeStatus.WEAKLY_ACTIVE, DerivativeStatus.UNAVAILABLE],
    )
    assert solution.status[2] == Status.NONFINITE
    assert np.isfinite(by_aim).all() and np.isfinite(by_rest).all()
    np.testing.assert_array_equal(by_aim[2], 0)
    (well, _), _ = pulled(aim, SolveOptions())
    np.testing.assert_array_equal(by_aim[:1], well[:1])
    (early, _), solution = pulled(aim, SolveOptions(max_steps=1))
    assert (solution.derivative_status[:1] == DerivativeStatus.NOT_STATIONARY).all() and np.isfinite(early).all()


@exhaustive
@pytest.mark.parametrize("priority", [0, 1])
def test_what_overflows_leaves_no_derivative_and_no_nan(priority: int) -> None:
    """Squares of such costs are infinite, an inverse made of them is zero."""
    aim, rest = places()
    costs = jnp.asarray([[1.0], [1e160], [1e170]])

    def solved(rest: jax.Array) -> jaxik.Solution:
        target = jnp.concatenate([aim, jnp.zeros((len(aim), 1))], axis=-1)
        tip = FrameTask(PLANAR.frame("tip"), target, orientation_cost=None, axes="world", priority=priority)
        return jaxik.solve(Problem(PLANAR, {"rest": PostureTask(rest, cost=costs), "tip": tip}), rest)

    solution, moved = jax.jvp(solved, (rest,), (jnp.ones_like(rest),))
    assert solution.derivative_status[0] != DerivativeStatus.UNAVAILABLE
    np.testing.assert_array_equal(solution.derivative_status[1:], DerivativeStatus.UNAVAILABLE)
    assert np.isfinite(moved.q).all()
    np.testing.assert_array_equal(moved.q[1:], 0)


@exhaustive
@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_what_all_elements_share_and_is_no_number_leaves_none_of_them_a_derivative(spoilt: float) -> None:
    _, rest = places()
    aim = jnp.asarray([1.2, spoilt])

    def total(aim: jax.Array, rest: jax.Array) -> Any:
        solution = jaxik.solve(planar(aim, rest), jnp.zeros(2))
        return jnp.sum(solution.q), solution.derivative_status

    slopes, kinds = jax.grad(total, (0, 1), has_aux=True)(aim, rest)
    assert kinds.shape == rest.shape[:1] and (kinds == DerivativeStatus.UNAVAILABLE).all()
    jax.tree.map(lambda slope: np.testing.assert_array_equal(slope, 0), slopes)


@exhaustive
@pytest.mark.parametrize("verb", ["solve", "step"])
def test_an_element_without_a_derivative_leaves_that_of_what_is_shared_alone(verb: str) -> None:
    aim = jnp.asarray([[1.2, 0.3, 0], [0.9, 0.9, 0], [jnp.nan, 0.3, 0]])
    rest = jnp.asarray([[0.1, 0.4], [0.6, 1.2], [-0.1, jnp.inf]])

    def loss(cost: jax.Array, places: jax.Array, count: int) -> jax.Array:
        robot = dataclasses.replace(PLANAR, body_position=places)
        tip = FrameTask(robot.frame("tip"), aim[:count], orientation_cost=None, axes="world")
        problem = Problem(robot, {"tip": tip, "rest": PostureTask(rest[:count], cost=cost)})
        q = jaxik.solve(problem, jnp.zeros(2)).q if verb == "solve" else jaxik.step(problem, jnp.zeros(2), 0.1).q
        return jnp.sum(q[:2])

    def twice(cost: jax.Array, places: jax.Array, count: int) -> Any:
        return jax.grad(lambda cost: jax.grad(loss)(cost, places, count))(cost)

    def forwards(cost: jax.Array, places: jax.Array, count: int) -> Any:
        return jax.jvp(lambda cost: jax.grad(loss, (0, 1))(cost, places, count), (cost,), (jnp.ones(()),))[1]

    for derivative in (jax.grad(loss, (0, 1)), twice, forwards):
        alone, together = (derivative(jnp.asarray(0.3), jnp.asarray(PLANAR.body_position), count) for count in (2, 3))
        jax.tree.map(np.testing.assert_array_equal, together, alone)


@exhaustive
def test_two_levels_out_of_reach_are_told_from_one() -> None:
    """Along one axis too far away, and along another, which the stretched arm cannot be moved along any more."""
    q0 = jnp.asarray([0.2, 0.4])

    def solved(away: Any, second: bool) -> jaxik.Solution:
        tasks: dict[str, Any] = {"rest": PostureTask(q0, priority=2)}
        for priority in range(1 + second):
            cost = jnp.asarray([1.0 - priority, priority, 0])
            target = jnp.stack([away, away, jnp.zeros(())])
            name = f"along {'xy'[priority]}"
            tasks[name] = FrameTask(PLANAR.frame("tip"), target, cost, None, axes="world", priority=priority)
        return jaxik.solve(Problem(PLANAR, tasks), q0)

    for second, kind in ((False, DerivativeStatus.EXACT), (True, DerivativeStatus.APPROXIMATE)):
        solution, moved = jax.jvp(lambda away, s=second: solved(away, s), (jnp.asarray(3.0),), (jnp.asarray(1.0),))
        assert solution.derivative_status == kind and np.isfinite(moved.q).all()


@exhaustive
def test_a_joint_a_rounding_from_its_bound_that_nothing_presses_is_a_kink() -> None:
    bound = PLANAR.limit_upper[0]
    q = jnp.stack([jnp.full(16, bound), jnp.linspace(0.2, 2, 16)], -1)
    aim = PLANAR.frame_pose(q, PLANAR.frame("tip")).translation()

    def solved(aim: jax.Array) -> Any:
        tip = FrameTask(PLANAR.frame("tip"), aim, position_cost=[1.0, 1, 0], orientation_cost=None, axes="world")
        solution = jaxik.solve(Problem(PLANAR, {"tip": tip}), jnp.asarray([0.1, 0.6]))
        return jnp.sum(solution.q), solution

    solution = jax.grad(solved, has_aux=True)(aim)[1]
    assert (solution.q[:, 0] < bound).any()
    np.testing.assert_array_equal(solution.derivative_status, jaxik.DerivativeStatus.WEAKLY_ACTIVE)
