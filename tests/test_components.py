"""Chains that are alike and hang together in no way are solved as a batch of problems: each as it is solved alone."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.components import components_of
from jaxik.solvers.nonlinear.hard_constraint import with_hard_constraints

SPACING = 9.0
FINGERS = ("index", "middle", "ring", "thumb")
# Of the last arm: all well, its goal out of reach, its rail out of reach, its goal not finite.
CASES = 4


@cache
def arms(count: int, rails: bool = True) -> Robot:
    """Planar arms of three links of 1 m, each with its tip on a line along x, or free."""
    made = jaxik.Mechanism(f"arms{count}")
    for k in range(count):
        made.link(f"{k}0", position=(0, SPACING * k, 0), joints="EZ", rest=0.3)
        made.link(f"{k}1", f"{k}0", position=(1, 0, 0), joints="EZ", rest=0.5)
        made.link(f"{k}2", f"{k}1", position=(1, 0, 0), joints="EZ", rest=-0.4)
        made.frame(f"tip{k}", f"{k}2", position=(1, 0, 0))
        made.frame(f"line{k}", "world", position=(0, SPACING * k, 0))
        if rails:
            made.closure(f"rail{k}", f"tip{k}", f"line{k}", ("y",))
    return made.build()


def goals(count: int, levels: int = 2, robot: Robot | None = None) -> jaxik.Problem:
    """Of each arm a place along its line, and a posture at a second priority; the last of several is in need."""
    robot = arms(count) if robot is None else robot
    along, tasks = jnp.array([1.0, 0, 0, 0, 0, 0]), dict[str, jaxik.Task]()
    for k in range(count):
        x = [2.2, 7.0, 2.2, np.nan] if 0 < k == count - 1 else [2.2] * CASES
        aim = jnp.stack([jnp.array(x), jnp.full(CASES, SPACING * k), jnp.zeros(CASES)], axis=-1)
        tasks[f"goal{k}"] = jaxik.FrameTask(
            robot.frame(f"tip{k}"), aim, orientation_cost=None, mask=along, axes="world", position_tolerance=1e-6
        )
    if levels > 1:
        cost = jnp.tile(jnp.arange(1.0, 4), count)
        tasks["rest"] = jaxik.PostureTask(jnp.full(robot.nq, 0.2), cost=cost, priority=1)
    if count > 1:
        off = robot.frame(f"line{count - 1}").index
        sites = jnp.tile(robot.site_position, (CASES, 1, 1)).at[2, off, 1].set(99.0)
        robot = dataclasses.replace(robot, site_position=sites)
    return jaxik.Problem(robot, tasks)


@cache
def solved(count: int, levels: int) -> jaxik.Solution:
    return jaxik.solve(goals(count, levels))


@exhaustive
@pytest.mark.parametrize("levels", [1, 2])
def test_a_chain_is_solved_as_alone_whatever_becomes_of_another_at_all_priorities(levels: int) -> None:
    found, alone = solved(2, levels), solved(1, levels)
    own = np.asarray(found.q)[:, :3]
    np.testing.assert_allclose(own, alone.q, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.chains.status[:, 0], alone.status)
    np.testing.assert_array_equal(found.chains.iterations[:, 0], alone.iterations)
    if levels > 1:
        np.testing.assert_allclose(found.residuals["rest"][:, :3], alone.residuals["rest"], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(alone.status, jaxik.Status.CONVERGED)
    np.testing.assert_allclose(found.q[0, 3:], alone.q[0], rtol=0, atol=1e-9)
    if levels > 1:
        np.testing.assert_allclose(found.cost[0], 2 * alone.cost[0], rtol=1e-9)


def test_a_chain_is_solved_alike_whatever_becomes_of_another() -> None:
    """Its neighbour is well in the first element alone, and as it is there."""
    found = solved(2, 1)
    np.testing.assert_allclose(found.q[:, :3], np.tile(found.q[0, 3:], (CASES, 1)), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.q[:, :3], np.tile(found.q[0, :3], (CASES, 1)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.chains.status[:, 0], jaxik.Status.CONVERGED)
    np.testing.assert_array_equal(found.chains.iterations[:, 0], found.chains.iterations[0, 0])


@pytest.mark.parametrize("levels", mostly_exhaustive([1, 2], [1]))
def test_an_element_has_the_worst_of_its_chains_and_the_sum_of_their_costs(levels: int) -> None:
    found = solved(2, levels)
    expected = ["CONVERGED", "STALLED", "INFEASIBLE", "NONFINITE"]
    assert [jaxik.Status(s).name for s in found.status] == expected
    assert [jaxik.Status(s).name for s in found.chains.status[:, 1]] == expected
    if levels == 1:
        off = np.stack([found.residuals[f"goal{k}"]["position"][1, 0] for k in range(2)])
        np.testing.assert_allclose(found.cost[1], np.sum(off**2) / 2, rtol=1e-9)
    assert np.all(np.abs(np.asarray(found.residuals["model"])[1]) < 1e-9)  # a goal out of reach bends no closure
    np.testing.assert_allclose(found.residuals["model"][2, 0], 0, atol=1e-9)
    # A rail out of reach is come as near as the stretched arm of 3 m gets.
    np.testing.assert_allclose(abs(found.residuals["model"][2, 1]), 99 - SPACING - 3, atol=1e-3)


def test_what_chains_share_is_met_as_a_whole() -> None:
    """The first joint of each arm is held 0.1 rad from a posture: two arms miss it by sqrt(2) times that."""
    robot = arms(2, rails=False)
    tasks: dict[str, jaxik.Task] = {
        f"off{k}": jaxik.FrameTask(robot.frame(f"tip{k}"), jnp.zeros(3), position_cost=0.0, orientation_cost=None)
        for k in range(2)
    }
    posture = jnp.full(6, 0.2)
    tasks["rest"] = jaxik.PostureTask(posture, tolerance=jnp.array([0.09, 0.12, 0.15]))
    mask = jnp.tile(jnp.array([False, True, True]), 2)
    found = jaxik.solve(jaxik.Problem(robot, tasks, dof_mask=mask), jnp.full(6, 0.3))
    np.testing.assert_allclose(jnp.abs(found.residuals["rest"]), jnp.tile(0.1 * ~mask, (3, 1)), rtol=0, atol=1e-9)
    converged, stalled = jaxik.Status.CONVERGED, jaxik.Status.STALLED
    np.testing.assert_array_equal(found.chains.status, [[stalled] * 2, [converged] * 2, [converged] * 2])
    np.testing.assert_array_equal(found.status, [stalled, stalled, converged])


@exhaustive
def test_derivatives_through_several_chains_are_those_of_differences() -> None:
    robot = arms(2, rails=False)

    def at(change: jax.Array) -> jax.Array:
        """Targets that move, and links that grow, by changes (n,)."""
        longer = dataclasses.replace(robot, body_position=robot.body_position * (1 + 0.01 * change[:, None, None]))
        aims = {"tip0": jnp.array([2.2, 0.3, 0.0]), "tip1": jnp.array([2.2, SPACING, 0.0])}
        aims["tip1"] = aims["tip1"] + change[:, None] * jnp.array([1.0, 0, 0])
        tasks: dict[str, jaxik.Task] = {
            tip: jaxik.FrameTask(robot.frame(tip), pose(aim), orientation_cost=None) for tip, aim in aims.items()
        }
        # Which of all solutions is the last to be found is not differentiable: the posture says which.
        tasks["rest"] = jaxik.PostureTask(jnp.full(6, 0.2), cost=0.3)
        return jaxik.solve(jaxik.Problem(longer, tasks)).q

    step = 1e-5
    q, slope = jax.jvp(at, (jnp.array([0, step, -step]),), (jnp.ones(3),))
    np.testing.assert_allclose(slope[0], (q[1] - q[2]) / (2 * step), rtol=0, atol=1e-6)
    assert np.min(np.max(np.abs(slope[0].reshape(2, 3)), axis=1)) > 1e-3


def pose(place: jax.Array) -> jaxlie.SE3:
    return jaxlie.SE3.from_translation(place)


@exhaustive
def test_a_search_starts_again_for_the_chain_that_is_not_solved_alone() -> None:
    """Without its first starts, each arm's own: one that is solved keeps its answer."""

    def found(count: int) -> jaxik.Solution:
        robot = arms(count, rails=False)
        place = robot.frame_pose(robot.sample(jax.random.key(3), (16,)), "tip0").translation()
        tasks = {
            f"goal{k}": jaxik.FrameTask(
                robot.frame(f"tip{k}"),
                pose(place * (1 - 0.9 * k) + jnp.array([0, SPACING * k, 0])),
                orientation_cost=None,
            )
            for k in range(count)
        }
        options = jaxik.SearchOptions(max_steps_per_start=4)
        return jaxik.search(jaxik.Problem(robot, tasks), jax.random.key(1), options=options)

    both, alone = found(2), found(1)
    np.testing.assert_allclose(both.q[:, :3], alone.q, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(both.chains.iterations[:, 0], alone.iterations)
    assert np.all(np.asarray(both.num_starts) >= alone.num_starts)
    assert np.asarray(both.num_starts).max() > 1


@cache
def crowd() -> Robot:
    """Two pairs of arms of two links that rods may join, one of three links, and a joint that nothing asks for."""
    made = jaxik.Mechanism("crowd")
    made.link("idle", position=(0, -5, 0), joints={"EZ": (-1.0, 1.0)})
    for side, y in (("a", 0.0), ("b", SPACING)):
        for k in range(2):
            made.link(f"{side}{k}0", position=(1.5 * k, y, 0), joints="EZ", rest=0.9 + 0.3 * k)
            made.link(f"{side}{k}1", f"{side}{k}0", position=(1, 0, 0), joints="EZ", rest=0.5)
            made.frame(f"{side}{k}", f"{side}{k}1", position=(1, 0, 0))
        made.closure(f"rod {side}", f"{side}0", f"{side}1", ("x", "y"))
    for i in range(3):
        made.link(f"c{i}", *([f"c{i - 1}"] if i else []), position=(1.0 * (i > 0), -SPACING * (not i), 0), joints="EZ")
    made.frame("c", "c2", position=(1, 0, 0))
    return made.build()


def crowded(robot: Robot) -> jaxik.Problem:
    places = {"a0": (0.6, 1.2), "a1": (1.2, 1.3), "b0": (0.5, SPACING + 1.3), "b1": (1.3, SPACING + 1.2)}
    places |= {"c": (2.0, 0.7 - SPACING)}
    tasks: dict[str, jaxik.Task] = {
        name: jaxik.FrameTask(robot.frame(name), jnp.array([*at, 0.0]), orientation_cost=None)
        for name, at in places.items()
    }
    # One with a batch of its own.
    tasks["a0"] = dataclasses.replace(tasks["a0"], target=pose(jnp.array([[0.6, 1.2, 0.0], [0.7, 1.3, 0.0]])))
    mask = jnp.ones(robot.nv, bool).at[-1].set(False)
    return jaxik.Problem(robot, tasks, dof_mask=mask)


@exhaustive
def test_what_is_like_nothing_else_and_what_rods_join_is_put_together_right() -> None:
    robot = crowd().with_active({"rod a": jnp.array([True, False]), "rod b": jnp.array([True, True])})
    problem = crowded(robot)
    q0 = jnp.tile(robot.q_home, (2, 1)).at[:, 0].set(jnp.array([0.4, 3.0]))
    apart = jaxik.solve(problem, q0)
    # A trace is of the whole, so that all is solved together.
    whole = jaxik.solve(problem, q0, options=jaxik.SolveOptions(record_trace=True))
    np.testing.assert_allclose(apart.q, whole.q, rtol=0, atol=1e-7)
    np.testing.assert_allclose(apart.q[:, 0], [0.4, 1.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(apart.cost, whole.cost, rtol=1e-9)
    np.testing.assert_array_equal(apart.status, whole.status)
    for name in whole.residuals:
        for mine, theirs in zip(*map(jax.tree.leaves, (apart.residuals[name], whole.residuals[name])), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6, err_msg=name)
    assert apart.chains[4:] == whole.chains[4:]
    np.testing.assert_array_equal(apart.chains.label, whole.chains.label)
    np.testing.assert_array_equal(apart.chains.status, whole.chains.status)


def kinds(robot: Robot, tasks: dict[str, jaxik.Task], **options: object) -> list[int] | None:
    """How many components there are of each kind."""
    problem = jaxik.Problem(robot, tasks, **options)  # type: ignore[arg-type]
    found = components_of(with_hard_constraints(problem, 1e-9))
    return None if found is None else [len(kind) for kind in found.kinds]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [2]),
        ({"goal0": {"priority": 2}}, None),  # unlike
        ({"between": None}, None),  # one
    ],
    ids=str,
)
def test_components_are_those_that_nothing_joins(changed: dict[str, dict | None], expected: list[int] | None) -> None:
    robot, tasks = arms(2), dict(goals(2, robot=arms(2)).tasks)
    for name, fields in changed.items():
        if fields is None:
            tasks[name] = jaxik.RelativeFrameTask(robot.frame("tip0"), robot.frame("tip1"), jaxlie.SE3.identity())
        else:
            tasks[name] = dataclasses.replace(tasks[name], **fields)
    assert kinds(robot, tasks) == expected


