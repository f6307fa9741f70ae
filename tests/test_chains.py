"""Independent chains of a problem: found by what they share, and each with a status of its own."""

import dataclasses
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from tables import exhaustive

import jaxik
from jaxik.results.chains import Chain
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.chains import Ends, chain_status, connected, slots_of
from jaxik.solvers.nonlinear.formulation import formulation
from jaxik.solvers.nonlinear.hard_constraint import with_hard_constraints


@cache
def pair() -> Robot:
    """Two planar arms of three links of 1 m, each with its tip on a line along x."""
    made = jaxik.Mechanism("pair")
    for side, y in (("left", 0.0), ("right", 9.0)):
        made.link(f"{side}0", position=(0, y, 0), joints="EZ", rest=0.3)
        made.link(f"{side}1", f"{side}0", position=(1, 0, 0), joints="EZ", rest=0.5)
        made.link(f"{side}2", f"{side}1", position=(1, 0, 0), joints="EZ", rest=-0.4)
        made.frame(f"{side}_tip", f"{side}2", position=(1, 0, 0))
        made.frame(f"{side}_line", "world", position=(0, y, 0))
        made.closure(f"{side}_rail", f"{side}_tip", f"{side}_line", ("y",))
    return made.build()


@cache
def solved() -> jaxik.Solution:
    """Of the right arm: all well, its goal out of reach, its line out of reach, and its goal not finite."""
    robot = pair()
    sites = jnp.tile(robot.site_position, (4, 1, 1)).at[2, robot.frame("right_line").index, 1].set(20.0)
    along = jnp.array([1.0, 0, 0, 0, 0, 0])
    right = jnp.array([[2.2, 9, 0], [7.0, 9, 0], [2.2, 9, 0], [jnp.nan, 9, 0]])
    aims = {"left": jnp.array([2.2, 0, 0]), "right": right}
    tasks = {
        side: jaxik.FrameTask(
            robot.frame(f"{side}_tip"),
            aim,
            # A cost for each row makes one unlike the other: they are solved together.
            position_cost=jnp.ones(3) if side == "left" else 1.0,
            orientation_cost=None,
            mask=along,
            axes="world",
            position_tolerance=1e-6,
        )
        for side, aim in aims.items()
    }
    return jaxik.solve(jaxik.Problem(dataclasses.replace(robot, site_position=sites), tasks))


def test_a_bad_chain_is_named_and_spoils_no_other() -> None:
    found = solved()
    converged, stalled, infeasible = jaxik.Status.CONVERGED, jaxik.Status.STALLED, jaxik.Status.INFEASIBLE
    nonfinite = jaxik.Status.NONFINITE
    assert found.status.tolist() == [converged, stalled, infeasible, nonfinite]
    chains = found.chains
    assert chains.goals == (("left",), ("right",))
    assert chains.closures == (("left_rail",), ("right_rail",))
    assert chains.joints == (("left0", "left1", "left2"), ("right0", "right1", "right2"))
    np.testing.assert_array_equal(chains.status, [[0, 0], [0, stalled], [0, infeasible], [0, nonfinite]])
    assert np.all(np.asarray(chains.residual)[:, 0] < 1e-6)
    assert np.all(np.abs(np.asarray(found.residuals["model"])[1]) < 1e-9)  # an unreachable goal bends no closure


def test_a_chain_takes_the_same_steps_whatever_becomes_of_another() -> None:
    found = solved()
    left = np.asarray(found.chains.iterations)[:, 0]
    assert 0 < left[0] < found.iterations[1]
    np.testing.assert_array_equal(left, left[0])
    np.testing.assert_allclose(found.q[:, :3], np.broadcast_to(found.q[0, :3], (4, 3)), rtol=0, atol=1e-14)


def test_a_task_that_no_joint_moves_is_of_no_chain() -> None:
    assert named(pair(), pulled()) == [("left",), ("right",)]


def pulled() -> dict[str, jaxik.Task]:
    """A goal of each arm, and one of a frame that is fixed."""
    robot = pair()
    tasks = {side: reached(robot, f"{side}_tip", (2.2, y, 0.0)) for side, y in (("left", 0.0), ("right", 9.0))}
    return tasks | {"fixed": reached(robot, "left_line", (0.3, 0.0, 0.0))}


@exhaustive
def test_a_task_that_no_joint_moves_costs() -> None:
    found = jaxik.solve(jaxik.Problem(pair(), pulled(), constraints={}))
    assert found.status == jaxik.Status.STALLED
    np.testing.assert_allclose(found.cost, 0.5 * 0.3**2, rtol=1e-9)
    assert found.chains.goals == (("left",), ("right",))
    np.testing.assert_array_equal(found.chains.status, jaxik.Status.CONVERGED)


