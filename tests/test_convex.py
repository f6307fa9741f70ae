"""Cylinders, ellipsoids and hulls: their distances by coal and MuJoCo, and what stands for meshes."""

from functools import cache, partial
from pathlib import Path
from typing import Any

import chex
import coal
import distance_pairs as pairs
import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from tables import mostly_exhaustive

import jaxik
from jaxik.collision.boxes import Box
from jaxik.collision.convex import CYLINDER, ELLIPSOID, Hull, Primitive, convex_plane, of_box, of_segment
from jaxik.collision.features import direction_of_features, is_curved
from jaxik.collision.gjk import convex_convex
from jaxik.collision.planes import HalfSpace
from jaxik.collision.segments import Segment
from jaxik.core.errors import JaxikError, LoadError
from jaxik.numerics.vectors import Vector, from_array, to_array

COUNT, CORNERS = 1500, 24
FORMS = ("box", "cylinder", "ellipsoid", "segment")
# coal stops its iterations there.
COAL_ERROR = 2e-6


def shapes(seed: int) -> tuple[pairs.Shapes, pairs.Shapes]:
    rng = np.random.default_rng(seed)
    return pairs.random_shapes(rng, COUNT), pairs.random_shapes(rng, COUNT)


@cache
def ball_corners() -> np.ndarray:
    """Points (count, k, 3) of length 1."""
    corners = np.random.default_rng(9).normal(size=(COUNT, CORNERS, 3))
    return corners / np.linalg.norm(corners, axis=2, keepdims=True)


def box_of(s: pairs.Shapes, dtype: Any) -> Box:
    position, size = (from_array(jnp.asarray(x, dtype)) for x in (s.position, s.size))
    x, y, z = (from_array(jnp.asarray(s.rotation[:, :, i], dtype)) for i in range(3))
    return Box(position, (x, y, z), size)


@partial(jax.jit, static_argnames="dtype")
def primitives(s: pairs.Shapes, dtype: Any = float) -> Primitive:
    """Of each form in turn."""
    box = box_of(s, dtype)
    every = (
        of_box(box),
        Primitive(box._replace(half=Vector(box.half.x, box.half.x, box.half.y)), jnp.full(COUNT, CYLINDER, dtype)),
        Primitive(box, jnp.full(COUNT, ELLIPSOID, dtype)),
        of_segment(Segment(box.center, box.axes[2] * box.half.y)),
    )
    form = np.arange(COUNT) % len(FORMS)
    return jax.tree.map(lambda *x: jnp.choose(form, list(x), mode="clip"), *every)


@partial(jax.jit, static_argnames="dtype")
def hulls(s: pairs.Shapes, dtype: Any = float) -> Hull:
    return Hull(box_of(s, dtype), from_array(jnp.asarray(ball_corners() * s.size[:, None], dtype)))


def by_coal(s: pairs.Shapes, i: int, is_hull: bool) -> Any:
    size, form = s.size[i], FORMS[i % len(FORMS)]
    if is_hull:
        points = coal.StdVec_Vec3s()
        for corner in ball_corners()[i] * size:
            points.append(corner)
        return coal.Convex.convexHull(points, False, "Qt")
    if form == "box":
        return coal.Box(*(2 * size))
    if form == "cylinder":
        return coal.Cylinder(size[0], 2 * size[1])
    return coal.Ellipsoid(*size) if form == "ellipsoid" else coal.Capsule(1e-12, 2 * size[1])


MAKE = {"primitive": primitives, "hull": hulls}
CLASSES = [("primitive", "primitive"), ("primitive", "hull"), ("hull", "hull")]
contact = jax.jit(convex_convex)


@pytest.mark.parametrize("kinds", CLASSES, ids="-".join)
def test_distances_are_those_of_coal_and_never_more(kinds: tuple[str, str]) -> None:
    a, b = shapes(0)
    found = np.asarray(contact(MAKE[kinds[0]](a), MAKE[kinds[1]](b)).distance)
    theirs = np.empty(COUNT)
    for i in range(COUNT):
        request, result = coal.DistanceRequest(), coal.DistanceResult()
        request.enable_signed_distance = True
        placed = [coal.Transform3s(s.rotation[i], s.position[i]) for s in (a, b)]
        each = [by_coal(s, i, kind == "hull") for s, kind in zip((a, b), kinds, strict=True)]
        theirs[i] = coal.distance(each[0], placed[0], each[1], placed[1], request, result)
    apart, error = theirs > 0, found - theirs
    assert (error <= COAL_ERROR).all() and 0.02 < np.mean(~apart) < 0.3
    assert np.mean(error[apart] > -1e-5) > 0.998 and error[apart].min() > -5e-4
    # Overlapping, the way out that is found is sometimes not the shortest.
    assert np.mean(error[~apart] > -0.01 * np.abs(theirs[~apart])) > 0.8


