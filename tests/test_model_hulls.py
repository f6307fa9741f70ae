"""A real arm with twenty meshes: what stands for them encloses them, and is as far apart as MuJoCo says."""

from functools import cache
from typing import Any

import jax
import jaxlie
import models
import mujoco
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.collision.mesh_hulls import hull_vertices
from jaxik.core.errors import JaxikError

NAME = "gym_hil_panda"


@cache
def loaded(geometry: Any) -> tuple[jaxik.Robot, Any]:
    robot = jaxik.load_robot(models.require(NAME), geometry=geometry)
    assert robot.geometry is not None
    return robot, robot.geometry


def test_capsules_enclose_the_meshes_of_a_real_arm_and_say_how_much_bigger_they_are() -> None:
    _, shapes = loaded("capsule")
    model = models.reference_model(NAME)
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    meshes = np.flatnonzero(collides & (model.geom_type == mujoco.mjtGeom.mjGEOM_MESH))
    rows = [i for i, kind in enumerate(shapes.kinds) if kind == "capsule"]
    assert len(rows) == len(meshes) == len(shapes.fits) == 20 and not shapes.lost
    for i, g in zip(rows, meshes, strict=True):
        assert shapes.bodies[i] == model.geom_bodyid[g]
        vertices = jaxlie.SO3(model.geom_quat[g]) @ hull_vertices(model, int(model.geom_dataid[g])) + model.geom_pos[g]
        local = np.asarray(jaxlie.SO3(shapes.quaternion[i]).inverse() @ (vertices - shapes.position[i]))
        radius, length = np.asarray(shapes.size[i])[:2]
        beyond = np.linalg.norm(local - np.clip(local[:, 2:], -length, length) * [0, 0, 1], axis=1)
        assert radius - 1e-3 < beyond.max() < radius + 1e-9


@exhaustive
def test_hulls_of_a_real_arm_are_as_far_apart_as_mujoco_says() -> None:
    robot, shapes = loaded("hull")
    model = models.reference_model(NAME)
    data = mujoco.MjData(model)
    pairs = robot.collision_pairs.kept[::4]
    q = robot.sample(jax.random.key(0), (8,))
    found = np.asarray(robot.distances(q, pairs=pairs).distance)
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    geoms = [int(g) for g in np.flatnonzero(collides)]
    names = robot.distances(q, pairs=pairs).pairs
    off = []
    for row, configuration in zip(found, np.asarray(q), strict=True):
        data.qpos[:] = configuration
        mujoco.mj_kinematics(model, data)
        for (first, second), distance in zip(names, row, strict=True):
            pair = (geoms[shapes.index(name)] for name in (first, second))
            true = mujoco.mj_geomDistance(model, data, *pair, 9.0, None)
            if true > 0.001:
                off.append(true - distance)
    assert len(off) > 100 and np.quantile(off, 0.99) < 1e-5 and max(off) < 1e-3 and min(off) > -1e-5


ARM = """<mujoco><worldbody><body name="a"><joint axis="0 0 1"/><geom name="a" size=".1"/>
<body name="b" pos="1 0 0"><joint axis="0 0 1"/><geom name="b" size=".1"/></body></body></worldbody></mujoco>"""
FLAT = """<mujoco><asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 1 1 0"/></asset><worldbody><body>
<joint axis="0 0 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><geom type="mesh" mesh="m"/></body>
</worldbody></mujoco>"""
NAN = jaxlie.SE3.from_translation(np.full(3, np.nan))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jaxik.load_robot(FLAT, geometry="hull"), "mesh 'm' has coplanar vertices"),
        (lambda: arm().with_shape("cup", "b", "sphere", (0.1,), NAN), "pose is finite"),
        (lambda: arm().with_shape("cup", "b", "sphere", (-0.1,)), "size is above zero"),
        (lambda: arm().distances(arm().q_home, pairs=[("a", "a")]), "the distance of 'a' and 'a' .* never changes"),
        (lambda: jaxik.CollisionLimit(margin=np.inf), "margin is a distance"),
        (lambda: jaxik.CollisionLimit(margin=np.nan), "margin must not be negative or NaN"),
    ],
)
def test_mistakes_are_told_in_a_line(make: Any, words: str) -> None:
    with pytest.raises(JaxikError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


@cache
def arm() -> jaxik.Robot:
    return jaxik.load_robot(ARM, geometry="model")