def test_chains_are_saved_with_their_solution(tmp_path: Path) -> None:
    jaxik.save(tmp_path / "found.npz", solved())
    loaded = jaxik.load(tmp_path / "found.npz")
    assert isinstance(loaded, jaxik.Solution)
    np.testing.assert_array_equal(loaded.chains.status, solved().chains.status)
    np.testing.assert_array_equal(loaded.chains.iterations, solved().chains.iterations)
    assert loaded.chains[4:] == solved().chains[4:]


def reached(robot: Robot, frame: str, place: tuple[float, ...] = (0.0, 0.0, 0.0)) -> jaxik.FrameTask:
    return jaxik.FrameTask(robot.frame(frame), jnp.asarray(place), orientation_cost=None)


def named(robot: Robot, tasks: dict[str, jaxik.Task], **options: jax.Array) -> list[tuple[str, ...]]:
    """Goals of each chain."""
    problem = with_hard_constraints(jaxik.Problem(robot, tasks, **options), 1e-9)
    found: list[Chain] = []
    jax.eval_shape(lambda: found.extend(slots_of(formulation(problem)).chains))  # nothing is evaluated
    return [chain.goals for chain in found]


def test_what_shares_a_joint_is_one_chain() -> None:
    hand = jaxik.load_robot("hand")
    tips = {name: reached(hand, f"{name}_tip") for name in ("index", "thumb")}
    assert sorted(named(hand, tips)) == [("index",), ("thumb",)]
    # A preference joins nothing; it is one of each chain.
    rest = jaxik.PostureTask(hand.q_home, priority=1)
    assert sorted(named(hand, {**tips, "rest": rest})) == [("index", "rest"), ("rest", "thumb")]
    both = jaxik.RelativeFrameTask(hand.frame("index_tip"), hand.frame("thumb_tip"), jaxlie.SE3.identity())
    assert named(hand, {**tips, "pinch": both}) == [("index", "pinch", "thumb")]
    arms = jaxik.load_robot("dual_arm")
    assert named(arms, {side: reached(arms, f"{side}_tcp") for side in ("left", "right")}) == [("left", "right")]


def test_chains_come_by_their_first_joint_and_closures_join_them() -> None:
    robot = pair()
    tasks = {"a": reached(robot, "right_tip"), "b": reached(robot, "left_tip")}
    assert named(robot, tasks) == [("b",), ("a",)]
    joined = robot.with_closure("rod", "left_tip", "right_tip", "spherical")
    assert named(joined, tasks) == [("a", "b")]
    assert named(robot, {"rest": jaxik.PostureTask(robot.q_home, tolerance=1e-3)}) == [("rest",), ("rest",)]


def test_chains_follow_which_closures_are_on() -> None:
    """A rod between the arms, on and off, and a goal of the right arm that is missed."""
    robot = pair().with_closure("rod", "left_tip", "right_tip", "spherical")
    tasks = {side: reached(robot, f"{side}_tip") for side in ("left", "right")}
    residuals = {name: {"position": jnp.full(3, off)} for name, off in (("left", 0.0), ("right", 1.0))}

    def told(rod: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        switched = robot.with_active({"rod": rod})
        prepared = formulation(with_hard_constraints(jaxik.Problem(switched, tasks), 1e-9))
        slots = slots_of(prepared)
        assert [chain.goals for chain in slots.chains] == [("left",), ("right",)]
        assert all("rod" in chain.closures for chain in slots.chains)
        ends = Ends(jnp.array([False, True]), jnp.array([3, 4]))
        return chain_status(prepared, slots, {**residuals, "model": jnp.zeros(5)}, ends)

    status, label = jax.jit(jax.vmap(told))(jnp.array([False, True]))
    converged, stalled, timeout = jaxik.Status.CONVERGED, jaxik.Status.STALLED, jaxik.Status.TIMEOUT
    np.testing.assert_array_equal(label, [[0, 1], [0, 0]])
    np.testing.assert_array_equal(status, [[converged, stalled], [timeout, timeout]])


@exhaustive
def test_joints_that_switched_closures_alone_read_are_chains_by_which_of_them_do() -> None:
    hexapod = jaxik.load_robot("hexapod")
    feet = [f"foot{i}" for i in range(3)]
    prepared = formulation(
        with_hard_constraints(
            jaxik.Problem(
                hexapod.pinned(hexapod.q_home, feet, jnp.array([True, False, True])),
                {"body": jaxik.FrameTask(hexapod.frame("center"), hexapod.frame_pose(hexapod.q_home, "center"))},
            ),
            1e-9,
        )
    )
    slots = slots_of(prepared)
    assert len(slots.chains) == 4 and slots.chains[0].goals == ("body",)
    assert [chain.closures for chain in slots.chains] == [tuple(feet), *((foot,) for foot in feet)]
    one = np.asarray(connected(prepared, slots))
    np.testing.assert_array_equal(one.argmax(axis=1), [0, 0, 2, 0])
