"""`CollisionLimit` in `step`: shapes stay apart on the way to a target, and come apart where they overlap."""

import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.collision.nearest import nearest_of
from jaxik.core.errors import JaxikError
from jaxik.kinematics.motion import Motion

# A planar arm of capsules that reaches a metre around its base.
ARM = """<mujoco model="reacher"><compiler angle="radian"/><worldbody>
<body name="base" pos="0 0 .25"><geom name="socket" type="capsule" size=".1 .05"/>
 <body name="upper" pos="0 0 .25"><joint name="a" axis="0 1 0" range="-2.6 2.6"/>
  <geom name="upper" type="capsule" size=".04" fromto="0 0 .1 0 0 .35"/>
  <body name="fore" pos="0 0 .4"><joint name="b" axis="0 1 0" range="-2.8 2.8"/>
   <geom name="fore" type="capsule" size=".04" fromto="0 0 .08 0 0 .3"/>
   <body name="hand" pos="0 0 .35"><joint name="c" axis="0 1 0" range="-2 2"/>
    <geom name="palm" type="capsule" size=".03 .04" pos="0 0 .06"/><site name="tip" pos="0 0 .12"/></body></body></body>
</body></worldbody></mujoco>"""
BALLS = [((0.6, 0, 0.6), 0.12), ((-0.5, 0, 0.9), 0.15), ((0.2, 0, 1.1), 0.1)]
STEPS, DT, COUNT, INSIDE = 60, 0.02, 150, 50


@functools.cache
def arm() -> jaxik.Robot:
    return jaxik.load_robot(ARM, geometry="model")


def world() -> jaxik.World:
    return jaxik.World(spheres=jaxik.Spheres([center for center, _ in BALLS], [radius for _, radius in BALLS]))


def problem(targets: Any, limit: jaxik.CollisionLimit | None) -> jaxik.Problem:
    tip = jaxik.FrameTask(arm().frame("tip"), targets, orientation_cost=None)
    limits = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(3.0)
    return jaxik.Problem(arm(), {"tip": tip}, limits=limits if limit is None else (*limits, limit))


@jax.jit
@chex.assert_max_traces(2)  # with a limit and without
def walk(given: jaxik.Problem, q: jax.Array) -> tuple[jax.Array, jaxik.StepResult]:
    """Configurations (steps + 1, n, nq) and the results of steps towards targets (n, 3)."""

    def one(q: jax.Array, _: None) -> Any:
        result = jaxik.step(given, q, DT, damping=1e-3)
        return result.q, result

    _, results = jax.lax.scan(one, q, length=STEPS)
    return jnp.concatenate([q[None], results.q]), results


@functools.cache
def starts() -> tuple[jax.Array, jax.Array, np.ndarray]:
    """Configurations, targets around obstacles and in them, and the clearance of the configurations."""
    q = arm().sample(jax.random.key(0), COUNT)
    targets = arm().frame_pose(arm().sample(jax.random.key(1), COUNT), "tip").translation()
    targets = targets.at[:INSIDE].set(jnp.asarray([BALLS[i % 3][0] for i in range(INSIDE)]))
    return q, targets, np.asarray(arm().clearance(q, world()))


def by_mujoco(path: np.ndarray) -> np.ndarray:
    """The depth (steps + 1, n) of the deepest contact, zero where there is none, by MuJoCo's collision detection."""
    spec = mujoco.MjSpec.from_string(ARM)
    for center, radius in BALLS:
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[radius, 0, 0], pos=center)
    model = spec.compile()
    data = mujoco.MjData(model)
    depth = np.zeros(path.shape[:2])
    for where in np.ndindex(depth.shape):
        data.qpos[:] = path[where]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        depth[where] = max(0.0, -data.contact.dist.min(initial=0.0))
    return depth


@functools.cache
def walked() -> tuple[np.ndarray, jaxik.StepResult]:
    q, targets, _ = starts()
    return jax.device_get(walk(problem(targets, jaxik.CollisionLimit(world())), q))


def test_what_starts_apart_stays_apart_and_every_step_has_a_solution() -> None:
    path, said = walked()
    free = starts()[2] > 0
    assert 50 < free.sum() < 140
    assert by_mujoco(path[:, free]).max() < 1e-6
    assert (said.clearance[:, free] > -1e-6).all() and (said.status[:, free] == jaxik.Status.CONVERGED).all()


