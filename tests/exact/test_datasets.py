"""Rows of datasets to the last bit: they do not depend on how many are solved at once."""

import jax.numpy as jnp
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.datasets.rows import RowSolver


@exhaustive
@pytest.mark.parametrize("name", ["ur5e"])
def test_bits_do_not_depend_on_how_many_rows_are_solved_at_once(name: str) -> None:
    robot = jaxik.load_robot(name).astype(jnp.float32)
    task = jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp")
    plan = jaxik.Plan(jaxik.Problem(robot, {"tip": task}), 300)
    whole = RowSolver(plan, 300).rows(0, 300)
    rows = RowSolver(plan, 100).rows(130, 300)
    assert {x.dtype for key, x in rows.items() if key != "status"} == {np.dtype(np.float32)}
    for key, values in rows.items():
        np.testing.assert_array_equal(values, whole[key][130:])
