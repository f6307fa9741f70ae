"""`qp` over batch axes: the answer to a program depends on nothing but the program; `step` has it inside."""

from functools import cache

import jax
import numpy as np
import pytest
import qp_oracle
from tables import exhaustive

from jaxik import QPSolution, qp

N, M, BATCH = 5, 3, 300


@cache
def solved(count: int) -> QPSolution:
    made = qp_oracle.random_program(np.random.default_rng(0), BATCH, N, M, 1)
    given = {name: x[:count] for name, x in made._asdict().items() if x is not None}
    return jax.device_get(qp(given.pop("H"), given.pop("c"), **given))


@exhaustive
@pytest.mark.parametrize("count", [1, 7, 130])
def test_an_answer_does_not_depend_on_the_size_of_its_batch(count: int) -> None:
    expected = jax.tree.map(lambda x: x[:count], solved(BATCH))
    for found, whole in zip(jax.tree.leaves(solved(count)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(found, whole)
