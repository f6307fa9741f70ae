"""`solve` over batch axes, to the last bit: an element's answer depends on nothing but the element."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solves import MANY, batched, problem, targets
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import FrameTask, Problem, Status, solve


def test_the_targets_have_every_ending() -> None:
    assert {Status.CONVERGED, Status.STALLED} <= set(batched(MANY).status.tolist())


@pytest.mark.parametrize("count", mostly_exhaustive([1, 7], [7]))
def test_an_element_does_not_depend_on_the_size_of_its_batch(count: int) -> None:
    few = batched(count)
    assert few.q.shape == (count, 2) and few.status.shape == (count,)
    chex.assert_trees_all_equal(few, jax.tree.map(lambda x: x[:count], batched(MANY)))  # bitwise


@exhaustive
@pytest.mark.parametrize("count", [3, 40])
def test_an_arm_in_float32_does_not_depend_on_the_size_of_its_batch(count: int) -> None:
    """To the last bit: programs of other numbers of lanes round otherwise."""
    arm = jaxik.load_robot("panda").astype(jnp.float32)
    tip = arm.frame("tcp")
    goal = arm.frame_pose(arm.sample(jax.random.key(1), (200,)), tip)
    middle = 0.5 * (arm.limit_lower + arm.limit_upper)

    def solved(count: int) -> jaxik.Solution:
        return solve(Problem(arm, {"tip": FrameTask(tip, jax.tree.map(lambda x: x[:count], goal))}), middle)

    whole = solved(200)
    assert whole.q.dtype == jnp.float32
    np.testing.assert_array_equal(solved(count).q, whole.q[:count])


def test_an_element_does_not_depend_on_its_neighbours() -> None:
    order = np.random.default_rng(1).permutation(MANY)
    shuffled = jax.device_get(solve(problem(targets()[order])))
    chex.assert_trees_all_equal(shuffled, jax.tree.map(lambda x: x[order], batched(MANY)))  # bitwise


@exhaustive
@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("panda", ["tcp"]),
        ("ur5e", ["tcp"]),
        ("dual_arm", ["left_tcp", "right_tcp"]),
        ("humanoid", ["left_hand", "right_hand", "left_foot", "right_foot"]),
    ],
)
def test_the_same_problem_has_the_same_answer_on_every_lane(name: str, frames: list[str]) -> None:
    """LLVM writes vectors of a kernel out one by one, and where its limits end, in the middle of one, rounds otherwise.

    So did lanes 16 to 31 and 96 to 111 of 128 on an AMD EPYC with vectors of 512 bits, in 3 of 40 solves of a Panda.
    """
    robot = jaxik.load_robot(name).astype(jnp.float32)
    lanes, (goals, starts) = 128, (robot.sample(jax.random.key(k), (64,)) for k in (3, 5))

    def everywhere(x: jax.Array) -> jax.Array:
        return jnp.repeat(x, lanes, axis=0)

    poses = {frame: robot.frame_pose(goals, frame) for frame in frames}
    tasks = {f: FrameTask(robot.frame(f), jax.tree.map(everywhere, pose)) for f, pose in poses.items()}
    q = solve(Problem(robot, tasks), everywhere(starts)).q.reshape(len(goals), lanes, -1)
    np.testing.assert_array_equal(q, jnp.broadcast_to(q[:, :1], q.shape))
