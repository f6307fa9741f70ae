"""The verb `qp`: batches, transformations, closed forms, and what it refuses."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qp_oracle

import jaxik
from jaxik import JaxikError, QPOptions, QPSolution, Status, qp

N, M, BATCH = 5, 3, 300


@cache
def programs() -> dict[str, jax.Array]:
    made = qp_oracle.random_program(np.random.default_rng(0), BATCH, N, M, 1)
    return {name: jnp.asarray(x) for name, x in made._asdict().items() if x is not None}


def solve(given: dict[str, jax.Array], **more: Any) -> QPSolution:
    rest = dict(given)
    return qp(rest.pop("H"), rest.pop("c"), **rest, **more)


compiled = jax.jit(lambda given, options: solve(given, options=options))


@cache
def whole() -> QPSolution:
    return compiled(programs(), QPOptions(max_iterations=500))


def assert_same(one: Any, other: Any) -> None:
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def assert_alike(one: QPSolution, other: QPSolution) -> None:
    assert_same((one.status, one.active), (other.status, other.active))
    fine = np.asarray(one.status == Status.CONVERGED)
    for name in ("x", "bound_multipliers", "row_multipliers", "equality_multipliers"):
        np.testing.assert_allclose(
            np.asarray(getattr(one, name))[fine], np.asarray(getattr(other, name))[fine], atol=1e-11, err_msg=name
        )


def test_element_alone_is_solved_alike() -> None:
    alone = jax.jit(lambda given: solve(given))
    found = [alone({name: x[i] for name, x in programs().items()}) for i in range(40)]
    assert_alike(jax.tree.map(lambda *xs: np.stack(xs), *found), jax.tree.map(lambda x: x[:40], whole()))
    assert alone._cache_size() == 1


def test_vmap_and_batch_axes_are_one_thing() -> None:
    grid = {name: x.reshape(2, 150, *x.shape[1:]) for name, x in programs().items()}
    mapped = jax.jit(jax.vmap(solve))(grid)
    assert_same(mapped, jax.tree.map(lambda x: x.reshape(2, 150, *x.shape[1:]), whole()))


def test_arguments_broadcast() -> None:
    bent, slope = np.diag(np.arange(1.0, N + 1)), np.random.default_rng(1).normal(size=(4, 1, N))
    lower = np.array([-0.1, -0.2, -0.3])[:, None] * np.ones(N)
    solution = qp(bent, slope, lower=lower, upper=0.5)
    assert solution.x.shape == (4, 3, N) and solution.status.shape == (4, 3)
    np.testing.assert_allclose(solution.x, np.clip(-slope / np.diag(bent), lower, 0.5), atol=1e-15)


def test_new_data_does_not_compile_again() -> None:
    whole()
    rng = np.random.default_rng(2)
    for _ in range(3):
        compiled(programs() | {"c": jnp.asarray(rng.normal(size=(BATCH, N)))}, QPOptions(max_iterations=40))
    assert compiled._cache_size() == 1


def test_multipliers_signs_and_active_set_in_closed_form() -> None:
    # min 1/2 |x|^2 - 2 x0 + 3 x1 + x2 in the unit box with x0 + x1 + x2 <= -2.5 and x0 = 0.25.
    solution = qp(
        np.eye(3), [-2.0, 3.0, 1.0], lower=-1, upper=1, G=[[0.0, 1.0, 1.0]], h=[-1.75], A=[[2.0, 0.0, 0.0]], b=[0.5]
    )
    np.testing.assert_allclose(solution.x, [0.25, -1, -1], atol=1e-15)
    assert solution.status == Status.CONVERGED and solution.converged
    np.testing.assert_allclose(solution.equality_multipliers, [0.875], atol=1e-15)
    np.testing.assert_allclose(solution.bound_multipliers, [0, -2, 0], atol=1e-15)
    np.testing.assert_allclose(solution.row_multipliers, [0], atol=1e-15)
    np.testing.assert_array_equal(solution.active.rows, [False])
    np.testing.assert_allclose(solution.objective, 0.5 * (0.0625 + 2) - 0.5 - 4, atol=1e-15)
    tight = qp(np.eye(3), [-2.0, 3.0, 1.0], lower=-1, upper=1, G=[[1.0, 0.0, 0.0]], h=[0.5])
    np.testing.assert_allclose(tight.row_multipliers, [1.5], atol=1e-15)
    assert tight.active.rows[0] and tight.active.bounds.tolist() == [0, -1, 0]


def test_dtype_of_the_objective_decides() -> None:
    single = qp(np.eye(2, dtype=np.float32), np.ones(2, np.float32), lower=np.zeros(2), G=np.ones((1, 2)), h=[1.0])
    assert {x.dtype for x in jax.tree.leaves(single) if jnp.issubdtype(x.dtype, jnp.floating)} == {jnp.dtype("float32")}
    assert qp([[1, 0], [0, 1]], [1, 0]).x.dtype == jnp.float64


def test_batch_of_none_gives_none() -> None:
    assert qp(np.eye(2), np.zeros((0, 2))).x.shape == (0, 2)


EYE = np.eye(3)
REFUSED = [
    (dict(H=np.ones((2, 3)), c=np.ones(3)), "H has shape .* not .2, 3."),
    (dict(H=EYE, c=np.ones(2)), "c has shape .* n = 3 .* not .2"),
    (dict(H=EYE, c="no"), "c is an array"),
    (dict(H=EYE * 1j, c=np.ones(3)), "H is an array .* real numbers, not of complex"),
    (dict(H=EYE.astype(np.float16), c=np.ones(3, np.float16)), "float32 or float64, not float16"),
    (dict(H=EYE, c=np.ones(3), lower=np.ones(2)), "lower has shape"),
    (dict(H=EYE, c=np.ones(3), G=np.ones((2, 3))), "G and h come together"),
    (dict(H=EYE, c=np.ones(3), b=np.ones(2)), "A and b come together"),
    (dict(H=EYE, c=np.ones(3), G=np.ones((2, 4)), h=np.ones(2)), "G has shape"),
    (dict(H=EYE, c=np.ones(3), A=np.ones((2, 3)), b=np.ones(3)), "b has shape .* p = 2"),
    (dict(H=np.ones((2, 3, 3)), c=np.ones((4, 3))), "do not broadcast"),
    (dict(H=EYE, c=np.ones(3), options=3), "QPOptions, not int"),
    (dict(H=EYE, c=np.ones(3), warm_start=[1, 2, 3]), "warm_start is an ActiveSet"),
    (
        dict(H=EYE, c=np.ones(3), warm_start=jaxik.ActiveSet(np.zeros(3, int), np.zeros(2, bool))),
        "warm_start.rows .* m = 0",
    ),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_wrong_arguments_are_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(JaxikError, match=said):
        qp(**arguments)


@pytest.mark.parametrize(("name", "value"), [("max_iterations", -1), ("tolerance", "tight"), ("tolerance", np.nan)])
def test_wrong_options_are_named(name: str, value: Any) -> None:
    with pytest.raises(JaxikError, match=name):
        QPOptions(**{name: value})
