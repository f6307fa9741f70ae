"""Derivatives of solutions as programs use them: again, in float32, and where there are none."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from derivatives import MODES, PLANAR, configuration, loss, places, planar
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import DerivativeStatus, JaxikError, Problem, SearchOptions, SolveOptions


@pytest.mark.parametrize("mode", mostly_exhaustive(MODES, ["forward over reverse"]))
def test_second_derivatives_agree_with_differences_in_every_mode(mode: str) -> None:
    aim, rest = places()

    def along(t: Any) -> jax.Array:
        return loss(aim + t * 0.3, rest + t * jnp.asarray([0.2, -0.4]), 0.3 + 0.1 * t)

    both = jax.jit(functools.partial(MODES[mode], along))
    wanted = (both(1e-5)[0] - both(-1e-5)[0]) / 2e-5
    np.testing.assert_allclose(both(0.0)[1], wanted, rtol=1e-6)


@exhaustive
def test_a_gradient_of_a_thousand_steps_is_the_program_of_ten() -> None:
    """And so takes the same memory."""
    aim, rest = places()

    @jax.jit
    @jax.grad
    def slope(aim: Any, most: Any) -> jax.Array:
        return jnp.sum(jaxik.solve(planar(aim, rest), options=SolveOptions(max_steps=most)).q)

    few, many = slope(aim, 10), slope(aim, 1000)
    assert slope._cache_size() == 1
    np.testing.assert_allclose(few, many, atol=1e-9)


def test_all_of_a_result_is_pulled_back_and_counts_have_no_tangents() -> None:
    aim, rest = places()
    solution, pull = jax.vjp(lambda aim: jaxik.solve(planar(aim, rest)), aim)
    ones = jax.tree.map(
        lambda x: jnp.ones_like(x) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0),
        solution,
    )
    assert np.isfinite(pull(ones)[0]).all()
    assert (solution.derivative_status == DerivativeStatus.EXACT).all()
    moved = jax.eval_shape(lambda aim: jax.jvp(lambda aim: jaxik.solve(planar(aim, rest)), (aim,), (aim,))[1], aim)
    assert moved.status.dtype == moved.iterations.dtype == jax.dtypes.float0


@exhaustive
def test_what_is_not_differentiated_says_so() -> None:
    kinds = jaxik.solve(planar(*places())).derivative_status
    assert (kinds == DerivativeStatus.NOT_COMPUTED).all()


@exhaustive
def test_float32_is_as_good_as_its_solution() -> None:
    wanted = jax.grad(loss, (0, 1, 2))(*places(), 0.3)
    found = jax.grad(loss, (0, 1, 2))(*places(np.float32), np.float32(0.3))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-3 * np.abs(b).max())


@pytest.mark.parametrize("kind", mostly_exhaustive(["method", "property"], ["property"]))
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

        return Problem(PLANAR, {"reach": Reach()})

    assert jaxik.solve(written(0.2)).converged  # what is known is a constant
    with pytest.raises(JaxikError, match=r"task 'reach': Reach closes over the traced value 'aim'.*jaxik.leaf"):
        jax.grad(lambda aim: jnp.sum(jaxik.solve(written(aim)).q))(0.2)


def test_a_program_that_is_not_finite_has_no_derivative() -> None:
    box = {"lower": -np.ones(2), "upper": np.ones(2)}
    slope = jax.grad(lambda c: jnp.sum(jaxik.qp(np.eye(2), c, **box).x))(jnp.asarray([[0.1, 0.2], [jnp.nan, 0.3]]))
    np.testing.assert_allclose(slope, [[-1, -1], [0, 0]], atol=1e-12)


@exhaustive
@pytest.mark.parametrize("num_candidates", [1, 2])
def test_a_search_has_the_derivative_of_what_it_found(num_candidates: int) -> None:
    aim, rest = places()
    key, options = jax.random.key(0), SearchOptions(max_starts=8, num_candidates=num_candidates)

    @jax.jit
    def searched(aim: Any, rest: Any, cost: Any) -> jax.Array:
        return jaxik.search(planar(aim, rest, cost), key, options=options).q

    along = [0.3 * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape) for x in (aim, rest, jnp.asarray(0.3))]

    def moved(by: Any) -> jax.Array:
        return searched(*(x + by * d for x, d in zip((aim, rest, 0.3), along, strict=True)))

    forth = jax.jacfwd(moved)(0.0)
    np.testing.assert_allclose(forth, (moved(1e-5) - moved(-1e-5)) / 2e-5, atol=1e-6 * np.abs(forth).max())
    np.testing.assert_allclose(jax.jacrev(moved)(0.0), forth, rtol=1e-9, atol=1e-12)


def test_linearizations_differentiate() -> None:
    aim, rest = places()

    @jax.jit
    @jax.value_and_grad
    def both(q: Any) -> jax.Array:
        return jnp.sum(jnp.sin(jaxik.linearize(planar(aim, rest), q, 0.1).H))

    q, step = np.asarray(rest), 1e-6 * np.asarray([0.3, -0.7])
    wanted = (both(q + step)[0] - both(q - step)[0]) / 2
    np.testing.assert_allclose(np.sum(both(q)[1] * step), wanted, rtol=1e-5)


@exhaustive
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
