"""`solve` over batch axes: alone, nested, broadcast, and by any way to a batch the same answers."""

import dataclasses
from functools import cache
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solves import batched, problem, robot, targets
from tables import exhaustive

import jaxik
from jaxik import ConfigurationLimit, FrameTask, JaxikError, Problem, SolveOptions, Status, solve


@cache
def alone(count: int = 7) -> jaxik.Solution:
    """The narrow path, element by element."""
    found = [jax.device_get(solve(problem(jnp.asarray(t)))) for t in targets()[:count]]
    return jax.tree.map(lambda *xs: np.stack(xs), *found)


def assert_same_answers(found: jaxik.Solution, expected: jaxik.Solution) -> None:
    """Equal statuses, and answers equal to the accuracy of a stationary point."""
    chex.assert_trees_all_equal_shapes_and_dtypes(jax.device_get(found), expected)
    np.testing.assert_array_equal(found.status, expected.status)
    np.testing.assert_allclose(found.q, expected.q, atol=1e-7)
    np.testing.assert_allclose(found.cost, expected.cost, atol=1e-12)
    chex.assert_trees_all_close(jax.device_get(found.residuals), expected.residuals, atol=1e-7)


def test_an_element_alone_is_the_element_in_a_batch() -> None:
    assert set(alone().status.tolist()) == {Status.CONVERGED, Status.STALLED}
    assert_same_answers(batched(7), alone())


def test_vmap_of_vmap_is_the_batch() -> None:
    nested = jax.vmap(jax.vmap(lambda target: solve(problem(target))))(targets()[:6].reshape(3, 2, 3))
    assert nested.q.shape == (3, 2, 2)
    folded = jax.tree.map(lambda x: x.reshape(6, *x.shape[2:]), nested)
    assert_same_answers(folded, jax.tree.map(lambda x: x[:6], batched(7)))


@exhaustive
def test_jit_of_vmap_over_batches_is_the_batch() -> None:
    """A `vmap` over an argument that has a batch axis already, the robot closed over."""
    goals = np.stack([1.65 * np.cos([0, 0.05, -0.05]), 1.65 * np.sin([0, 0.05, -0.05]), np.zeros(3)], -1)
    starts = jnp.array([[-0.1, 0.9], [0.1, -0.9]])  # which end with the elbow on either side
    pairs = jax.jit(jax.vmap(lambda start: solve(problem(goals), start)))(starts)
    assert pairs.q.shape == (2, 3, 2)
    assert np.abs(pairs.q[0] - pairs.q[1]).min() > 0.1
    for i, start in enumerate(starts):
        singles = [jax.device_get(solve(problem(jnp.asarray(goal)), start)) for goal in goals]
        assert_same_answers(jax.tree.map(lambda x, i=i: x[i], pairs), jax.tree.map(lambda *xs: np.stack(xs), *singles))


def test_every_leaf_may_have_batch_axes_and_they_broadcast() -> None:
    rng = np.random.default_rng(2)
    lengths = robot().body_position * jnp.asarray(rng.uniform(0.8, 1.2, (4, 1, 1, 1)))
    upper = robot().limit_upper * jnp.asarray(rng.uniform(0.5, 1.0, (3, 1)))
    given = {
        "target": targets()[:3],
        "position_cost": rng.uniform(0.5, 2, (4, 1, 3)),
        "position_tolerance": 10.0 ** -rng.uniform(2, 6, (4, 1)),
        "lengths": lengths,
        "upper": upper,
        "margin": rng.uniform(0, 0.1, 3),
        "dof_mask": rng.random((4, 1, 2)) < 0.8,
        "q0": rng.uniform(-0.3, 0.3, (4, 3, 2)),
        "max_steps": np.array([100, 100, 2]),
        "initial_damping": 10.0 ** rng.uniform(-3, 0, (4, 1)),
    }
    ranks = {"target": 1, "position_cost": 1, "lengths": 2, "upper": 1, "dof_mask": 1, "q0": 1}

    def solved(given: dict[str, Any]) -> jaxik.Solution:
        arm = dataclasses.replace(robot(), body_position=given["lengths"], limit_upper=given["upper"])
        options = {name: given[name] for name in ("target", "position_cost", "position_tolerance")}
        asked = Problem(
            arm,
            {"tip": FrameTask(arm.frame("tip"), orientation_cost=None, **options)},
            limits=(ConfigurationLimit(margin=given["margin"]),),
            dof_mask=given["dof_mask"],
        )
        options = SolveOptions(max_steps=given["max_steps"], initial_damping=given["initial_damping"])
        return jax.device_get(solve(asked, given["q0"], options=options))

    together = solved(given)
    assert together.q.shape == (4, 3, 2) and together.residuals["tip"]["position"].shape == (4, 3, 3)
    for index in np.ndindex(4, 3):
        one = {
            k: jnp.asarray(np.broadcast_to(v, (4, 3, *v.shape[v.ndim - ranks.get(k, 0) :]))[index])
            for k, v in given.items()
        }
        assert_same_answers(jax.tree.map(lambda x, index=index: x[index], together), solved(one))


def test_no_elements_give_no_answers() -> None:
    nothing = solve(problem(np.zeros((0, 3))))
    assert nothing.q.shape == (0, 2) and nothing.residuals["tip"]["position"].shape == (0, 3)
    assert nothing.status.dtype == jnp.int32


def test_new_values_do_not_retrace() -> None:
    @jax.jit
    @chex.assert_max_traces(n=1)
    def solved(problem: Problem, q0: jax.Array, options: SolveOptions) -> jaxik.Solution:
        return solve(problem, q0, options=options)

    def asked(target: Any, cost: Any, tolerance: Any, margin: Any) -> Problem:
        task = FrameTask(robot().frame("tip"), target, cost, None, position_tolerance=tolerance)
        return Problem(robot(), {"tip": task}, limits=(ConfigurationLimit(margin=margin),))

    given = asked([1.2, 0.5, 0], 1.0, 1e-4, 0.0), robot().q_home, SolveOptions()
    second = (
        asked(np.array([1.0, 0.2, 0]), jnp.asarray(2.0), np.float64(1e-5), 0.1),
        jnp.array([0.1, 0.2]),
        SolveOptions(7, 0.1),
    )
    third = asked([1, 1, 0], 2, 0, 0), robot().q_home, SolveOptions(max_steps=np.int64(50), initial_damping=1)
    compiled = solved.lower(*given).compile()
    assert not np.allclose(compiled(*given).q, compiled(*second).q)
    for other in (second, third):
        solved.lower(*other)  # by the same trace
        compiled(*other)


def test_an_exported_program_gives_the_same_answers() -> None:
    whole = jax.export.export(jax.jit(lambda targets: solve(problem(targets))))
    program = whole(jax.ShapeDtypeStruct((7, 3), jnp.float64))
    assert_same_answers(program.call(targets()[:7]), alone())
    (size,) = jax.export.symbolic_shape("n")
    with pytest.raises(JaxikError, match="symbolic size n: .* fill smaller batches up"):
        whole(jax.ShapeDtypeStruct((size, 3), jnp.float64))


def test_starts_may_be_whole_numbers() -> None:
    assert_same_answers(solve(problem(jnp.asarray(targets()[0])), [0, 0]), jax.tree.map(lambda x: x[0], alone()))