def test_a_step_that_makes_nothing_less_deep_says_so() -> None:
    said = walked()[1]
    came_out = np.diff(np.concatenate([starts()[2][None], said.clearance]), axis=0)
    still = (said.clearance < -1e-6) & (came_out < 1e-6)
    assert still.any() and (said.status == np.where(still, jaxik.Status.COLLIDES, jaxik.Status.CONVERGED)).all()
    element = tuple(np.argwhere(still)[0])
    one = jax.tree.map(lambda x: x[element], said)
    with pytest.raises(JaxikError, match=r"1 of 1 elements are COLLIDES \(.* mm deep\)"):
        one.check()


@exhaustive
def test_without_the_limit_half_of_them_are_in_an_obstacle_on_the_way() -> None:
    free = starts()[2] > 0
    through, _ = jax.device_get(walk(problem(starts()[1], None), starts()[0]))
    assert np.mean(by_mujoco(through[:, free]).max(0) > 0.01) > 0.3


def test_what_is_near_does_not_keep_from_targets_that_are_free() -> None:
    path, _ = walked()
    _, targets, before = starts()
    tip = arm().frame_pose(path[-1], "tip").translation()
    arrived = np.linalg.norm(tip - targets, axis=-1) < 0.01
    assert np.mean(arrived[INSIDE:][before[INSIDE:] > 0]) > 0.4
    assert not arrived[:INSIDE].any()  # in a ball


def test_what_overlaps_comes_apart_and_never_gets_deeper() -> None:
    _, said = walked()
    before = starts()[2]
    deep = before < -0.01
    assert deep.sum() > 10 and before.min() < -0.1
    each = np.concatenate([before[None], said.clearance])[:, deep]
    assert (np.diff(np.minimum(each, 0), axis=0) > -1e-6).all()
    assert np.mean(each[-1] > 0) > 0.95


def test_a_result_says_what_is_near() -> None:
    path, said = walked()
    limit = jaxik.CollisionLimit(world())
    found = arm().distances(path[-1], world())
    np.testing.assert_allclose(said.clearance[-1], found.clearance, atol=1e-12)
    names = limit.table(arm()).names
    assert [names[i] for i in said.nearest[-1]] == [found.pairs[i] for i in np.asarray(found.nearest)]
    assert ((said.fraction >= 0) & (said.fraction <= 1)).all()


def test_rows_are_derivatives_of_distances_to_the_nearest_pairs() -> None:
    limit, robot = jaxik.CollisionLimit(world(), margin=0.01, gain=0.5, rows=20), arm()
    q = robot.sample(jax.random.key(5))
    motion = Motion(0.1, None)

    @jax.jit
    def rows(limit: jaxik.CollisionLimit, q: jax.Array) -> Any:
        kin = robot.kinematics(q, limit.frames_of(robot))
        matrix, right = limit.inequalities(robot, kin, motion)
        order = jnp.argsort(right)
        return matrix[order], right[order]

    @jax.jit
    def distances(q: jax.Array) -> jax.Array:
        return jnp.sort(limit.distances(robot, robot.kinematics(q, limit.frames_of(robot))))

    matrix, right = rows(limit, q)
    step = 1e-6
    differences = [(distances(q + step * x) - distances(q - step * x)) / (2 * step) for x in jnp.eye(3)]
    np.testing.assert_allclose(matrix, -jnp.stack(differences, axis=1), atol=1e-7)
    np.testing.assert_allclose(right, 0.5 * (distances(q) - 0.01), atol=1e-12)
    timed = dataclasses.replace(limit, rate=jnp.asarray(3.0))
    np.testing.assert_allclose(rows(timed, q)[1], (1 - np.exp(-0.3)) * (distances(q) - 0.01), atol=1e-12)


