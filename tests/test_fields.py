"""Obstacles that are no shapes: never nearer than they are said to be, against brute force over points and formulas."""

import dataclasses
from functools import cache
from typing import Any

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial import cKDTree
from tables import exhaustive
from test_collision_limit import arm

import jaxik
from jaxik.collision.pieces import Cloud, Grid, piece_cloud, piece_grid
from jaxik.collision.segments import Segment
from jaxik.collision.world import World
from jaxik.core.errors import JaxikError
from jaxik.numerics.vectors import from_array, to_array

COUNT, ALONG = 400, 60
DIAGONAL = np.sqrt(3) / 2


def segments(seed: int, low: Any, high: Any, longest: float) -> tuple[np.ndarray, np.ndarray]:
    """Centres and halves (n, 3) of segments in a box, the first third points."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(COUNT, 3))
    half *= longest * rng.uniform(0.05, 1, (COUNT, 1)) / np.linalg.norm(half, axis=1, keepdims=True)
    half[: COUNT // 3] = 0
    return rng.uniform(low, high, (COUNT, 3)), half


def points_of(center: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Points (along, n, 3) of segments."""
    return center + np.linspace(-1, 1, ALONG)[:, None, None] * half


@jax.jit
def by_grid(field: jaxik.VoxelField, center: Any, half: Any) -> Any:
    corner = field.pose[4:]
    axes = tuple(from_array(row) for row in jnp.eye(3))
    grid = Grid(from_array(corner), axes, field.cell, field.distance)  # type: ignore[arg-type]
    contact = piece_grid(Segment(from_array(center), from_array(half)), grid)
    return contact.distance, to_array(contact.normal), to_array(contact.point)


def check(field: jaxik.VoxelField, true: np.ndarray, center: np.ndarray, half: np.ndarray, extra: float) -> None:
    """Never above the true distance of segments; in the box less by a cell's diagonal, a stride and `extra`."""
    found = np.asarray(by_grid(field, center, half)[0])
    assert (found <= true + 1e-9).all()
    cell, low = float(field.cell), np.asarray(field.pose[4:])
    high = low + cell * (np.array(field.distance.shape) - 1)
    inside = ((points_of(center, half) >= low) & (points_of(center, half) <= high)).all(axis=(0, 2))
    lost = 2 * DIAGONAL * cell + np.linalg.norm(half, axis=1) / 4 + extra
    assert (found >= true - lost)[inside].all() and inside.sum() > 50
    assert (~inside).sum() > 20 and (found[~inside] > -0.02 - lost[~inside]).mean() > 0.5


def ball_and_floor(p: np.ndarray) -> np.ndarray:
    return np.minimum(np.linalg.norm(p - [0.1, 0, 0.2], axis=-1) - 0.15, p[..., 2] + 0.1)


def test_a_grid_of_distances_is_never_above_them() -> None:
    nodes = -0.4 + 0.03 * np.stack(np.indices((27, 27, 27)), axis=-1)
    field = jaxik.VoxelField(ball_and_floor(nodes), 0.03, (-0.4, -0.4, -0.4))
    center, half = segments(0, -0.35, 0.35, 0.1)
    center[::10] += np.array([0.6, 0, 0])  # beyond the box, where a ball is all that is near
    true = ball_and_floor(points_of(center, half)).min(0)
    beyond = np.abs(center).max(1) > 0.38
    true[beyond] = (np.linalg.norm(points_of(center, half) - [0.1, 0, 0.2], axis=-1) - 0.15).min(0)[beyond]
    check(field, np.where(beyond, np.maximum(true, 0), true), center, half, 0)
    # The normal is against the slope, where it is smooth.
    distance, normal, point = (np.asarray(x) for x in by_grid(field, center, half))
    alone = (distance > 0.02) & (half == 0).all(1) & ~beyond
    outward = point - [0.1, 0, 0.2]
    outward /= np.linalg.norm(outward, axis=1, keepdims=True)
    of_ball = alone & (np.linalg.norm(point - [0.1, 0, 0.2], axis=1) - 0.15 < point[:, 2] + 0.1 - 0.06)
    assert of_ball.sum() > 20 and (np.sum(-normal * outward, axis=1)[of_ball] > 0.97).all()


