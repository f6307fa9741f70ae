"""Derivatives of solutions that press on obstacles, against central differences in double precision."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.collision.distances import separations
from jaxik.collision.nearest import curvatures_at, nearest_pairs, pairs_at

# A ball, a rod and a block, each on its own end of an arm.
ARM = """<mujoco model="reacher"><compiler angle="radian"/><worldbody>
<body name="upper" pos="0 0 .3"><joint name="a" axis="0 0 1" range="-3 3"/>
 <body name="fore"><joint name="b" axis="0 1 0" range="-2.8 2.8"/>
  <body name="hand" pos="0 0 .5"><joint name="c" axis="0 1 0" range="-2.5 2.5"/>
   <geom name="ball" type="sphere" size=".05" pos=".02 .03 .12" conaffinity="0"/>
   <geom name="rod" type="capsule" size=".03 .08" pos=".01 -.12 .2" euler=".5 .4 0" conaffinity="0"/>
   <body name="tool" pos="0 .02 .3"><joint name="d" axis="1 .3 0" range="-2 2"/>
    <geom name="block" type="box" size=".04 .06 .05" pos=".01 .02 .1" euler=".3 .5 .7" conaffinity="0"/>
    <site name="tip" pos=".01 .02 .1"/></body></body></body></body>
</worldbody></mujoco>"""
SHAPES, OBSTACLES = ("ball", "rod", "block"), ("spheres", "capsules", "boxes", "planes")
STEP = 1e-5
# A difference by which a solution is another one: it is 2 mm or mrad away.
JUMP = 1e-3 / STEP
# What solutions depend on, and how many numbers it has.
SIZES = {"posture": 4, "tip": 3, "center": 3, "turn": 3, "size": 3, "margin": 1, "shape": 3, "start": 4}
Parameters = dict[str, Any]


@cache
def arm() -> jaxik.Robot:
    with pytest.warns(jaxik.JaxikWarning, match="without mass"):
        return jaxik.load_robot(ARM, geometry="model")


def sized(grown: Any) -> jaxik.Robot:
    """The robot with shapes (*batch, 3) larger."""
    geometry = arm().geometry
    size = geometry.size + grown[..., None, :]
    return dataclasses.replace(arm(), geometry=dataclasses.replace(geometry, size=size))


def world(center: Any, rotation: jaxlie.SO3, size: Any, kinds: Any) -> jaxik.World:
    """One obstacle an element, of the kind (n,) that `kinds` says: a number of `OBSTACLES`."""

    def there(kind: str) -> Any:
        return jnp.broadcast_to(kinds == OBSTACLES.index(kind), center.shape[:-1])[..., None]

    along = rotation.apply(jnp.asarray([0.0, 0, 1]))
    radius, half = size[..., :1], along * size[..., 1:2]
    pose = jaxlie.SE3.from_rotation_and_translation(rotation, center)
    offset = jnp.sum(along * center, axis=-1, keepdims=True) - 0.1 + radius
    at = center[..., None, :]
    return jaxik.World(
        spheres=jaxik.Spheres(at, radius, there("spheres")),
        capsules=jaxik.Capsules(at - half[..., None, :], at + half[..., None, :], radius, there("capsules")),
        boxes=jaxik.Boxes(jaxlie.SE3(pose.wxyz_xyz[..., None, :]), size[..., None, :], there("boxes")),
        planes=jaxik.Planes(along[..., None, :], offset, there("planes")),
    )


class Scene:
    """Elements that want to be where a shape of the arm is in an obstacle: by `pairs`, each in turn."""

    def __init__(self, pairs: tuple[tuple[str, str], ...], each: int, below: bool, seed: int) -> None:
        rng, self.pairs, self.below = np.random.default_rng(seed), pairs, below
        count = each * len(pairs)
        self.kinds = np.array([[*OBSTACLES, "hulls", "cylinders"].index(kind) for _, kind in pairs] * each)
        q = np.asarray(arm().sample(jax.random.key(seed), (count,)), float)
        near = np.array([self._center(shape, q[i]) for i, (shape, _) in enumerate(pairs * each)])
        self.away = rng.normal(size=(count, 3))
        self.away /= np.linalg.norm(self.away, axis=1, keepdims=True)
        # Planes face the shape that they are to touch.
        facing = jax.vmap(_facing)(-jnp.asarray(self.away))
        tilted = jaxlie.SO3(jnp.asarray(rng.normal(size=(count, 4)))).normalize()
        plane = jnp.asarray(self.kinds == OBSTACLES.index("planes"))[:, None]
        self.rotation = jaxlie.SO3(jnp.where(plane, facing.wxyz, tilted.wxyz))
        tip = arm().frame_pose(jnp.asarray(q + rng.normal(size=q.shape) * 0.05), "tip").translation()
        self.values: Parameters = {
            "posture": q,
            "tip": np.asarray(tip),
            "center": near + self.away * 0.1,
            "turn": np.zeros((count, 3)),
            "size": rng.uniform(0.05, 0.1, (count, 3)),
            "margin": np.full((count, 1), 0.01),
            "shape": np.zeros((count, 3)),
            "start": q + 0.05,
        }

    def _center(self, shape: str, q: np.ndarray) -> np.ndarray:
        geometry = arm().geometry
        place = geometry.names.index(shape)
        body = arm().topology.body_names[geometry.bodies[place]]
        return np.asarray(arm().frame_pose(q, arm().frame(body)).apply(jnp.asarray(geometry.position[place], float)))

    def obstacles(self, given: Parameters) -> jaxik.World:
        return world(given["center"], self.rotation @ jaxlie.SO3.exp(given["turn"]), given["size"], self.kinds)

    def problem(self, given: Parameters) -> jaxik.Problem:
        limit = jaxik.CollisionLimit(self.obstacles(given), pairs=self.pairs, margin=given["margin"][..., 0])
        robot = sized(given["shape"])
        rest = jaxik.PostureTask(given["posture"], cost=0.2, priority=int(self.below))
        tasks: dict[str, Any] = {"rest": rest}
        if self.below:
            target = jaxlie.SE3.from_translation(given["tip"])
            tasks["tip"] = jaxik.FrameTask(robot.frame("tip"), target, orientation_cost=None)
        return jaxik.Problem(robot, tasks, limits=(jaxik.ConfigurationLimit(), limit))


def _facing(direction: jax.Array) -> jaxlie.SO3:
    """A rotation that takes the z axis to a direction."""
    return jaxlie.SO3(jnp.asarray([1 + direction[2], -direction[1], direction[0], 0.0])).normalize()


def compared(scene: Scene, call: Any) -> tuple[Any, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """What a verb returns of the elements, by how much q changes (n,) at most and how wrong tangents are (parameter).

    All derivatives are elements of one program.
    """
    which = [(name, i) for name, size in SIZES.items() for i in range(size)]
    base = {k: jnp.asarray(np.broadcast_to(v, (len(which), *v.shape))) for k, v in scene.values.items()}
    unit = {
        k: jnp.asarray([[np.eye(SIZES[k])[i] if name == k else np.zeros(SIZES[k])] for name, i in which]) + 0 * v
        for k, v in base.items()
    }
    given = jax.tree.map(lambda v, d: jnp.stack([v, v + STEP * d, v - STEP * d]), base, unit)
    along = jax.tree.map(lambda d: jnp.stack([d, 0 * d, 0 * d]), unit)
    found, tangent = jax.jit(lambda x, t: jax.jvp(call, (x,), (t,)))(given, along)
    differences = np.asarray(found.q[1] - found.q[2]) / (2 * STEP)
    wrong = np.abs(np.asarray(tangent.q[0]) - differences).max(-1) / (1 + np.abs(differences).max(-1))
    names = np.array([name for name, _ in which])
    moved = np.abs(differences).max(-1)
    first = jax.tree.map(lambda x: np.asarray(x)[0, 0] if np.ndim(x) > 1 else x, found)
    moved = np.where(moved.max(0) < JUMP, moved[names == "size"].max(0), np.inf)
    return first, moved, wrong.max(0), {name: wrong[names == name].max(0) for name in SIZES}


def exact_where_pressed(scene: Scene, call: Any, least: int) -> Any:
    """Elements that an obstacle moves have exact derivatives, and no status that says another thing."""
    found, moved, wrong, by_name = compared(scene, call)
    # Differences are no measure of those that are not settled to 1e-10, nor of a search that finds another solution.
    good = (found.derivative_status == jaxik.DerivativeStatus.EXACT) & (found.stationarity < 1e-10) & (moved < JUMP)
    pressed = good & (moved > 0.05)
    assert pressed.sum() >= least, (pressed.sum(), found.derivative_status)
    assert wrong[good].max() < 1e-6, {name: x[good].max() for name, x in by_name.items()}
    return found


def test_what_an_obstacle_holds_up_has_exact_derivatives() -> None:
    scene = Scene((("ball", "spheres"),), 12, below=False, seed=1)
    exact_where_pressed(scene, lambda x: jaxik.solve(scene.problem(x), x["start"]), 4)


@exhaustive
def test_a_lower_level_that_is_held_up_by_an_obstacle_has_exact_derivatives() -> None:
    scene = Scene((("ball", "spheres"),), 12, below=True, seed=3)
    found = exact_where_pressed(scene, lambda x: jaxik.solve(scene.problem(x), x["start"]), 4)
    held_up = (found.status == jaxik.Status.CONVERGED) & (found.clearance < 0.01 * 1.051)
    assert (held_up & (found.derivative_status == jaxik.DerivativeStatus.EXACT)).sum() >= 3


@exhaustive
def test_what_is_out_of_reach_beside_an_obstacle_has_approximate_derivatives() -> None:
    scene = Scene((("block", "spheres"),), 24, below=True, seed=3)
    scene.values["tip"] = (scene.values["tip"] + scene.values["center"]) / 2
    found, moved, wrong, _ = compared(scene, lambda x: jaxik.solve(scene.problem(x), x["start"]))
    held_up = (moved > 0.05) & (moved < JUMP) & (found.stationarity < 1e-8)
    assert held_up.sum() >= 4 and (found.derivative_status[held_up] == jaxik.DerivativeStatus.APPROXIMATE).all()
    # An arm of four joints has no freedom left: what is left out does not count. Solutions are settled to 1e-8.
    assert np.median(wrong[held_up]) < 1e-3


@exhaustive
@pytest.mark.parametrize("shape", SHAPES)
def test_all_kinds_of_pairs_have_exact_derivatives(shape: str) -> None:
    scene = Scene(tuple((shape, kind) for kind in OBSTACLES), 4, below=False, seed=0)
    exact_where_pressed(scene, lambda x: jaxik.solve(scene.problem(x), x["start"]), 10)


class AmongHulls(Scene):
    """The same among hulls of 12 corners, or cylinders, which are curved."""

    def obstacles(self, given: Parameters) -> jaxik.World:
        rotation, half = self.rotation @ jaxlie.SO3.exp(given["turn"]), given["size"]
        pose = jaxlie.SE3(jaxlie.SE3.from_rotation_and_translation(rotation, given["center"]).wxyz_xyz[..., None, :])
        if self.pairs[0][1] == "cylinders":
            return jaxik.World(cylinders=jaxik.Cylinders(pose, half[..., :1], half[..., 1:2]))
        corners = np.random.default_rng(0).normal(size=(12, 3))
        corners /= np.linalg.norm(corners, axis=1, keepdims=True)
        return jaxik.World(hulls=jaxik.Hulls(pose, corners * half[..., None, None, :]))


@exhaustive
@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_hull_holds_up_has_exact_derivatives(shape: str) -> None:
    scene = AmongHulls(((shape, "hulls"),), 12, below=False, seed=1)
    options = jaxik.SolveOptions(step_tolerance=1e-14, max_steps=1000)
    call = lambda x: jaxik.solve(scene.problem(x), x["start"], options=options)  # noqa: E731
    found, moved, wrong, by_name = compared(scene, call)
    # A solution that depends on its start is not settled, and differences are no measure of its derivative.
    good = (found.derivative_status == jaxik.DerivativeStatus.EXACT) & (by_name["start"] < 1e-7)
    assert (good & (moved > 0.05)).sum() >= 5
    # Some moved solutions are settled to 1e-10 alone, and of 36 elements one is 1e-5 rad beside another corner.
    each = np.stack([x[good] for x in by_name.values()])
    assert np.mean(each < 1e-6) > 0.9 and np.median(wrong[good]) < 1e-6


@exhaustive
def test_what_a_cylinder_holds_up_has_approximate_derivatives() -> None:
    scene = AmongHulls((("rod", "cylinders"),), 12, below=False, seed=1)
    found, moved, _, _ = compared(scene, lambda x: jaxik.solve(scene.problem(x), x["start"]))
    held_up = (moved > 0.05) & (found.stationarity < 1e-8)
    assert held_up.sum() >= 4 and (found.derivative_status[held_up] >= jaxik.DerivativeStatus.APPROXIMATE).all()


@exhaustive
def test_a_search_among_obstacles_has_exact_derivatives() -> None:
    scene = Scene((("ball", "spheres"),), 12, below=True, seed=0)
    exact_where_pressed(scene, lambda x: jaxik.search(scene.problem(x), jax.random.key(0)), 3)


@exhaustive
def test_a_step_towards_obstacles_has_exact_derivatives() -> None:
    scene = Scene((("ball", "spheres"), ("rod", "boxes"), ("block", "boxes")), 8, below=False, seed=2)
    # From beside the obstacle, into it.
    scene.values["center"] = scene.values["center"] + scene.away * 0.1

    def stepped(given: Parameters) -> Any:
        return jaxik.step(scene.problem(given), given["start"], 0.1, damping=1e-3)

    found, moved, wrong, _ = compared(scene, stepped)
    exact = found.derivative_status == jaxik.DerivativeStatus.EXACT
    assert wrong[exact].max() < 1e-6 and (exact & (moved > 0.05)).sum() > 3


Table = tuple[tuple[str, str], ...]
# All kinds of pairs, and of those each shape and each kind of obstacle.
EVERY: Table = tuple((shape, kind) for shape in SHAPES for kind in OBSTACLES)
FEW: Table = (("ball", "spheres"), ("rod", "capsules"), ("rod", "boxes"), ("block", "boxes"), ("block", "planes"))
TABLES = pytest.mark.parametrize("table", mostly_exhaustive([FEW, EVERY], [FEW]), ids=len)


@cache
def curvatures(table: Table) -> tuple[Any, Any, tuple[Any, Any]]:
    """Curvatures and central differences of rows (n, k, nv, nv), derivatives and differences of distances (n, k, nv).

    Of the first half of the elements, obstacles are turned anyhow; of the second, boxes and planes face the block.
    """
    rng, robot, count = np.random.default_rng(3), arm(), 60
    q = jnp.asarray(robot.sample(jax.random.key(3), (count,)), float)
    place = robot.geometry.names.index("block")
    alike = robot.frame_pose(q, robot.frame("tool")).rotation() @ jaxlie.SO3(robot.geometry.quaternion[place])
    anyhow = jaxlie.SO3(jnp.asarray(rng.normal(size=(count, 4)))).normalize()
    turned = jnp.where(jnp.arange(count)[:, None] < count // 2, anyhow.wxyz, alike.wxyz)
    center, size = jnp.asarray(rng.uniform(-0.4, 0.6, (count, 3))), jnp.asarray(rng.uniform(0.05, 0.15, (count, 3)))

    @jax.jit
    @jax.vmap
    def at(q: jax.Array, turned: jax.Array, center: jax.Array, size: jax.Array) -> Any:
        obstacles = world(center, jaxlie.SO3(turned), size, 0)
        obstacles = jax.tree.map(lambda x: jnp.ones_like(x) if x.dtype == bool else x, obstacles)
        limit = jaxik.CollisionLimit(obstacles, pairs=table)
        args, frames = (robot.geometry, obstacles, limit.table(robot)), limit.frames_of(robot)
        chosen = nearest_pairs(*args, robot.kinematics(q, frames), len(table))

        def rows(q: jax.Array) -> Any:
            return pairs_at(*args, robot.kinematics(q, frames), chosen)

        def values(q: jax.Array) -> Any:
            return rows(q).jacobian, separations(*args, robot.kinematics(q, frames))[chosen.which]

        steps = jnp.eye(4) * STEP
        after, before = (jax.lax.map(lambda dq, sign=sign: values(q + sign * dq), steps) for sign in (1, -1))
        turns, moves = jax.tree.map(lambda a, b: jnp.moveaxis(a - b, 0, -1) / (2 * STEP), after, before)
        moved = jax.jacfwd(lambda q: rows(q).distance)(q)
        return curvatures_at(*args, robot.kinematics(q, frames), chosen), turns, (moved, moves)

    return jax.device_get(at(q, turned, center, size))


@TABLES
def test_curvatures_are_differences_of_rows(table: Table) -> None:
    found, differences, _ = (jax.tree.map(lambda x: x[:30], each) for each in curvatures(table))
    wrong = np.abs(found.hessian - (differences + differences.swapaxes(2, 3)) / 2).max((2, 3))
    wrong /= 1 + np.abs(differences).max((2, 3))
    assert wrong[~found.switches].max() < 1e-6 and np.mean(found.switches) < 0.01
    assert not found.held.any() and np.mean(np.abs(differences).max((2, 3)) > 0.1) > 0.9


@TABLES
def test_distances_of_chosen_pairs_have_the_derivatives_of_all(table: Table) -> None:
    found, _, (moved, differences) = curvatures(table)
    assert np.abs(moved - differences)[~found.switches].max() < 1e-8


@TABLES
def test_shapes_that_face_each_other_are_said_to_switch(table: Table) -> None:
    found, _, _ = curvatures(table)
    # The block with a box and a plane; with the capsule as well where that lies along a face.
    assert (found.switches[30:].sum(1) >= 2).all() and found.switches[30:].sum(1).mean() < 3


def test_obstacles_that_are_masked_change_no_derivative() -> None:
    # A block and a sphere are evaluated as capsule and box, the other way round.
    tip = jaxlie.SE3.from_translation(jnp.asarray([0.5, 0, 0.5]))
    tasks = {"tip": jaxik.FrameTask(arm().frame("tip"), tip, orientation_cost=None)}

    def stepped(q: jax.Array, center: jax.Array) -> jax.Array:
        spheres = jaxik.Spheres(center, jnp.full(2, 0.05), jnp.asarray([True, False]))
        limit = jaxik.CollisionLimit(jaxik.World(spheres=spheres), pairs=[("block", "world")])
        return jaxik.step(jaxik.Problem(arm(), tasks, limits=(jaxik.ConfigurationLimit(), limit)), q, 0.1).q

    q, centers = jnp.asarray([0.3, 0.5, 0.5, 0.2]), jnp.asarray([[0.5, 0, 0.5], [0, 0, 0]])
    derivatives = jax.jit(jax.jacfwd(stepped, (0, 1)))
    here, elsewhere = (derivatives(q, centers.at[1].set(at)) for at in (0.0, 5.0))
    assert np.isfinite(here[0]).all() and np.any(here[1][:, 0]) and not np.any(here[1][:, 1])
    jax.tree.map(np.testing.assert_array_equal, here, elsewhere)