def test_bundled_robots_split_where_their_fingers_are_alike() -> None:
    hand = jaxik.load_robot("hand")
    tips = {name: jaxik.FrameTask(hand.frame(f"{name}_tip"), jnp.zeros(3), orientation_cost=None) for name in FINGERS}
    assert kinds(hand, tips) == [3, 1]
    assert kinds(hand, tips, limits=(jaxik.ConfigurationLimit(), jaxik.VelocityLimit())) == [3, 1]
    center = jaxik.ComTask(jnp.zeros(3))
    assert kinds(hand, {**tips, "center": center}) is None
    plane = jaxik.PositionLimit(hand.frame("thumb_tip"), jnp.array([0.0, 0, 1]), 0.0)
    assert kinds(hand, tips, limits=(plane,)) is None


def sliders(count: int, keyframes: int = 0, free: bool = False) -> Robot:
    """Bodies on rails of their own, or free ones, as MJCF has them: with as many keyframes as one likes."""
    joint = "<freejoint/>" if free else '<joint type="slide" axis="1 0 0" range="-1 1"/>'
    bodies = "".join(
        f'<body name="b{k}" pos="0 {k} 0">{joint}<geom size="0.1"/><site name="tip{k}"/></body>' for k in range(count)
    )
    keys = "<key/>" * keyframes
    return jaxik.load_robot(f"<mujoco><worldbody>{bodies}</worldbody><keyframe>{keys}</keyframe></mujoco>")