@cache
def terrain() -> np.ndarray:
    """Heights (13, 11), 5 cm apart: hills, and a cliff."""
    x, y = np.meshgrid(np.linspace(0, 0.6, 13), np.linspace(0, 0.5, 11), indexing="ij")
    return 0.05 * np.sin(9 * x) * np.cos(11 * y) + 0.1 * (x > 0.42)


def below(heights: np.ndarray, fine: int) -> np.ndarray:
    """Points (n, 3) of the surface of triangles with diagonals from corner (0, 0) to (1, 1)."""
    n, m = heights.shape
    u, v = np.meshgrid(np.arange(fine * (n - 1) + 1) / fine, np.arange(fine * (m - 1) + 1) / fine, indexing="ij")
    i, j = np.minimum(u.astype(int), n - 2), np.minimum(v.astype(int), m - 2)
    a, b = u - i, v - j
    corners = heights[i, j], heights[i + 1, j], heights[i, j + 1], heights[i + 1, j + 1]
    upper = corners[0] + a * (corners[3] - corners[2]) + b * (corners[2] - corners[0])
    lower = corners[0] + a * (corners[1] - corners[0]) + b * (corners[3] - corners[1])
    return np.stack([0.05 * u, 0.05 * v, np.where(a >= b, lower, upper)], axis=-1)


def test_a_height_field_is_no_nearer_than_said_and_a_capsule_over_a_hill_touches_it() -> None:
    field, surface = jaxik.VoxelField.from_heights(terrain(), 0.05, cell=0.02), below(terrain(), 40)
    center, half = (x[:150] for x in segments(1, [0.02, 0.02, -0.05], [0.58, 0.48, 0.33], 0.15))
    center[:40] = surface[40:-40:10, 40:-40:10].reshape(-1, 3)[::30][:40]  # on it
    points = points_of(center, half)
    i, j = (np.clip(np.round(points[..., k] / 0.05 * 40).astype(int), 0, surface.shape[k] - 1) for k in (0, 1))
    over = ((points[..., :2] >= 0) & (points[..., :2] <= [0.6, 0.5])).all(-1)
    under = over & (points[..., 2] < surface[i, j, 2] - 0.003)
    tree = cKDTree(surface.reshape(-1, 3))
    true, _ = tree.query(points)
    found = np.asarray(by_grid(field, center, half)[0])
    apart, deep = ~under.any(0) & over.all(0), under.all(0)
    lost = 2 * DIAGONAL * 0.02 + np.linalg.norm(half, axis=1) / 4 + 0.01
    assert (found <= true.min(0) + 1e-9)[apart].all() and (found >= true.min(0) - lost)[apart].all()
    assert (found < 0)[deep].all() and apart.sum() > 40 and deep.sum() > 5
    nodes = np.asarray(field.pose[4:]) + 0.02 * np.moveaxis(np.indices(field.distance.shape), 0, -1)
    at = nodes[12:38:5, 12:33:5, -8:].reshape(-1, 3)  # over the surface
    assert (np.asarray(field.distance)[12:38:5, 12:33:5, -8:].ravel() <= tree.query(at)[0]).all()
    ridge = np.zeros((11, 11))
    ridge[5] = 0.2
    across = np.array([[0.25, 0.25, 0.1]]), np.array([[0.15, 0, 0]])  # both of its ends are above the ground
    assert by_grid(jaxik.VoxelField.from_heights(ridge, 0.05, cell=0.03), *across)[0][0] < -0.03