@pytest.mark.parametrize("kinds", mostly_exhaustive(CLASSES, [("primitive", "hull")]), ids="-".join)
def test_normals_and_points_tell_how_a_distance_changes(kinds: tuple[str, str]) -> None:
    """The row of a twist of the first shape against central differences."""
    a, b = shapes(1)
    other, step = MAKE[kinds[1]](b), 1e-5
    here = contact(MAKE[kinds[0]](a), other)
    normal, point = pairs.array(here.normal), pairs.array(here.point)
    row = np.concatenate([-normal, -np.cross(point, normal)], axis=1)

    def moved(twist: np.ndarray) -> np.ndarray:
        turn = Rotation.from_rotvec(twist[3:]).as_matrix()
        turned = a._replace(rotation=turn @ a.rotation, position=a.position @ turn.T + twist[:3])
        return np.asarray(contact(MAKE[kinds[0]](turned), other).distance)

    differences = np.stack([(moved(step * x) - moved(-step * x)) / (2 * step) for x in np.eye(6)], axis=1)
    wrong = np.abs(row - differences).max(axis=1)[np.asarray(here.distance) > 0]
    assert np.quantile(wrong, 0.9) < 1e-3 and np.median(wrong) < 1e-5
    assert np.abs(np.linalg.norm(normal, axis=1) - 1).max() < 1e-12


@pytest.mark.parametrize("kinds", mostly_exhaustive(CLASSES, [("primitive", "hull")]), ids="-".join)
def test_distances_and_normals_and_points_of_polytopes_have_exact_derivatives(kinds: tuple[str, str]) -> None:
    """By a twist and a growth of the first shape, against central differences; polytopes: boxes, segments and hulls."""
    a, b = (MAKE[kind](s) for kind, s in zip(kinds, shapes(1), strict=True))
    step = 1e-6
    # Corners each on their own: what is nearest, on a face, moves with several.
    each = np.random.default_rng(2).uniform(0.5, 1.5, a.corners.x.shape) if isinstance(a, Hull) else None

    def of(change: jax.Array) -> jax.Array:
        turn, box = jaxlie.SO3.exp(change[3:6]), a.box
        axes = tuple(from_array(turn @ jnp.asarray(pairs.array(axis))) for axis in box.axes)
        center = box.center.map(lambda x, dx: x + dx, Vector(*change[:3]))
        grown = a._replace(box=box._replace(center=center, axes=axes, half=box.half * (1 + change[6])))
        if isinstance(grown, Hull):
            grown = grown._replace(corners=grown.corners * (1 + change[6] * each))
        found = convex_convex(grown, b)
        return jnp.stack([found.distance, *found.normal.components, *found.point.components], axis=1)

    zero, steps = jnp.zeros(7), step * np.eye(7)
    after, before = np.split(np.asarray(jax.jit(jax.vmap(of))(np.concatenate([steps, -steps]))), 2)
    differences = np.moveaxis(after - before, 0, -1) / (2 * step)
    slopes, here = jax.jit(jax.jacfwd(lambda change: (of(change),) * 2, has_aux=True))(zero)
    wrong = np.abs(np.asarray(slopes) - differences)
    of_distance = wrong[:, 0].max(1)
    wrong = wrong.max((1, 2)) / (1 + np.abs(differences).max((1, 2)))
    flat = ~np.asarray(is_curved(a) | is_curved(b))
    # Of overlapping shapes, the way out may be another one where rounding differs: there is no derivative to compare.
    jumps = np.maximum(np.abs(after - here), np.abs(before - here))[..., 0].max(0) > 10 * step
    assert wrong[flat & ~jumps].max() < 1e-6 and flat.sum() >= COUNT / 2 and jumps.sum() <= COUNT / 1000
    # At curved surfaces, distances are known to the tolerance of the steps, and differences to a million times that.
    apart = ~flat & (np.asarray(here[:, 0]) > 0)
    assert of_distance[apart].max(initial=0) < 1e-3 and (flat.all() or apart.sum() > COUNT / 5)