def aims(robot: Robot, shapes: list[tuple[int, ...]]) -> dict[str, jaxik.Task]:
    """A place for each slider, with batch axes of its own."""
    return {
        f"goal{k}": jaxik.FrameTask(robot.frame(f"tip{k}"), jnp.full((*shape, 3), 0.1), orientation_cost=None)
        for k, shape in enumerate(shapes)
    }


@pytest.mark.parametrize("keyframes", mostly_exhaustive([0, 2, 3], [2]))
def test_a_model_may_have_any_number_of_keyframes_and_all_its_leaves_batch_axes(keyframes: int) -> None:
    robot = sliders(2, keyframes)
    robot = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), robot)
    found = jax.eval_shape(lambda: jaxik.solve(jaxik.Problem(robot, aims(robot, [(), ()]))))
    assert found.q.shape == (3, 2)


def test_batch_axes_of_one_chain_are_those_of_all() -> None:
    robot = sliders(2)
    tasks = aims(robot, [(4,), ()])
    for key in (jax.random.key(0), jax.random.split(jax.random.key(0), 1), jax.random.split(jax.random.key(0), 4)):
        found = jax.eval_shape(lambda key: jaxik.search(jaxik.Problem(robot, tasks), key), key)
        assert found.q.shape == (4, 2) and found.num_starts.shape == (4,)
    none = jax.eval_shape(lambda: jaxik.solve(jaxik.Problem(robot, aims(robot, [(), ()])), jnp.zeros((0, 2))))
    assert none.q.shape == (0, 2)


def test_a_task_that_has_no_rows_in_any_chain_reports_zeros() -> None:
    robot = sliders(2, free=True)
    tasks = aims(robot, [(), ()]) | {"rest": jaxik.PostureTask(robot.q_home, priority=1)}
    found = jax.eval_shape(lambda: jaxik.solve(jaxik.Problem(robot, tasks)))
    assert found.residuals["rest"].shape == (12,)
