"""Distances of two shapes: by coal, by central differences, and where shapes touch, coincide or have no size."""

from typing import Any

import distance_pairs as pairs
import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import mostly_exhaustive

from jaxik.collision.box_box import box_box
from jaxik.collision.boxes import Box
from jaxik.collision.distances import BY_POINTS, PAIRS
from jaxik.collision.material_points import contact_by_points
from jaxik.collision.pairs import FIELDS
from jaxik.collision.planes import HalfSpace
from jaxik.collision.separating_axes import separation
from jaxik.numerics.vectors import from_array

# Those that coal knows as these shapes; what is no shape has tests/test_fields.py.
KINDS = [kinds for kinds in PAIRS if not {*kinds} & {"plane", "primitive", "hull", *FIELDS}]
# One number of pairs in all tests: one program for each kind.
COUNT = 2000
# By how much coal reads a distance too long: it stops its iterations there.
COAL_ERROR = 2e-6


def shapes(seed: int, count: int) -> tuple[pairs.Shapes, pairs.Shapes]:
    rng = np.random.default_rng(seed)
    return pairs.random_shapes(rng, count), pairs.random_shapes(rng, count)


def extent(*each: pairs.Shapes) -> np.ndarray:
    return np.maximum(*(np.abs(s.position).max(1) + s.size.max(1) for s in each))


def check_by_coal(kinds: tuple[str, str], a: pairs.Shapes, b: pairs.Shapes) -> None:
    ours, theirs = np.asarray(pairs.contact(kinds, a, b).distance), pairs.by_coal(kinds, a, b)
    assert (ours <= theirs + 1e-7).all() and (ours >= theirs - COAL_ERROR).all()
    assert np.mean(np.abs(ours - theirs) <= 1e-7) > 0.99
    assert 0.05 < np.mean(theirs < 0) < 0.5


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_distances_are_those_of_coal(kinds: tuple[str, str]) -> None:
    check_by_coal(kinds, *shapes(0, COUNT))


def test_boxes_along_axes_are_never_farther_apart_and_overlap_alike() -> None:
    a, b = shapes(5, COUNT)
    distance = np.asarray(pairs.contact(("box", "box"), a, b).distance)
    along_axes = np.asarray(jax.jit(separation)(pairs.core("box", a)[0], pairs.core("box", b)[0]).distance)
    assert (along_axes <= distance + 1e-12).all() and ((along_axes < 0) == (distance < 0)).all()
    np.testing.assert_allclose(along_axes[distance < 0], distance[distance < 0], atol=1e-12)
    assert np.mean(along_axes > distance - 1e-9) > 0.3 and np.mean(along_axes / distance) > 0.9


@pytest.mark.exhaustive
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_a_million_distances_are_those_of_coal(kinds: tuple[str, str]) -> None:
    check_by_coal(kinds, *shapes(1, 1_000_000))


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_parallel_shapes_are_as_far_apart_as_coal_says(kinds: tuple[str, str]) -> None:
    a, b = shapes(2, COUNT)
    tilt = np.linspace(-1e-6, 1e-6, COUNT)  # exactly parallel in the middle, and nearly so
    turn = np.eye(3) + np.cross(np.eye(3), [1.0, 2.0, 3.0])[None] * tilt[:, None, None]
    check_by_coal(kinds, a, b._replace(rotation=np.linalg.qr(turn)[0] @ a.rotation))


@pytest.mark.parametrize("count", mostly_exhaustive([COUNT, 20_000], [COUNT]))
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_float32_is_right_to_its_rounding(kinds: tuple[str, str], count: int) -> None:
    a, b = shapes(3, count)
    rounded = [pairs.Shapes(*(x.astype(np.float32).astype(float) for x in s)) for s in (a, b)]
    exact, single = pairs.contact(kinds, *rounded), pairs.contact(kinds, a, b, np.float32)
    error = np.abs(np.asarray(single.distance) - np.asarray(exact.distance)) / extent(a, b)
    # Axes in float32 are not quite at right angles, and corners amplify that.
    assert np.quantile(error, 0.999) < 1e-6 and error.max() < 4e-6


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_normals_and_points_tell_how_a_distance_changes(kinds: tuple[str, str]) -> None:
    """The row of a twist of the first shape against central differences."""
    a, b = shapes(4, COUNT)
    here, step = pairs.contact(kinds, a, b), 1e-6
    normal, point = pairs.array(here.normal), pairs.array(here.point)
    row = np.concatenate([-normal, -np.cross(point, normal)], axis=1)

    def moved(twist: np.ndarray) -> np.ndarray:
        turn = np.asarray(jaxlie.SO3.exp(jnp.asarray(twist[3:])).as_matrix())
        turned = a._replace(rotation=turn @ a.rotation, position=a.position @ turn.T + twist[:3])
        return np.asarray(pairs.contact(kinds, turned, b).distance)

    differences = np.stack([(moved(step * x) - moved(-step * x)) / (2 * step) for x in np.eye(6)], axis=1)
    right = np.abs(row - differences).max(1) < 1e-6
    overlapping = np.asarray(here.distance) < 0
    assert np.mean(right) > 0.995 and np.mean(right[overlapping]) > 0.97 and overlapping.sum() > 40
    assert np.abs(np.linalg.norm(normal, axis=1) - 1).max() < 1e-12


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_derivatives_by_pose_and_size_of_both_shapes_are_central_differences(kinds: tuple[str, str]) -> None:
    function, (a, b), rng, step = PAIRS[kinds], shapes(5, COUNT), np.random.default_rng(6), 1e-6
    assert function in BY_POINTS
    way = rng.uniform(-1, 1, (2, COUNT, 9))

    def cores(t: float) -> tuple[Any, Any]:
        def moved(kind: str, s: pairs.Shapes, way: np.ndarray) -> Any:
            turn = np.asarray(jaxlie.SO3.exp(jnp.asarray(t * way[:, :3])).as_matrix())
            size = s.size * (1 + t * way[:, 6:])
            return pairs.core(kind, pairs.Shapes(turn @ s.rotation, s.position + t * way[:, 3:6], size))[0]

        return tuple(moved(*each) for each in zip(kinds, (a, b), way, strict=True))

    here, ahead, behind = cores(0), cores(step), cores(-step)
    tangent = jax.tree.map(lambda x, y: (x - y) / (2 * step), ahead, behind)
    evaluated = jax.jit(lambda cores: contact_by_points(function, *cores).distance)
    _, slope = jax.jit(lambda x, t: jax.jvp(evaluated, (x,), (t,)))(here, tangent)
    right = np.abs(slope - (evaluated(ahead) - evaluated(behind)) / (2 * step)) < 1e-6
    overlapping = np.asarray(evaluated(here)) < 0
    assert np.mean(right) > 0.995
    assert overlapping.sum() < 20 or np.mean(right[overlapping]) > 0.97