def test_the_nearest_of_many_distances_are_those_of_a_sort() -> None:
    rng = np.random.default_rng(0)
    for size, count in ((500, 8), (1831, 8), (256, 4), (300, 300), (5, 8)):
        distance = rng.normal(size=(64, size))
        # Masked obstacles: of some elements fewer than k are there, or none.
        distance[rng.random((64, size)) < rng.choice([0.0, 0.5, 0.99, 1.0], (64, 1))] = np.inf
        nearest = jax.vmap(functools.partial(nearest_of, count=count))
        found, which = nearest(jnp.asarray(distance))
        assert np.array_equal(found, np.sort(distance, axis=1)[:, :count])
        assert np.array_equal(np.take_along_axis(distance, np.asarray(which), 1), found)
        assert all(len(set(row)) == len(row) for row in np.asarray(which).tolist())
        distance[:, size // 2] = np.nan
        found, which = nearest(jnp.asarray(distance))
        assert np.isnan(found[:, 0]).all() and (which[:, 0] == size // 2).all()


def test_rows_are_of_the_pairs_that_may_meet_first() -> None:
    """Ten small balls beside a slow link are nearer than what is over the hand."""
    beside = [(0.1 + 0.02 * i, side * 0.06, 0.517) for side in (-1, 1) for i in range(5)]
    obstacles = jaxik.World(spheres=jaxik.Spheres([*beside, (0.85, 0, 0.75)], [*[0.01] * 10, 0.1]))
    robot, q = arm(), jnp.asarray([1.4, 0.1, 0.1])
    limit = jaxik.CollisionLimit(obstacles, margin=0.0, gain=1.0, rows=4)

    @jax.jit
    def seen(limit: jaxik.CollisionLimit) -> Any:
        kin = robot.kinematics(q, limit.frames_of(robot))
        return limit.distances(robot, kin), limit.inequalities(robot, kin, Motion(0.1))[1]

    distance, right = jax.device_get(seen(limit))
    hand = limit.table(robot).names.index(("palm", "spheres/10"))
    assert distance[hand] > 0 and (distance < distance[hand]).sum() >= 8
    np.testing.assert_allclose(right[0], distance[hand])
    overlapping = dataclasses.replace(obstacles.spheres, radius=obstacles.spheres.radius + 0.05)
    deep = dataclasses.replace(limit, world=jaxik.World(spheres=overlapping))
    distance, right = jax.device_get(seen(deep))
    assert (distance < 0).sum() > 4
    np.testing.assert_allclose(right, np.sort(distance)[:4], atol=1e-12)


def test_a_step_is_shortened_where_its_rows_let_it_overlap() -> None:
    """A gain of 1, no margin and a long step: what is left is of second order, and too much."""
    q, targets, before = starts()
    limit = jaxik.CollisionLimit(world(), margin=0.0, gain=1.0)
    limits = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(1e9), limit
    given = dataclasses.replace(problem(targets, limit), limits=limits)
    result = jax.tree.map(lambda x: x[0], jax.device_get(walk(given, q)[1]))
    shortened, free = np.asarray(result.fraction) < 1, before > 0
    assert shortened[free].sum() > 5
    assert by_mujoco(np.asarray(result.q)[None, free]).max() < 1e-6
    np.testing.assert_allclose(result.velocity * DT, arm().difference(q, result.q), atol=1e-12)
    overlaps = np.asarray(result.clearance) < 0
    pairs, counts = np.unique(np.asarray(result.nearest)[overlaps], return_counts=True)
    first, second = limit.table(arm()).names[pairs[counts.argmax()]]
    assert f"{overlaps.sum()} overlap ({first} - {second} " in repr(result)


def test_moving_obstacles_and_changing_a_margin_compiles_nothing() -> None:
    q, targets, _ = starts()
    first = walked()[1].clearance
    programs = walk._cache_size()
    moved = dataclasses.replace(world().spheres, center=world().spheres.center + 0.1)
    limit = jaxik.CollisionLimit(jaxik.World(spheres=moved), margin=0.02, gain=0.5)
    second = walk(problem(targets, limit), q)[1].clearance
    assert walk._cache_size() == programs and (first != second).any()


def in_a_world(q: Any) -> np.ndarray:
    """Depth (n,) of the deepest contact at configurations (n, nq)."""
    return by_mujoco(np.asarray(q)[None])[0]


@exhaustive
def test_search_finds_what_is_free_and_says_what_is_not() -> None:
    """Targets that a free configuration reaches, and the middles of obstacles, which none does."""
    limit = jaxik.CollisionLimit(world())
    limits = jaxik.ConfigurationLimit(), limit
    q = arm().sample(jax.random.key(2), 400)
    q = q[np.asarray(arm().clearance(q, world())) > 0.007][:150]
    targets = arm().frame_pose(q, "tip").translation()
    targets = jnp.concatenate([targets, jnp.asarray([center for center, _ in BALLS])])
    given = dataclasses.replace(problem(targets, None), limits=limits)
    found = jaxik.search(given, jax.random.key(0))
    assert (found.status[:150] == jaxik.Status.CONVERGED).all()
    assert (found.status[150:] == jaxik.Status.COLLIDES).all()
    assert in_a_world(found.q[:150]).max() == 0 and (found.clearance[:150] >= 0.005).all()
    np.testing.assert_allclose(found.clearance, arm().clearance(found.q, world()), atol=1e-12)
    assert set(found.residuals) == {"tip"}
    names = limit.table(arm()).names
    assert all("spheres" in names[i][1] for i in found.nearest[150:])
    blind = jaxik.search(dataclasses.replace(given, limits=None), jax.random.key(0))
    assert np.mean(in_a_world(blind.q[:150]) > 1e-3) > 0.05
    pair, depth = names[int(found.nearest[150])], -1e3 * float(found.clearance[150])
    said = f"{pair[0]} - {pair[1]} {depth:.3g} mm deep"
    with pytest.raises(JaxikError, match=rf"COLLIDES \(150: {said}.*Solution.clearance"):
        found.check()
    assert f"{said}, in 1" in repr(found)
    one = jax.tree.map(lambda x: x[150], found)
    assert f"COLLIDES: {said}, after" in repr(one)
    with pytest.raises(JaxikError, match=rf"1 of 1 elements are COLLIDES \({said}\)"):
        one.check()


def solvable(targets: Any, limit: jaxik.CollisionLimit) -> jaxik.Problem:
    return dataclasses.replace(problem(targets, None), limits=(jaxik.ConfigurationLimit(), limit))


@functools.cache
def settled() -> jaxik.Solution:
    q, targets, _ = starts()
    return jaxik.solve(solvable(targets, jaxik.CollisionLimit(world())), q)


def test_what_collides_is_told_with_its_nearest_pair() -> None:
    found = settled()
    assert (found.status[:INSIDE] == jaxik.Status.COLLIDES).all()
    pair, depth = found.pair_names[int(found.nearest[0])], -1e3 * float(found.clearance[0])
    said = f"{pair[0]} - {pair[1]} {depth:.3g} mm deep"
    assert depth > 1 and "spheres" in pair[1]
    with pytest.raises(JaxikError, match=rf"COLLIDES \(0: {said}.*Solution.clearance"):
        found.check()
    one = jax.tree.map(lambda x: x[0], found)
    assert f"COLLIDES: {said}, after" in repr(one)
    with pytest.raises(JaxikError, match=rf"1 of 1 elements are COLLIDES \({said}\)"):
        one.check()


def test_solve_moves_out_of_an_obstacle() -> None:
    before, found = starts()[2], settled()
    converged = np.asarray(found.converged)
    assert converged[(before < -0.02)].sum() > 5
    assert in_a_world(found.q)[converged].max() == 0 and (found.clearance[converged] >= 0.005).all()
    assert not converged[:INSIDE].any()


@exhaustive
def test_derivatives_by_obstacles_are_exact() -> None:
    """Against central differences, of solutions that are free, and of some that press on an obstacle in the way."""
    q, up, step = arm().sample(jax.random.key(0), 300)[80:140], jnp.asarray([0.0, 0, 1]), 1e-5
    tips = arm().frame_pose(arm().sample(jax.random.key(1), 300), "tip")
    targets = tips.translation().at[:100].set(jnp.asarray([BALLS[i % 3][0] for i in range(100)]))
    poses = jaxlie.SE3.from_rotation_and_translation(tips.rotation(), targets)
    task = jaxik.FrameTask(arm().frame("tip"), jaxlie.SE3(jnp.asarray(poses.wxyz_xyz[80:140], float)))

    def solved(shift: Any) -> jaxik.Solution:
        centers = jnp.asarray([center for center, _ in BALLS]) + shift[..., None] * up
        obstacles = jaxik.World(spheres=jaxik.Spheres(centers, [radius for _, radius in BALLS]))
        limits = jaxik.ConfigurationLimit(), jaxik.CollisionLimit(obstacles, pairs=[("hand", "world")], rows=3)
        return jaxik.solve(jaxik.Problem(arm(), {"tip": task}, limits=limits), q)

    shift = jnp.asarray([0, step, -step])[:, None, None]
    batch, tangents = jax.jvp(solved, (shift,), (jnp.ones_like(shift),))  # one program for all
    differences = (batch.q[1] - batch.q[2]) / (2 * step)
    wrong = np.abs(tangents.q[0] - differences).max(axis=1) / (1 + np.abs(differences).max(axis=1))
    exact = np.asarray(batch.derivative_status[0]) == jaxik.DerivativeStatus.EXACT
    # Differences are no measure of those that are not settled.
    exact &= np.max(batch.stationarity, axis=0) < 1e-10
    pressed = exact & (np.abs(differences).max(axis=1) > 0.1)
    assert wrong[exact].max() < 1e-6 and exact.sum() > 10 and pressed.sum() > 5


def test_an_obstacle_that_is_nan_is_nonfinite() -> None:
    """As data under `jit`; on the host it is refused."""
    q, targets, _ = starts()
    centers = np.asarray([center for center, _ in BALLS])

    def spoilt(given: jaxik.Problem) -> jaxik.Problem:
        return jax.tree.map(lambda x: x.at[1].set(jnp.nan) if np.array_equal(x, centers) else x, given)

    limit = jaxik.CollisionLimit(world())
    assert (walk(spoilt(problem(targets, limit)), q)[1].status == jaxik.Status.NONFINITE).all()
    assert (jaxik.solve(spoilt(solvable(targets, limit)), q).status == jaxik.Status.NONFINITE).all()


def test_an_obstacle_that_is_nan_is_nonfinite_among_many_that_are_far() -> None:
    q, targets, _ = starts()
    centers = np.stack([np.linspace(-5, 5, 60), np.full(60, 3.0), np.zeros(60)], axis=1)

    @jax.jit
    def found(centers: jax.Array) -> tuple[jax.Array, ...]:
        many = jaxik.World(spheres=jaxik.Spheres(centers, np.full(60, 0.1)))
        result, distances = jaxik.step(problem(targets, jaxik.CollisionLimit(many)), q, DT), arm().distances(q, many)
        least = result.clearance, arm().clearance(q, many), distances.clearance
        return result.status == jaxik.Status.NONFINITE, *map(jnp.isnan, least)

    assert not np.any(found(jnp.asarray(centers)))
    centers[50] = np.nan
    assert np.all(found(jnp.asarray(centers)))


def test_a_clearance_task_keeps_away_as_far_as_its_cost_goes() -> None:
    q, targets, _ = starts()

    def least(distance: float, cost: float) -> np.ndarray:
        away = jaxik.ClearanceTask(world(), distance, cost=cost)
        tasks = {"tip": jaxik.FrameTask(arm().frame("tip"), targets[INSIDE:], orientation_cost=None, position_cost=0.1)}
        return np.asarray(
            arm().clearance(jaxik.solve(jaxik.Problem(arm(), tasks | {"away": away}), q[INSIDE:]).q, world())
        )

    assert np.mean(least(0.05, 1.0) > 0.03) > np.mean(least(0.05, 0.0) > 0.03) + 0.2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jaxik.CollisionLimit("table"), "jaxik.World"),
        (lambda: jaxik.CollisionLimit(margin=-0.01), "margin must not be negative"),
        (lambda: jaxik.CollisionLimit(gain=0), "gain is in"),
        (lambda: jaxik.CollisionLimit(rate=0), "rate is above zero"),
        (lambda: jaxik.CollisionLimit(rows=0), "rows is how many"),
        (lambda: jaxik.CollisionLimit(pairs=[]), "pairs is empty"),
        (lambda: problem(np.zeros(3), jaxik.CollisionLimit(pairs=[("hnad", "upper")])), "hand"),
        (lambda: problem(np.zeros(3), jaxik.CollisionLimit(pairs=[("hand", "boxes")])), "no world with such obstacles"),
        (
            lambda: jaxik.Problem(
                jaxik.load_robot(ARM),
                {"tip": jaxik.FrameTask(arm().frame("tip"), np.zeros(3), orientation_cost=None)},
                limits=(jaxik.CollisionLimit(),),
            ),
            "load_robot",
        ),
    ],
)
def test_mistakes_are_told_in_a_line(make: Any, words: str) -> None:
    with pytest.raises(JaxikError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)
