"""What a user gets wrong is said on the host, in the user's words."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest

import jaxik
from jaxik.core.validation import array, as_array

PANDA, UR5E = jaxik.load_robot("panda"), jaxik.load_robot("ur5e")
TIP = PANDA.frame("tcp")
NO_JOINTS = '<mujoco><worldbody><body name="b"><site name="s"/></body></worldbody></mujoco>'


class Undecorated(jaxik.Task):
    def residual(self, robot: Any, kin: Any) -> jax.Array:
        return kin.q


@jaxik.pytree
class Pull(jaxik.Task):
    """The configuration itself, with a cost of any shape."""

    cost: Any = jaxik.leaf(1, default=1.0)

    def residual(self, robot: Any, kin: Any) -> jax.Array:
        return kin.q - 0.5


def _solve_without_joints() -> None:
    robot = jaxik.load_robot(NO_JOINTS)
    target = jaxlie.SE3.identity()
    jaxik.solve(jaxik.Problem(robot, {"t": jaxik.FrameTask(robot.frame("s"), target)}))


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "frame of another robot": (lambda: PANDA.frame_pose(PANDA.q_home, UR5E.frame("tcp")), "of another robot"),
    "task on another robot": (
        lambda: jaxik.Problem(PANDA, {"t": jaxik.FrameTask(UR5E.frame("tcp"), jaxlie.SE3.identity())}),
        "of another robot",
    ),
    "frame by number": (lambda: PANDA.frame(3), "by its name"),
    "mount without a pose": (lambda: PANDA.with_base([0, 0, 1]), "jaxlie.SE3"),
    "tool without a pose": (lambda: PANDA.with_frame("x", "hand", jnp.zeros(3)), "jaxlie.SE3"),
    "text for a configuration": (lambda: PANDA.frame_pose("home", TIP), "nq = 7"),
    "complex configuration": (lambda: PANDA.frame_pose(jnp.zeros(7, complex), TIP), "real"),
    "complex start": (
        lambda: jaxik.solve(jaxik.Problem(PANDA, {"t": Pull()}), PANDA.q_home + 0j),
        "q0 is real, not complex128",
    ),
    "list of joint values": (lambda: PANDA.configuration([1.0]), "dict from joint name"),
    "negative sample shape": (lambda: PANDA.sample(jax.random.key(0), -1), "none negative"),
    "short pose": (lambda: jaxik.FrameTask(TIP, jaxlie.SE3(jnp.zeros(6))), "(*batch, 7)"),
    "mask above one": (lambda: jaxik.FrameTask(TIP, jaxlie.SE3.identity(), mask=[2] * 6), "[0, 1]"),
    "NaN tolerance": (
        lambda: jaxik.FrameTask(TIP, jaxlie.SE3.identity(), position_tolerance=jnp.nan),
        "position_tolerance must not be negative or NaN",
    ),
    "complex cost": (lambda: jaxik.FrameTask(TIP, jaxlie.SE3.identity(), position_cost=1j), "position_cost is real"),
    "priority between levels": (lambda: jaxik.FrameTask(TIP, jaxlie.SE3.identity(), priority=1.5), "an int"),
    "one of many obstacles": (
        lambda: jaxik.Spheres(jnp.zeros((20, 3)).at[4, 1].set(jnp.inf), 0.1),
        "center is finite, not inf at (4, 1) of an array of shape (20, 3)",
    ),
    "one of many radii": (
        lambda: jaxik.Spheres(jnp.zeros((20, 3)), jnp.ones(20).at[7].set(-0.5)),
        "-0.5 at (7,) of an array of shape (20,)",
    ),
    "NaN margin": (lambda: jaxik.ConfigurationLimit(margin=jnp.nan), "finite distance"),
    "negative steps": (lambda: jaxik.SolveOptions(max_steps=-1), "max_steps must not be negative"),
    "more steps than can be counted": (lambda: jaxik.SolveOptions(max_steps=10**10), "a whole number up to 2147483647"),
    "part of a step": (lambda: jaxik.SearchOptions(max_steps_per_start=2.5), "a whole number"),
    "steps without end": (lambda: jaxik.SolveOptions(max_steps=float("inf")), "a whole number"),
    "steps in lists of their own": (lambda: jaxik.SolveOptions(max_steps=[1, [2]]), "max_steps is a number"),
    "number in quotes": (lambda: jaxik.SolveOptions(max_steps="10"), "max_steps is a number"),
    "indices for a mask": (
        lambda: jaxik.Problem(PANDA, {"r": jaxik.PostureTask(PANDA.q_home)}, dof_mask=list(range(7))),
        "True or False",
    ),
    "part of a robot by a flag": (lambda: jaxik.ComTask(jnp.zeros(3), subtree=True), "a body's name or index"),
    "text for an option": (lambda: jaxik.SolveOptions(max_steps="a"), "max_steps is a number"),
    "task class that is no pytree": (lambda: jaxik.Problem(PANDA, {"t": Undecorated()}), "@jaxik.pytree"),
    "cost of a wrong length": (
        lambda: jaxik.solve(jaxik.Problem(PANDA, {"t": Pull(cost=jnp.ones(2))})),
        r"cost of shape (2,) does not fit a residual of shape (7,); one number for each element has shape (2, 1)",
    ),
    "nothing to move": (_solve_without_joints, "no degrees of freedom"),
    "check under jit": (
        lambda: jax.jit(lambda q0: jaxik.solve(jaxik.Problem(PANDA, {"t": Pull()}), q0).check().q)(PANDA.q_home),
        "on the host",
    ),
}


@pytest.mark.filterwarnings("ignore:.*it has no joints")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    make, words = MISTAKES[mistake]
    with pytest.raises(jaxik.JaxikError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, int])
def test_configurations_of_other_types_come_in_the_precision_of_the_robot(dtype: Any) -> None:
    q = jnp.round(PANDA.q_home).astype(dtype)
    problem = jaxik.Problem(PANDA, {"rest": jaxik.PostureTask(PANDA.q_home)})
    assert PANDA.frame_pose(q, "tcp").wxyz_xyz.dtype == PANDA.q_home.dtype
    result = jaxik.step(problem, q, 0.01)
    assert result.q.dtype == PANDA.q_home.dtype
    assert (result.q == jaxik.step(problem, q.astype(PANDA.q_home.dtype), 0.01).q).all()


def test_whole_numbers_that_integers_of_32_bits_do_not_hold_become_no_others() -> None:
    with jax.enable_x64(False):
        with pytest.raises(OverflowError):
            as_array([2**40, 0])
        assert array("x", [2**40, 0]).tolist() == [2.0**40, 0]
        assert jaxik.SolveOptions(initial_damping=np.int64(2**40)).initial_damping == 2.0**40


@pytest.mark.parametrize("given", [np.array([2.0], ">f8"), np.longdouble(2), np.float16(2), [jnp.float32(2)], 2])
def test_numbers_of_any_kind_are_taken(given: Any) -> None:
    with jax.transfer_guard("disallow"):
        limit = jaxik.VelocityLimit(given)
    assert np.all(np.asarray(limit.max_velocity) == 2) and limit.max_velocity.shape == (1,)
    below = -jnp.asarray(given, float)
    with pytest.raises(jaxik.JaxikError, match="zero or above"):  # of what is known, within a trace as well
        jax.jit(lambda: jaxik.VelocityLimit(below))()


def test_counts_may_be_lists_of_what_is_traced() -> None:
    steps = jax.jit(lambda count: jaxik.SolveOptions(max_steps=[count, 2]).max_steps)(7)
    assert steps.tolist() == [7, 2]


def test_a_task_without_tolerance_converges_where_its_residual_reaches_zero() -> None:
    found = jaxik.solve(
        jaxik.Problem(PANDA, {"t": Pull()}, limits=()), PANDA.q_home, options=jaxik.SolveOptions(max_steps=20)
    )
    assert found.status == jaxik.Status.CONVERGED
    assert found.iterations < 12
    assert jnp.abs(found.q - 0.5).max() < 1e-11


def test_a_margin_that_is_nan_under_jit_does_not_reach_the_configuration() -> None:
    def solve(margin: jax.Array) -> jaxik.Solution:
        limits = (jaxik.ConfigurationLimit(margin=margin),)
        return jaxik.solve(jaxik.Problem(PANDA, {"t": Pull()}, limits=limits), PANDA.q_home)

    assert jnp.isfinite(jax.jit(solve)(jnp.asarray(jnp.nan)).q).all()