def test_a_hull_that_is_beside_its_own_origin_ends_where_its_faces_do() -> None:
    """A sphere over a tetrahedron whose upper face has one corner so low that the origin of its pose is above it."""
    low = np.array([0.01, 0.1, 0.3])
    corners = np.tile(np.array([[1.0, 0, 0], [-1, 1, 0], [-1, -1, 0], [0, 0, -1]]), (3, 1, 1))
    corners[:, 0, 2] = -low
    robot = jaxik.load_robot(
        '<mujoco><worldbody><body><joint type="slide" axis="0 0 1"/><geom type="sphere" size="0.1" mass="1"/></body>'
        "</worldbody></mujoco>",
        geometry="model",
    )
    hulls = jaxik.Hulls(np.array([[1.0, 0, 0, 0, 0.2, 0, -0.5]]), corners[:, None])
    found = robot.distances(np.zeros((3, 1)), jaxik.World(hulls=hulls))
    # The face falls by `low` on the 2 m from x = -1 to 1, and the sphere is 0.8 m from where it begins.
    length = np.hypot(low, 2)
    np.testing.assert_allclose(found.distance[:, 0], (0.5 + 0.4 * low) * 2 / length - 0.1, atol=1e-8)
    np.testing.assert_allclose(
        found.normal[:, 0], np.stack([-low, 0 * low, -2 + 0 * low], 1) / length[:, None], atol=1e-7
    )


def test_the_normal_of_an_edge_along_a_side_of_a_face_turns_with_the_face_alone() -> None:
    """An edge above a prism, parallel to each side of the triangle in turn: moved, and turned about itself."""
    triangle = np.array([[0, 0], [1, 0], [0.3, 0.8]])
    prism = np.array([[x, y, z] for z in (0.3, -0.3) for x, y in triangle])
    sides = np.roll(triangle, -1, axis=0) - triangle
    along = np.column_stack([sides, np.zeros(3)]) * 0.4

    def normals(change: jax.Array) -> jax.Array:
        turn = jax.vmap(lambda axis: jaxlie.SO3.exp(axis / jnp.linalg.norm(axis) * change[3]))(jnp.asarray(along))
        x, y, z = (from_array(turn @ jnp.tile(axis, (3, 1))) for axis in jnp.eye(3))
        one = jnp.ones(3)
        hull = Hull(Box(Vector(0 * one, 0 * one, 0 * one), (x, y, z), Vector(one, one, 0.3 * one)), corners)
        middle = jnp.array([0.4, 0.3, 0.35]) + change[:3]
        edge = of_segment(Segment(from_array(jnp.tile(middle, (3, 1))), from_array(jnp.asarray(along))))
        return to_array(direction_of_features(edge, hull, Vector(0 * one, 0 * one, -one))[0])

    corners = from_array(jnp.tile(prism, (3, 1, 1)))
    turned = np.cross(along / np.linalg.norm(along, axis=1, keepdims=True), [0, 0, -1])
    found = np.asarray(jax.jit(jax.jacfwd(normals))(np.zeros(4)))
    np.testing.assert_allclose(found[..., :3], 0, atol=1e-12)
    np.testing.assert_allclose(found[..., 3], turned, atol=1e-12)


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float32, np.float64], [np.float32]))
def test_shapes_that_coincide_touch_or_are_flat_give_no_nan(dtype: Any) -> None:
    a, _ = shapes(2)
    flat = a._replace(size=a.size * np.array([1, 1, 1e-6]))
    beside = a._replace(position=a.position + 2 * a.size[:, :1] * a.rotation[:, :, 0])
    distance_and_tangent = jax.jit(lambda x, y: jax.jvp(lambda x: convex_convex(x, y).distance, (x,), (x,)))
    for first, second in ((a, a), (flat, flat), (a, beside)):
        for make in MAKE.values():
            value, tangent = distance_and_tangent(make(first, dtype), make(second, dtype))
            assert np.isfinite(value).all() and np.isfinite(tangent).all()


