"""Derivatives of solutions as programs use them: again, under transformations, in float32, and where there are none."""

import dataclasses
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import own_tasks
import pytest
from fresh import run_program

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    Derivative,
    FrameTask,
    JaxikError,
    PositionLimit,
    PostureTask,
    Problem,
    SearchOptions,
    SolveOptions,
    Status,
)

COUNT = 3
SHARED = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_gradient_uses import loss, places
aim, rest = (x[:2] for x in places())
mesh = jax.make_mesh((2,), ("elements",), axis_types=(jax.sharding.AxisType.Auto,))
spec = jax.sharding.PartitionSpec("elements")
def alone(aim, rest):
    return jax.vmap(jax.grad(lambda a, r: loss(a[None], r[None])))(aim, rest)
shared = jax.jit(jax.shard_map(alone, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=False))(aim, rest)
assert len(shared.sharding.device_set) == 2
np.testing.assert_allclose(shared, alone(aim, rest), rtol=1e-9)
"""


ROBOT = jaxik.load_robot(own_tasks.PLANAR)


def problem(aim: Any, rest: Any, cost: Any = 0.3) -> Problem:
    """A planar arm between an aim (*batch, 2) out of reach and a posture (*batch, 2); its first hinge is held."""
    target = jnp.concatenate([aim, jnp.zeros((*aim.shape[:-1], 1), aim.dtype)], axis=-1)
    tip = FrameTask(ROBOT.frame("tip"), target, orientation_cost=None, axes="world")
    return Problem(ROBOT, {"rest": PostureTask(rest, cost=cost), "tip": tip})


def configuration(aim: Any, rest: Any, cost: Any = 0.3) -> jax.Array:
    return jaxik.solve(problem(aim, rest, cost), jnp.zeros((2,), aim.dtype)).q


def places(dtype: Any = np.float64) -> tuple[jax.Array, jax.Array]:
    aim = jnp.asarray([[1.2, 0.3], [0.9, 0.9], [1.1, -0.6]], dtype)
    return aim, jnp.asarray([[0.1, 0.4], [0.6, 1.2], [-0.1, -0.9]], dtype)


def loss(aim: Any, rest: Any, cost: Any = 0.3) -> jax.Array:
    q = configuration(aim, rest, cost)
    return jnp.sum(jnp.sin(q) * jnp.arange(1, q.size + 1, dtype=q.dtype).reshape(q.shape))


def test_second_derivatives_agree_with_differences_in_every_mode() -> None:
    aim, rest = places()

    def along(t: Any) -> jax.Array:
        return loss(aim + t * 0.3, rest + t * jnp.asarray([0.2, -0.4]), 0.3 + 0.1 * t)

    slope = jax.jit(jax.grad(along))
    wanted = (slope(1e-5) - slope(-1e-5)) / 2e-5
    for second in (jax.jacfwd(jax.jacfwd(along)), jax.jacfwd(jax.grad(along)), jax.grad(jax.grad(along))):
        np.testing.assert_allclose(jax.jit(second)(0.0), wanted, rtol=1e-6)


def test_gradients_are_the_same_under_every_transformation() -> None:
    aim, rest = places()
    whole = jax.jit(jax.grad(loss))(aim, rest)

    def one(a: Any, r: Any, i: Any) -> jax.Array:
        q = configuration(a, r)
        return jnp.sum(jnp.sin(q) * (2 * i + jnp.arange(1, 3)))

    def scanned(aim: Any) -> jax.Array:
        total, _ = jax.lax.scan(lambda c, x: (c + one(*x), None), 0.0, (aim, rest, jnp.arange(COUNT)))
        return total

    ways = {
        "vmap of grad": jax.vmap(jax.grad(one))(aim, rest, jnp.arange(COUNT)),
        "grad of vmap": jax.grad(lambda a: jnp.sum(jax.vmap(one)(a, rest, jnp.arange(COUNT))))(aim),
        "scan": jax.grad(scanned)(aim),
        "checkpoint": jax.grad(jax.checkpoint(lambda a: loss(a, rest)))(aim),
        "one by one": jnp.stack([jax.grad(one)(aim[i], rest[i], i) for i in range(COUNT)]),
        "forward": jax.jacfwd(loss)(aim, rest),
    }
    for way, found in ways.items():
        np.testing.assert_allclose(found, whole, rtol=1e-9, atol=1e-12, err_msg=way)


def test_new_values_do_not_compile_again() -> None:
    aim, rest = places()
    gradient = jax.jit(jax.grad(loss, (0, 1, 2)))
    for by in (0.0, 0.1, 0.2):
        gradient(aim + by, rest - by, 0.3 + by)
    assert gradient._cache_size() == 1


def loops(jaxpr: Any) -> int:
    inner = sum(loops(j) for e in jaxpr.eqns for j in jax.extend.core.jaxprs_in_params(e.params))
    return inner + sum(e.primitive.name == "while" for e in jaxpr.eqns)


def test_the_iteration_is_not_differentiated() -> None:
    aim, rest = places()
    there = loops(jax.make_jaxpr(loss)(aim, rest).jaxpr)
    assert loops(jax.make_jaxpr(jax.value_and_grad(loss))(aim, rest).jaxpr) == there > 0


def test_a_gradient_of_a_thousand_steps_is_the_program_of_ten() -> None:
    """And so takes the same memory."""
    aim, rest = places()

    @jax.jit
    @jax.grad
    def slope(aim: Any, most: Any) -> jax.Array:
        return jnp.sum(jaxik.solve(problem(aim, rest), options=SolveOptions(max_steps=most)).q)

    few, many = slope(aim, 10), slope(aim, 1000)
    assert slope._cache_size() == 1
    np.testing.assert_allclose(few, many, atol=1e-9)


def test_all_of_a_result_is_pulled_back_and_counts_have_no_tangents() -> None:
    aim, rest = places()
    solution, pull = jax.vjp(lambda aim: jaxik.solve(problem(aim, rest)), aim)
    ones = jax.tree.map(
        lambda x: jnp.ones_like(x) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0),
        solution,
    )
    assert np.isfinite(pull(ones)[0]).all()
    assert (solution.derivative == Derivative.EXACT).all()
    assert (jaxik.solve(problem(aim, rest)).derivative == Derivative.UNASKED).all()
    moved = jax.jvp(lambda aim: jaxik.solve(problem(aim, rest)), (aim,), (aim,))[1]
    assert moved.status.dtype == moved.iterations.dtype == jax.dtypes.float0


def test_float32_is_as_good_as_its_solution() -> None:
    wanted = jax.grad(loss, (0, 1, 2))(*places(), 0.3)
    found = jax.grad(loss, (0, 1, 2))(*places(np.float32), np.float32(0.3))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-3 * np.abs(b).max())


@pytest.mark.parametrize("planes", [False, True])
def test_what_tasks_leave_undetermined_stays(planes: bool) -> None:
    """One row for two hinges: of all tangents that keep it, the smallest, however a plane far away moves."""
    q0 = jnp.asarray([0.1, 0.6])

    def solved(x: Any, y: Any) -> jaxik.Solution:
        target = jnp.stack([x, jnp.zeros(()), jnp.zeros(())])
        cost = jnp.asarray([1.0, 0, 0])
        task = FrameTask(ROBOT.frame("tip"), target, position_cost=cost, orientation_cost=None, axes="world")
        plane = (PositionLimit(ROBOT.frame("tip"), [0.0, 1, 0], y),) if planes else ()
        return jaxik.solve(Problem(ROBOT, {"tip": task}, limits=(ConfigurationLimit(), *plane)), q0)

    solution, moved = jax.jvp(solved, (jnp.asarray(1.5), jnp.asarray(9.0)), (jnp.asarray(1.0), jnp.asarray(1.0)))
    assert solution.derivative == Derivative.UNDETERMINED
    row = ROBOT.frame_jacobian(solution.q, "tip", reference="world_aligned")[:1]
    np.testing.assert_allclose(moved.q, np.linalg.pinv(row)[:, 0], rtol=1e-6)


def test_a_limit_moves_what_it_holds_all_the_way() -> None:
    """By the margin and by the limit, of two that are equal; and so does a start that a mask holds at its limit."""
    limit, rest = ROBOT.limit_upper, jnp.asarray([9.0, 9.0])

    def held(margin: Any) -> jax.Array:
        limits = (ConfigurationLimit(margin=margin), PositionLimit(ROBOT.frame("tip"), [0.0, 1, 0], 9.0))
        return jaxik.solve(Problem(ROBOT, {"rest": PostureTask(rest)}, limits=limits), jnp.zeros(2)).q

    def locked(lower: Any) -> jax.Array:
        robot = dataclasses.replace(ROBOT, limit_lower=lower)
        return jaxik.solve(Problem(robot, {"rest": PostureTask(rest)}), jnp.zeros(2)).q

    def masked(q0: Any) -> jax.Array:
        return jaxik.solve(Problem(ROBOT, {"rest": PostureTask(rest)}, dof_mask=jnp.asarray([False, True])), q0).q

    np.testing.assert_allclose(jax.jacfwd(held)(0.0), [-1, -1], atol=1e-9)
    np.testing.assert_allclose(jax.jacfwd(locked)(jnp.asarray(limit)), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(jax.jacfwd(masked)(jnp.asarray(limit))[0], [1, 0], atol=1e-9)


def test_a_joint_that_stops_at_its_limit_has_no_derivative_there() -> None:
    """Braked by what its acceleration allows it ahead of the limit: a root, of zero."""
    q = jnp.asarray([ROBOT.limit_upper[0], 0.2])
    problem = Problem(ROBOT, {"rest": PostureTask(q + 1.0)}, limits=(AccelerationLimit({"first": 2.0, "second": 2.0}),))
    result, _ = jax.jvp(lambda q: jaxik.step(problem, q, 0.1), (q,), (jnp.ones(2),))
    assert result.derivative == Derivative.KINK and "derivative KINK" in repr(result)


def test_where_there_is_no_derivative_the_result_says_so_and_nothing_is_nan() -> None:
    aim, rest = places()
    limit = ROBOT.limit_upper[0]
    # A rest at its limit, where nothing presses; a target that is no number; and one that is well.
    rest = rest.at[1].set(jnp.asarray([limit, 0.5]))
    aim = aim.at[1].set(
        jnp.asarray([jnp.cos(limit) + 0.7 * jnp.cos(limit + 0.5), jnp.sin(limit) + 0.7 * jnp.sin(limit + 0.5)])
    )
    spoilt = aim.at[2, 0].set(jnp.nan)

    def pulled(aim: Any, options: SolveOptions) -> Any:
        def total(aim: Any, rest: Any) -> Any:
            solution = jaxik.solve(problem(aim, rest), jnp.zeros(2), options=options)
            return jnp.sum(solution.q), solution

        return jax.grad(total, (0, 1), has_aux=True)(aim, rest)

    (by_aim, by_rest), solution = pulled(spoilt, SolveOptions())
    np.testing.assert_array_equal(solution.derivative, [Derivative.EXACT, Derivative.KINK, Derivative.NONE])
    assert solution.status[2] == Status.NONFINITE
    assert np.isfinite(by_aim).all() and np.isfinite(by_rest).all()
    np.testing.assert_array_equal(by_aim[2], 0)
    (well, _), _ = pulled(aim, SolveOptions())
    np.testing.assert_array_equal(by_aim[:1], well[:1])
    (early, _), solution = pulled(aim, SolveOptions(max_steps=1))
    assert (solution.derivative[:1] == Derivative.UNSETTLED).all() and np.isfinite(early).all()


@pytest.mark.parametrize("verb", ["solve", "step"])
def test_an_element_without_a_derivative_leaves_that_of_what_is_shared_alone(verb: str) -> None:
    aim = jnp.asarray([[1.2, 0.3, 0], [0.9, 0.9, 0], [jnp.nan, 0.3, 0]])
    rest = jnp.asarray([[0.1, 0.4], [0.6, 1.2], [-0.1, jnp.inf]])

    def loss(cost: jax.Array, places: jax.Array, count: int) -> jax.Array:
        robot = dataclasses.replace(ROBOT, body_position=places)
        tip = FrameTask(robot.frame("tip"), aim[:count], orientation_cost=None, axes="world")
        problem = Problem(robot, {"tip": tip, "rest": PostureTask(rest[:count], cost=cost)})
        q = jaxik.solve(problem, jnp.zeros(2)).q if verb == "solve" else jaxik.step(problem, jnp.zeros(2), 0.1).q
        return jnp.sum(q[:2])

    def twice(cost: jax.Array, places: jax.Array, count: int) -> Any:
        return jax.grad(lambda cost: jax.grad(loss)(cost, places, count))(cost)

    for derivative in (jax.grad(loss, (0, 1)), twice):
        alone, together = (derivative(jnp.asarray(0.3), jnp.asarray(ROBOT.body_position), count) for count in (2, 3))
        jax.tree.map(np.testing.assert_array_equal, together, alone)


def test_two_levels_out_of_reach_are_told_from_one() -> None:
    """Along one axis too far away, and along another, which the stretched arm cannot be moved along any more."""
    q0 = jnp.asarray([0.2, 0.4])

    def solved(away: Any, second: bool) -> jaxik.Solution:
        tasks: dict[str, Any] = {"rest": PostureTask(q0, priority=2)}
        for priority in range(1 + second):
            cost = jnp.asarray([1.0 - priority, priority, 0])
            target = jnp.stack([away, away, jnp.zeros(())])
            name = f"along {'xy'[priority]}"
            tasks[name] = FrameTask(ROBOT.frame("tip"), target, cost, None, axes="world", priority=priority)
        return jaxik.solve(Problem(ROBOT, tasks), q0)

    for second, kind in ((False, Derivative.EXACT), (True, Derivative.APPROXIMATE)):
        solution, moved = jax.jvp(lambda away, s=second: solved(away, s), (jnp.asarray(3.0),), (jnp.asarray(1.0),))
        assert solution.derivative == kind and np.isfinite(moved.q).all()


def test_a_joint_a_rounding_from_its_bound_that_nothing_presses_is_a_kink() -> None:
    bound = ROBOT.limit_upper[0]
    q = jnp.stack([jnp.full(16, bound), jnp.linspace(0.2, 2, 16)], -1)
    aim = ROBOT.frame_pose(q, ROBOT.frame("tip")).translation()

    def solved(aim: jax.Array) -> Any:
        tip = FrameTask(ROBOT.frame("tip"), aim, position_cost=[1.0, 1, 0], orientation_cost=None, axes="world")
        solution = jaxik.solve(Problem(ROBOT, {"tip": tip}), jnp.asarray([0.1, 0.6]))
        return jnp.sum(solution.q), solution

    solution = jax.grad(solved, has_aux=True)(aim)[1]
    assert (solution.q[:, 0] < bound).any()
    np.testing.assert_array_equal(solution.derivative, jaxik.Derivative.KINK)


@pytest.mark.parametrize("kind", ["method", "property"])
def test_a_task_that_closes_over_a_traced_value_is_refused(kind: str) -> None:
    """Its derivative would be zero without a word."""

    def written(aim: Any) -> Problem:
        @jaxik.pytree
        class Reach(jaxik.Task):
            cost: Any = jaxik.leaf(0, default=1.0)

            @property
            def aim(self) -> Any:
                return aim if kind == "property" else 0.1

            def residual(self, robot: Any, kin: Any) -> Any:
                return kin.q - (self.aim if kind == "property" else aim)

        return Problem(ROBOT, {"reach": Reach()})

    assert jaxik.solve(written(0.2)).converged  # what is known is a constant
    with pytest.raises(JaxikError, match=r"task 'reach': Reach closes over the traced value 'aim'.*jaxik.leaf"):
        jax.grad(lambda aim: jnp.sum(jaxik.solve(written(aim)).q))(0.2)


def test_a_program_that_is_not_finite_has_no_derivative() -> None:
    box = {"lower": -np.ones(2), "upper": np.ones(2)}
    slope = jax.grad(lambda c: jnp.sum(jaxik.qp(np.eye(2), c, **box).x))(jnp.asarray([[0.1, 0.2], [jnp.nan, 0.3]]))
    np.testing.assert_allclose(slope, [[-1, -1], [0, 0]], atol=1e-12)


@pytest.mark.parametrize("candidates", [1, 2])
def test_a_search_has_the_derivative_of_what_it_found(candidates: int) -> None:
    aim, rest = places()
    key, options = jax.random.key(0), SearchOptions(max_starts=8, candidates=candidates)

    @jax.jit
    def searched(aim: Any, rest: Any, cost: Any) -> jax.Array:
        return jaxik.search(problem(aim, rest, cost), key, options=options).q

    along = [0.3 * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape) for x in (aim, rest, jnp.asarray(0.3))]

    def moved(by: Any) -> jax.Array:
        return searched(*(x + by * d for x, d in zip((aim, rest, 0.3), along, strict=True)))

    forth = jax.jacfwd(moved)(0.0)
    np.testing.assert_allclose(forth, (moved(1e-5) - moved(-1e-5)) / 2e-5, atol=1e-6 * np.abs(forth).max())
    np.testing.assert_allclose(jax.jacrev(moved)(0.0), forth, rtol=1e-9, atol=1e-12)


def test_linearizations_differentiate() -> None:
    aim, rest = places()

    def gradient(q: Any) -> jax.Array:
        return jnp.sum(jnp.sin(jaxik.linearize(problem(aim, rest), q, 0.1).H))

    q, step = rest, 1e-6 * jnp.asarray([0.3, -0.7])
    wanted = (gradient(q + step) - gradient(q - step)) / 2
    np.testing.assert_allclose(jnp.sum(jax.grad(gradient)(q) * step), wanted, rtol=1e-5)


def test_gradients_are_shared_out_in_a_shard_map() -> None:
    """Over two devices, which a process has from its start."""
    done = run_program(SHARED, str(Path(__file__).parent))
    assert done.returncode == 0, done.stderr


def test_a_shard_map_that_checks_what_varies_is_refused() -> None:
    aim, rest = places()
    mesh = jax.make_mesh((1,), ("elements",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("elements")
    with pytest.raises(JaxikError, match="check_vma=False"):
        jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(spec, spec), out_specs=spec)(aim, rest)


def test_a_cost_is_learned_from_configurations() -> None:
    """An optimiser's loop inside one scan, compiled once."""
    aim, rest = places()
    shown = configuration(aim, rest, 0.7)
    optimiser = optax.adam(0.1)

    def miss(log_cost: jax.Array) -> jax.Array:
        return jnp.mean((configuration(aim, rest, jnp.exp(log_cost)) - shown) ** 2)

    def improve(carry: Any, _: None) -> Any:
        log_cost, state = carry
        value, slope = jax.value_and_grad(miss)(log_cost)
        change, state = optimiser.update(slope, state)
        return (optax.apply_updates(log_cost, change), state), value

    start = jnp.asarray(-1.0)
    learn = jax.jit(chex.assert_max_traces(lambda x: jax.lax.scan(improve, (x, optimiser.init(x)), length=150), n=1))
    (log_cost, _), misses = learn(start)
    learn(start + 0.5)
    assert misses[-1] < 1e-4 * misses[0]
    np.testing.assert_allclose(np.exp(log_cost), 0.7, rtol=0.02)
