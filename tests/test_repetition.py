"""What `without_repetitions` leaves of a function, and that it is the same one, forwards and backwards."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from jaxik.batching.trailing_vmap import without_repetitions
from jaxik.numerics.rotation_log import left_jacobian, log_of_matrix


def shortened(function: Callable[..., Any], *args: Any) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    before = jax.make_jaxpr(function)(*args)
    return before, without_repetitions(before)


def count(closed: ClosedJaxpr, name: str) -> int:
    return sum(eqn.primitive.name == name for eqn in closed.jaxpr.eqns)


def test_what_is_written_twice_also_in_calls_is_computed_once_and_what_is_not_asked_for_never() -> None:
    @jax.jit
    def sine(x: jax.Array) -> jax.Array:
        return jnp.sin(x)

    def function(x: jax.Array, unread: jax.Array) -> jax.Array:
        jnp.tan(x)
        return sine(x) + jnp.sin(x) + jnp.cos(x)

    x = jnp.arange(3.0)
    before, after = shortened(function, x, x)
    assert [e.primitive.name for e in after.jaxpr.eqns] == ["sin", "add", "cos", "add"]
    assert after.in_avals == before.in_avals and after.out_avals == before.out_avals
    np.testing.assert_array_equal(jaxpr_as_fun(after)(x, x)[0], function(x, x))


def test_what_differs_in_a_parameter_a_constant_or_an_operand_stays_two() -> None:
    one, other = np.arange(1e4), np.arange(1e4) + 1  # larger than what is compared by its content

    def function(x: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.sum(x, 0), jnp.sum(x, 1), x[0] * one, x[0] * other, x[1] * one, x[1] * np.arange(1e4)

    x = jnp.ones((2, 10_000))
    _, after = shortened(function, x)
    assert count(after, "reduce_sum") == 2 and count(after, "mul") == 4
    for found, wanted in zip(jaxpr_as_fun(after)(x), function(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_effects_happen_as_often_as_they_are_written() -> None:
    seen: list[float] = []

    def function(x: jax.Array) -> jax.Array:
        jax.debug.callback(seen.append, x)
        jax.debug.callback(seen.append, x)
        return x

    _, after = shortened(function, 1.0)
    jax.jit(jaxpr_as_fun(after))(1.0)
    jax.effects_barrier()
    assert len(seen) == 2


def test_functions_keep_the_rules_of_their_derivatives() -> None:
    def ruled(slope: float) -> Callable[[jax.Array], jax.Array]:
        function = jax.custom_jvp(jnp.sin)
        function.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), slope * tangents[0]))
        return function

    _, after = shortened(lambda x: ruled(2.0)(x) + ruled(3.0)(x), 0.3)
    assert jax.grad(lambda x: jaxpr_as_fun(after)(x)[0])(0.3) == 5.0
    _, after = shortened(lambda r: left_jacobian(log_of_matrix(r))[0] + log_of_matrix(r).vector, jnp.eye(3))
    assert count(after, "custom_jvp_call") == 1


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_derivatives_of_what_is_shared_are_taken_once(mode: str) -> None:
    """Backwards no compiler would find it: each of two equal equations would be pulled at."""

    def twist(x: jax.Array) -> jax.Array:
        return jnp.stack([jnp.sum(jnp.tanh(x @ x.T)), jnp.sum(jnp.tanh(x @ x.T) ** 2)])

    x = jax.random.normal(jax.random.key(0), (3, 3))
    before, after = shortened(lambda x, dx: jax.jvp(twist, (x,), (dx,))[1], x, x)

    def pulled(closed: ClosedJaxpr) -> Callable[[jax.Array], Any]:
        linear = lambda dx: jaxpr_as_fun(closed)(x, dx)[0]  # noqa: E731
        if mode == "forward":
            return linear
        return lambda pull: jax.linear_transpose(linear, x)(pull)[0]

    by = x if mode == "forward" else jnp.asarray([0.3, -2.0])
    np.testing.assert_allclose(pulled(after)(by), pulled(before)(by), rtol=1e-12)
    products = [count(jax.make_jaxpr(pulled(closed))(by), "dot_general") for closed in (before, after)]
    assert products[1] < products[0], products


def test_derivatives_of_maxima_compare_what_the_larger_one_is_of() -> None:
    """With each other: rounded anew by a kernel of its own, neither may be equal to the maximum."""

    def function(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.maximum(x, y), jnp.minimum(2 * x, y), jnp.clip(x - y, -1, 1), jnp.maximum(0.5, x)

    values = jnp.asarray([-2.0, -0.0, 0.0, 0.5, 1.0, jnp.inf, jnp.nan])
    x, y = (a.ravel() for a in jnp.meshgrid(values, values))
    before, after = shortened(lambda *at: jax.jvp(function, at, (x + 2, y - 3)), x, y)
    given = [jaxpr_as_fun(closed)(x, y) for closed in (before, after)]
    for wanted, found in zip(*given, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert count(after, "eq") == 0 and count(after, "ge") > 0 and count(after, "le") > 0


def test_what_asks_for_equality_with_anything_else_asks_for_it_still() -> None:
    def function(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.maximum(x, y) == y + 1, x == y, jnp.maximum(x, y) == jnp.minimum(x, y)

    x = jnp.arange(3.0)
    _, after = shortened(function, x, x)
    assert count(after, "eq") == 3