# Segments (center, half) beside cylinders along z (radius, half length) that are apart although their middles are near.
BESIDE = [
    ((-0.08514, -0.00243, 0.06045), (0.12168, 0.03506, -0.04097), (0.00243, 0.10091)),
    ((-0.13981, -0.10383, -0.00278), (-0.08494, -0.08478, -0.01851), (0.11435, 0.001)),
    ((-0.27576, 0.07113, -0.01345), (0.12398, -0.10999, 0.06337), (0.21981, 0.00487)),
]


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float64, np.float32], [np.float32]))
def test_a_segment_beside_a_thin_cylinder_does_not_overlap_it_wherever_it_is_moved_by_a_hair(dtype: Any) -> None:
    """Rounding once took the first simplex, whose corners coincide, to have the origin inside: 65 mm too deep."""
    many = 200
    center, half, size = (np.repeat(x, many, axis=0) for x in map(np.array, zip(*BESIDE, strict=True)))
    center = center + 1e-4 * np.random.default_rng(0).normal(size=center.shape)
    count = len(center)
    straight = pairs.Shapes(np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, 3)), size[:, [0, 0, 1]])
    cylinder = Primitive(box_of(straight, dtype), jnp.full(count, CYLINDER, dtype))
    first, along = (from_array(jnp.asarray(x, dtype)) for x in (center, half))
    found = np.asarray(contact(of_segment(Segment(first, along)), cylinder).distance)
    # The nearest of many points of each segment, which are apart from the cylinder.
    points = center + np.linspace(-1, 1, 4001)[:, None, None] * half
    beyond = np.stack([np.linalg.norm(points[..., :2], axis=-1) - size[:, 0], np.abs(points[..., 2]) - size[:, 1]])
    true = np.linalg.norm(np.maximum(beyond, 0), axis=0).min(axis=0)
    assert true.min() > 0.004 and (found < true + 1e-6).all()
    np.testing.assert_allclose(found, true, atol=1e-5)


def test_a_half_space_is_as_far_as_the_lowest_point() -> None:
    a, _ = shapes(3)
    floor = HalfSpace(Vector(*(jnp.asarray(x) for x in (0.0, 0.6, 0.8))), jnp.asarray(0.1))
    found = np.asarray(jax.jit(convex_plane)(hulls(a), floor).distance)
    corners = a.position[:, None] + np.einsum("nij,nkj->nki", a.rotation, ball_corners() * a.size[:, None])
    np.testing.assert_allclose(found, (corners @ [0, 0.6, 0.8]).min(axis=1) - 0.1, atol=1e-12)


@cache
def arm_xml() -> str:
    points = np.random.default_rng(4).normal(size=(60, 3))
    points = points / np.linalg.norm(points, axis=1, keepdims=True) * [0.05, 0.03, 0.12] + [0.02, 0, 0.1]
    vertices = " ".join(f"{x:.6f}" for x in points.ravel())
    return f"""<mujoco model="hulls"><asset><mesh name="shell" vertex="{vertices}"/></asset><worldbody>
      <body name="upper" pos="0 0 .3"><joint name="a" axis="0 1 0" range="-100 100"/>
       <geom name="upper" type="cylinder" size=".04 .1" pos="0 0 .1"/>
       <body name="fore" pos="0 0 .25"><joint name="b" axis="0 1 0" range="-140 140"/>
        <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
        <body name="hand" pos="0 0 .1"><joint name="c" axis="1 0 0" range="-90 90"/>
         <geom name="shell" type="mesh" mesh="shell" euler="20 30 0"/></body></body></body>
    </worldbody></mujoco>"""


@cache
def hulled() -> jaxik.Robot:
    return jaxik.load_robot(arm_xml(), geometry="hull")


def test_a_robot_of_meshes_is_as_far_from_obstacles_as_mujoco_says() -> None:
    robot = hulled()
    world = jaxik.World(cylinders=jaxik.Cylinders([[0.4, 0, 0.5], [9, 9, 9]], 0.1, 0.2, mask=[True, False]))
    spec = mujoco.MjSpec.from_string(arm_xml())
    kind = mujoco.mjtGeom.mjGEOM_CYLINDER
    spec.worldbody.add_geom(name="cylinders/0", type=kind, pos=[0.4, 0, 0.5], size=[0.1, 0.2, 0])
    model = spec.compile()
    data, q = mujoco.MjData(model), robot.sample(jax.random.key(0), 50)
    found = robot.distances(q, world, pairs=[("shell", "world"), ("upper", "shell")])
    assert np.isinf(found.distance[:, found.pairs.index(("shell", "cylinders/1"))]).all()
    for i, at in enumerate(q):
        data.qpos[:] = at
        mujoco.mj_kinematics(model, data)
        for pair in (("shell", "cylinders/0"), ("upper", "shell")):
            first, second = (model.geom(name).id for name in pair)
            theirs = mujoco.mj_geomDistance(model, data, first, second, 9.0, None)
            ours = float(found.distance[i, found.pairs.index(pair)])
            # Where they overlap MuJoCo's polytope may stop early.
            assert ours < 1e-3 if theirs < 0 else abs(ours - theirs) < 1e-4


