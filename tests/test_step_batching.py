"""`step` over batch axes and under transformations: by any way to a batch the same answers."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from limit_rows import planar
from steps import batched, first, given, problem, stepped
from tables import exhaustive

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    FrameTask,
    PostureTask,
    Problem,
    Status,
    VelocityLimit,
    linearize,
    step,
)


def cut(result: Any, count: int) -> Any:
    return jax.tree.map(lambda x: x[:count], result)


def assert_same_answers(found: Any, expected: jaxik.StepResult) -> None:
    chex.assert_trees_all_equal_shapes_and_dtypes(jax.device_get(found), expected)
    np.testing.assert_array_equal(found.status, expected.status)
    np.testing.assert_allclose(found.velocity, expected.velocity, atol=1e-10)
    np.testing.assert_allclose(found.q, expected.q, atol=1e-12)
    chex.assert_trees_all_close(jax.device_get(found.residuals), expected.residuals, atol=1e-12)


def test_new_values_do_not_retrace_and_an_element_alone_is_the_element_in_a_batch() -> None:
    @jax.jit
    @chex.assert_max_traces(n=1)
    def alone(asked: Problem, q: Any, dt: Any, damping: Any, previous: Any) -> jaxik.StepResult:
        return step(asked, q, dt, damping=damping, previous_velocity=previous)

    found = []
    for i in range(7):
        at = jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), given())
        found.append(jax.device_get(alone(problem(at), at["q"], at["dt"], at["damping"], at["previous"])))
    assert_same_answers(jax.tree.map(lambda *xs: np.stack(xs), *found), batched(7))
    # Numbers in the place of arrays are the same program.
    at = {**jax.tree.map(lambda x: x[0], given()), "gain": 1, "dt": 0.05, "damping": 0}
    alone(problem(at), jnp.asarray(at["q"]), np.float64(at["dt"]), np.float64(0), jnp.asarray(at["previous"]))


def test_the_verb_itself_does_not_recompile() -> None:
    batched(7)
    before = traces()
    again = {**first(7), "dt": np.full(7, 0.3), "gain": np.full(7, 0.4), "damping": np.full(7, 1e-4)}
    stepped({**again, "q": again["q"] * 0.5, "target": again["target"] * 2, "previous": again["previous"] + 1})
    assert traces() == before


def traces() -> int:
    from jaxik.solvers.differential.step import stepped

    return stepped._cache_size()  # type: ignore[attr-defined]


@exhaustive
def test_vmap_of_vmap_is_the_batch() -> None:
    nested = {name: value[:6].reshape(3, 2, *value.shape[1:]) for name, value in given().items()}
    found = jax.vmap(jax.vmap(stepped))(nested)
    assert found.velocity.shape == (3, 2, 2)
    folded = jax.tree.map(lambda x: x.reshape(6, *x.shape[2:]), found)
    assert_same_answers(folded, cut(batched(7), 6))


def test_axes_broadcast_and_linearize_has_the_same() -> None:
    at = {**first(3), "q": given()["q"][:4, None], "dt": 0.02, "damping": np.full((4, 1), 1e-6)}
    found, model = stepped(at), linearize(problem(at), at["q"], at["dt"], previous_velocity=at["previous"])
    assert found.velocity.shape == found.limit_margins["lower"].shape == (4, 3, 2)
    assert model.H.shape == (4, 3, 2, 2) and model.c.shape == model.lower.shape == (4, 3, 2)
    matrix, most = model.inequalities()
    assert matrix.shape == (4, 3, 4, 2) and most.shape == (4, 3, 4)
    assert (matrix @ (found.velocity * 0.02)[..., None] <= most[..., None] + 1e-15).all()


@pytest.mark.parametrize("count", [2, 3])
def test_problems_of_one_number_each_are_stacked_to_a_batch(count: int) -> None:
    """As many as there are rows, and more: costs (count,) would be those of rows."""
    every = [
        Problem(
            planar(),
            {
                "tip": FrameTask(planar().frame("tip"), given()["target"][i], 0.1 * 4**i, None),
                "rest": PostureTask([0.1, 0.2], 0.5 / 2**i),
            },
            (
                VelocityLimit({planar().joint_names[0]: 0.3 * (i + 1)}),
                AccelerationLimit(9.0 * 2**i),
                ConfigurationLimit(),
            ),
        )
        for i in range(count)
    ]
    alone = np.stack([step(each, planar().q_home, 0.05).velocity for each in every])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
    np.testing.assert_allclose(step(stacked, planar().q_home, 0.05).velocity, alone, atol=1e-12)
    assert len(np.unique(np.abs(alone).max(axis=1).round(6))) == count


def test_no_step_before_is_rest_and_float32_stays() -> None:
    at = jax.tree.map(lambda x: x.astype(np.float32), {**first(7), "previous": None})
    found = stepped(at)
    chex.assert_trees_all_equal_dtypes(found.velocity, found.q, found.qp.x, jnp.zeros(0, jnp.float32))
    assert found.converged.all()
    still = stepped({**first(7), "previous": np.zeros((7, 2))})
    np.testing.assert_allclose(found.velocity, still.velocity, atol=1e-3)
    assert np.abs(still.velocity - batched(7).velocity).max() > 0.01


@exhaustive
def test_a_warm_start_changes_nothing_but_the_time() -> None:
    targets = np.stack([np.array([1.2 * np.cos(a), 1.2 * np.sin(a), 0]) for a in np.linspace(-1.0, 1.0, 100)])
    rest = jax.tree.map(lambda x: x[:7], dict(given()))

    @jax.jit
    def follow() -> Any:
        def advance(carry: Any, target: Any) -> Any:
            cold, warm, active = carry
            at = {**rest, "target": target}
            one = stepped({**at, "q": cold})
            two = step(
                problem(at), warm, at["dt"], damping=at["damping"], previous_velocity=at["previous"], warm_start=active
            )
            return (one.q, two.q, two.qp.active), (one, two)

        begun = stepped({**rest, "target": targets[0]})
        return jax.lax.scan(advance, (begun.q, begun.q, begun.qp.active), targets)[1]

    one, two = jax.device_get(follow())
    np.testing.assert_array_equal(one.status, Status.CONVERGED)
    np.testing.assert_array_equal(two.status, Status.CONVERGED)
    np.testing.assert_allclose(two.q, one.q, atol=1e-10)
    assert two.qp.iterations.sum() < 0.7 * one.qp.iterations.sum()  # at least one elimination a step