def test_points_and_cubes_as_a_grid_are_never_above_their_distances() -> None:
    cloud = np.random.default_rng(2).uniform(-0.2, 0.2, (300, 3)) * [1, 1, 0.2]
    center, half = segments(3, -0.45, 0.45, 0.1)
    center[:100] = cloud[:100]  # points between nodes, to which no node is near
    apart = np.linalg.norm(points_of(center, half)[:, :, None] - cloud, axis=-1).min(axis=(0, 2))
    check(jaxik.VoxelField.from_points(cloud, 0.01, cell=0.025), apart - 0.01, center, half, 0)
    occupied = np.zeros((12, 10, 8), bool)
    occupied[3:6, 2:9, 0:4] = occupied[8, 8, 7] = True
    field = jaxik.VoxelField.from_occupancy(occupied, 0.04, (-0.22, -0.18, -0.14))
    middles = np.array([-0.22, -0.18, -0.14]) + 0.04 * np.argwhere(occupied)
    off = np.abs(points_of(center, half)[:, :, None] - middles) - 0.02
    true = np.linalg.norm(np.maximum(off, 0), axis=-1).min(axis=(0, 2))
    found = np.asarray(by_grid(field, center, half)[0])
    assert (found <= true + 1e-9).all() and (found[true > 0.12] > 0).all() and (true > 0.12).sum() > 50


def test_the_nearest_point_of_a_cloud() -> None:
    rng = np.random.default_rng(4)
    position, radius, mask = rng.normal(size=(500, 3)), rng.uniform(0.01, 0.1, 500), rng.random(500) > 0.3
    center, half = segments(5, -2, 2, 0.5)
    points = Cloud(from_array(jnp.asarray(position)), jnp.where(mask, radius, -jnp.inf))
    contact = jax.jit(piece_cloud)(Segment(from_array(jnp.asarray(center)), from_array(jnp.asarray(half))), points)
    square = np.maximum(np.sum(half * half, axis=1), 1e-300)
    t = np.clip(np.sum((position - center[:, None]) * half[:, None], axis=-1) / square[:, None], -1, 1)
    nearest = center[:, None] + t[..., None] * half[:, None]
    each = np.where(mask, np.linalg.norm(position - nearest, axis=-1) - radius, np.inf)
    np.testing.assert_allclose(contact.distance, each.min(1), atol=1e-12)
    surface = np.take_along_axis(nearest, each.argmin(1)[:, None, None], axis=1)[:, 0]
    np.testing.assert_allclose(to_array(contact.point), surface, atol=1e-9)
    np.testing.assert_allclose(
        to_array(contact.normal), (position[each.argmin(1)] - surface) / (each.min(1) + radius[each.argmin(1)])[:, None]
    )


def scene(shift: Any = 0.0) -> jaxik.World:
    nodes = np.array([-1, -0.2, -0.2]) + 0.05 * np.stack(np.indices((41, 9, 29)), axis=-1)
    distance = np.linalg.norm(nodes - [0.6, 0, 0.6], axis=-1) - 0.12
    field = jaxik.VoxelField(jnp.asarray(distance) + shift, 0.05, (-1.0, -0.2, -0.2))
    return World(field=field, points=jaxik.Points([[-0.5, 0, 0.9], [-0.6, 0, 0.8]], 0.05))


def test_a_robot_has_a_pair_for_each_piece_and_new_values_compile_nothing() -> None:
    pairs = [("hand", "world")]

    @jax.jit
    @chex.assert_max_traces(1)
    def look(q: jax.Array, world: jaxik.World) -> Any:
        found, slope = jax.value_and_grad(lambda q: arm().clearance(q, world, pairs))(q)
        return arm().distances(q, world, pairs), found, slope

    arm()  # loaded before anything is traced
    q, steps = jnp.asarray([1.2, 0.3, -0.4]), 1e-7 * jnp.eye(3)
    found, least, slope = look(q, scene())
    assert found.pairs == (("palm", "field/0"),) * 4 + (("palm", "points/0"),) * 4
    assert least == found.distance.min() and np.isfinite(found.points).all()
    differences = [(look(q + s, scene())[1] - look(q - s, scene())[1]) / 2e-7 for s in steps]
    np.testing.assert_allclose(slope, differences, atol=1e-6)
    assert look(q, scene(-0.05))[1] < least


