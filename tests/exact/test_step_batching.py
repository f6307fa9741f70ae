"""`step` over batch axes, to the last bit: an element's answer depends on nothing but the element."""

import chex
import jax
import numpy as np
import pytest
from steps import MANY, batched, given, stepped
from tables import mostly_exhaustive

from jaxik import Status


def test_the_elements_are_at_limits_and_off_them() -> None:
    found = batched(MANY)
    np.testing.assert_array_equal(found.status, Status.CONVERGED)
    assert found.velocity.shape == (MANY, 2) and found.status.dtype == np.int32
    assert 0.1 < np.mean(found.qp.active.bounds != 0) < 0.9


@pytest.mark.parametrize("count", mostly_exhaustive([1, 7], [7]))
def test_an_element_does_not_depend_on_the_size_of_its_batch(count: int) -> None:
    chex.assert_trees_all_equal(batched(count), jax.tree.map(lambda x: x[:count], batched(MANY)))  # bitwise


def test_an_element_does_not_depend_on_its_neighbours() -> None:
    order = np.random.default_rng(1).permutation(MANY)
    shuffled = jax.device_get(stepped({name: value[order] for name, value in given().items()}))
    chex.assert_trees_all_equal(shuffled, jax.tree.map(lambda x: x[order], batched(MANY)))  # bitwise