def test_what_stands_still_in_a_model_is_a_world() -> None:
    """As far from the robot as MuJoCo says, each obstacle by its kind."""
    scene = arm_xml().replace(
        "<worldbody>",
        """<worldbody><geom name="floor" type="plane" size="1 1 1"/>
        <geom name="ball" size=".1" pos="1 0 1"/><geom name="bar" type="capsule" size=".05" fromto="0 1 0 0 1 1"/>
        <body name="shelf" pos=".5 .2 .4" euler="0 0 30"><geom name="board" type="box" size=".2 .1 .01"/>
         <geom name="can" type="cylinder" size=".03 .06" pos="0 0 .07"/><geom type="box" size="1 1 1" contype="0"
          conaffinity="0"/><geom name="stone" type="mesh" mesh="shell" pos=".1 0 .1" euler="0 90 0"/></body>""",
    )
    model = mujoco.MjModel.from_xml_string(scene)
    data, world = mujoco.MjData(model), jaxik.World.from_mujoco(model)
    names = dict(planes="floor", spheres="ball", capsules="bar", boxes="board", cylinders="can", hulls="stone")
    assert world.counts == dict.fromkeys(names, 1)
    robot = hulled()
    found = robot.distances(robot.q_home, world, pairs=[("upper", "world")])
    data.qpos[:] = robot.q_home
    mujoco.mj_kinematics(model, data)
    chex.assert_trees_all_close(jaxik.World.from_mujoco(model, data), world, atol=1e-7)
    for (_, obstacle), distance in zip(found.pairs, found.distance, strict=True):
        first, second = (model.geom(name).id for name in ("upper", names[obstacle.split("/")[0]]))
        assert abs(mujoco.mj_geomDistance(model, data, first, second, 9.0, None) - distance) < 1e-4
    with pytest.raises(JaxikError, match="nothing of this model stands still"):
        jaxik.World.from_mujoco(mujoco.MjModel.from_xml_string(arm_xml()))


@pytest.mark.parametrize("kind", mostly_exhaustive(["capsule", "sphere"], ["capsule"]))
def test_what_stands_for_a_mesh_encloses_its_hull_and_says_how_much_bigger_it_is(kind: Any) -> None:
    hull, fit = hulled().geometry, jaxik.load_robot(arm_xml(), geometry=kind).geometry
    assert hull is not None and fit is not None
    at = fit.index("shell")
    assert fit.kinds[at] == kind and hull.kinds[hull.index("shell")] == "hull"
    turns = [
        Rotation.from_quat(np.asarray(shapes.quaternion)[shapes.index("shell")], scalar_first=True).as_matrix()
        for shapes in (hull, fit)
    ]
    corners = np.asarray(hull.corners[0]) @ turns[0].T + np.asarray(hull.position)[hull.index("shell")]
    local = (corners - np.asarray(fit.position)[at]) @ turns[1]
    size = np.asarray(fit.size)[at]
    radius, length = size[0], size[1] if kind == "capsule" else 0.0
    beyond = np.linalg.norm(local - np.clip(local[:, 2:], -length, length) * np.array([0, 0, 1.0]), axis=1)
    assert radius - 1e-3 < beyond.max() < radius + 1e-9
    assert "shell: " in repr(fit) and 1 < float(fit.fits[0].split(": ")[1]) < 15


def test_a_saved_robot_keeps_its_hulls(tmp_path: Path) -> None:
    robot = hulled()
    jaxik.save(tmp_path / "arm.npz", robot)
    chex.assert_trees_all_equal(jaxik.load(tmp_path / "arm.npz"), robot)


def test_a_model_of_meshes_alone_names_what_takes_them() -> None:
    meshes = arm_xml().replace('type="cylinder"', 'type="cylinder" contype="0" conaffinity="0"')
    with pytest.raises(LoadError, match='geometry="hull"'):
        jaxik.load_robot(meshes, geometry="model")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jaxik.Cylinders([[0, 0, 0]], -1, 1), "Cylinders: radius"),
        (lambda: jaxik.Ellipsoids([[0, 0, 0]], (1, 1)), "Ellipsoids: half_size has shape"),
        (lambda: jaxik.Hulls([[0, 0, 0]] * 2, np.zeros((3, 4, 3))), "Hulls: corners have shape"),
        (lambda: jaxik.Hulls([[0, 0, 0]], np.full((4, 3), np.nan)), "is finite"),
        (lambda: jaxik.World.from_mujoco("scene.xml"), "is a mujoco.MjModel, not str"),
        (lambda: hulled().in_collision(hulled().q_home, margin=np.nan), r"is a distance \[m\], not nan"),
    ],
)
def test_mistakes_are_told_in_a_line(make: Any, words: str) -> None:
    with pytest.raises(JaxikError, match=words):
        make()