@exhaustive
def test_a_robot_keeps_away() -> None:
    @jax.jit
    def walk(q: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
        tip = jaxik.FrameTask(arm().frame("tip"), targets, orientation_cost=None)
        limits = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(3.0), jaxik.CollisionLimit(scene(), pairs)
        problem = jaxik.Problem(arm(), {"tip": tip}, limits=limits)

        def one(q: jax.Array, _: None) -> Any:
            result = jaxik.step(problem, q, 0.02, damping=1e-3, continuous=True)
            return result.q, (result.clearance, result.status)

        return jax.lax.scan(one, q, length=40)

    pairs = [("hand", "world")]
    q = arm().sample(jax.random.key(0), 60)
    q = q[np.asarray(arm().clearance(q, scene(), pairs)) > 0.01][:30]
    targets = jnp.asarray(np.resize([[0.6, 0, 0.6], [-0.5, 0, 0.9]], (len(q), 3)))
    last, (clearance, status) = walk(q, targets)
    assert (status == jaxik.Status.CONVERGED).all() and (np.asarray(clearance) > 0).all()
    tip = np.asarray(arm().frame_pose(last, "tip").translation())
    assert (np.linalg.norm(tip - targets, axis=1)[::2] > 0.12).all() and np.asarray(clearance)[-1].min() < 0.02


def test_a_height_field_of_mujoco_is_where_it_is() -> None:
    elevation = " ".join(f"{h:.3f}" for h in np.linspace(0, 1, 12))  # rows from the last y on, as MuJoCo reads files
    model = mujoco.MjModel.from_xml_string(
        f"""<mujoco><asset><hfield name="h" nrow="3" ncol="4" size=".3 .2 .1 .05" elevation="{elevation}"/></asset>
        <worldbody><geom type="hfield" hfield="h" pos="1 0 .5" euler="0 0 90"/></worldbody></mujoco>"""
    )
    world = World.from_mujoco(model)
    field = world.field
    assert field is not None
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    for x, y in ((0.9, 0.1), (1.1, -0.2), (1.0, 0.22), (1.15, 0.0)):
        top = 5 - mujoco.mj_ray(
            model, data, np.array([x, y, 5.0]), np.array([0.0, 0, -1]), None, 1, -1, np.zeros(1, np.int32)
        )
        # In the axes of the grid.
        pose = np.asarray(field.pose, float)
        local = jaxik_local(pose, np.array([[x, y, top + 0.1], [x, y, top - 0.02]]))
        grid = dataclasses.replace(field, pose=np.zeros(3))
        above, inside = np.asarray(by_grid(grid, local, np.zeros((2, 3)))[0])
        assert inside < 0 and -0.2 < above <= 0.1


def jaxik_local(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    import jaxlie

    return np.asarray(jax.vmap(jaxlie.SE3(jnp.asarray(pose)).inverse().apply)(jnp.asarray(points)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jaxik.VoxelField(np.zeros((4, 1, 4)), 0.1), "2 nodes along each"),
        (lambda: jaxik.VoxelField(np.full((2, 2, 2), np.nan), 0.1), "a distance is NaN"),
        (lambda: jaxik.VoxelField(np.zeros((2, 2, 2)), 0.0), "cell is above zero"),
        (lambda: jaxik.VoxelField.from_heights(np.zeros((1, 5)), 0.1), "heights are .nx, ny."),
        (lambda: jaxik.VoxelField.from_heights(np.zeros((500, 500)), 0.1, cell=0.001), "too many"),
        (lambda: jaxik.VoxelField.from_points(np.zeros((0, 3))), "points are .n, 3."),
        (lambda: jaxik.VoxelField.from_occupancy(np.zeros((3, 3, 3), bool), 0.1), "with one at least"),
        (lambda: jaxik.Points([[0, 0, 0.0]], -0.1), "Points: radius is above zero"),
        (lambda: World(field=jaxik.Points([[0, 0, 0.0]], 0.1)), "field are jaxik.VoxelField"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_told_in_a_line(make: Any, words: str) -> None:
    with pytest.raises(JaxikError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)