EYE = np.eye(3)
SPECIAL = {
    "coincident": (EYE, (0, 0, 0), (0.1, 0.1, 0.1), EYE, (0, 0, 0), (0.1, 0.1, 0.1)),
    "touching": (EYE, (0, 0, 0), (0.1, 0.1, 0.1), EYE, (0.2, 0, 0), (0.1, 0.1, 0.1)),
    "one inside the other": (EYE, (0, 0, 0), (0.01, 0.01, 0.01), EYE, (0.05, 0, 0), (0.3, 0.3, 0.3)),
    "crossing at right angles": (EYE, (0, 0, 0), (0.01, 0.2, 0.2), EYE[[1, 2, 0]], (0, 0, 0), (0.01, 0.2, 0.2)),
    "in one line": (EYE, (0, 0, 0), (0.01, 0.1, 0.1), EYE, (0, 0, 0.5), (0.01, 0.1, 0.1)),
    "without length": (EYE, (0, 0, 0), (0.1, 0, 0), EYE, (0.1, 0.1, 0), (0.1, 0, 0)),
    "thin": (EYE, (0, 0, 0), (1e-6, 0.1, 1e-6), EYE, (0, 0.1, 0), (1e-6, 0.1, 0.1)),
}


@pytest.mark.parametrize(
    "kinds", mostly_exhaustive(KINDS, [kinds for kinds in KINDS if kinds != ("box", "box")]), ids="-".join
)
def test_no_pair_has_a_nan_in_value_or_derivative(kinds: tuple[str, str]) -> None:
    columns = [np.array(x, float) for x in zip(*SPECIAL.values(), strict=True)]
    a, b = pairs.Shapes(columns[0], columns[1], columns[2]), pairs.Shapes(columns[3], columns[4], columns[5])
    given = (*pairs.core(kinds[0], a, np.float32), *pairs.core(kinds[1], b, np.float32))
    core_a, radius_a, core_b, radius_b = given

    def summed(core_a, core_b):
        found = contact_by_points(PAIRS[kinds], core_a, core_b).swept(radius_a, radius_b)
        return jnp.sum(found.distance) + jnp.sum(found.normal.x) + jnp.sum(found.point.y), found

    gradients, found = jax.jit(jax.grad(summed, (0, 1), has_aux=True))(core_a, core_b)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((gradients, found)))
    length = np.linalg.norm(pairs.array(found.normal), axis=1)
    assert np.abs(length - 1).max() < 1e-5
    if "box" not in kinds:
        centers = np.linalg.norm(columns[4] - columns[1], axis=1)
        assert found.distance[0] == pytest.approx(-0.2) and found.distance[1] == pytest.approx(0, abs=1e-6)
        assert (np.asarray(found.distance) <= centers + 1e-6).all()


def test_an_edge_through_a_face_is_seen() -> None:
    """None of the plate's edges and none of the bar's corners is inside the other."""

    def box(center, half):
        axes = tuple(from_array(jnp.asarray(EYE[i])) for i in range(3))
        return Box(from_array(jnp.asarray(center, float)), axes, from_array(jnp.asarray(half, float)))

    found = box_box(box((0, 0, 0), (0.5, 0.5, 0.01)), box((0.1, 0, 0.1), (0.02, 0.02, 0.5)))
    assert float(found.distance) == pytest.approx(-0.41)  # down; sideways it would be 0.42


@pytest.mark.parametrize("kind", ["sphere", "capsule", "box"])
def test_a_half_space_is_below_every_corner(kind: str) -> None:
    rng = np.random.default_rng(5)
    a = pairs.random_shapes(rng, 500)
    normal = rng.normal(size=(500, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    offset = rng.normal(size=500)
    core, radius = pairs.core(kind, a)
    found = PAIRS[(kind, "plane")](core, HalfSpace(from_array(jnp.asarray(normal)), jnp.asarray(offset))).swept(radius)
    half = {"sphere": 0, "capsule": a.size[:, 1:2] * [[0, 0, 1]], "box": a.size}[kind] * np.ones((500, 3))
    corners = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, 8).T
    points = a.position[:, None] + np.einsum("nij,nkj->nki", a.rotation, half[:, None] * corners)
    heights = np.einsum("nki,ni->nk", points, normal).min(1) - offset - np.asarray(radius)
    assert np.abs(np.asarray(found.distance) - heights).max() < 1e-12
    assert np.abs(pairs.array(found.normal) + normal).max() == 0
    on_plane = pairs.array(found.point_of_b)
    assert np.abs((on_plane * normal).sum(1) - offset).max() < 1e-12
