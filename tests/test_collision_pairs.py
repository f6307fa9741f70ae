"""Shapes of robots: which are kept, which pairs are looked at, and their distances in a batch with worlds."""

import dataclasses
from functools import cache
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest

import jaxik
from jaxik.core.errors import JaxikError, JaxikWarning, LoadError, UnknownNameError

# An arm on a table, with every kind of shape, a pair that always touches, one that never does, and each kind of filter.
ARM = """<mujoco model="arm"><compiler angle="radian"/><worldbody>
<geom name="floor" type="plane" size="1 1 1"/><geom name="decal" type="sphere" size=".2" contype="0" conaffinity="0"/>
<body name="base" pos="0 0 .3"><geom name="socket" type="box" size=".1 .1 .1"/>
 <body name="upper" pos="0 0 .2"><joint name="a" axis="0 1 0" range="-2 2"/><geom name="hub" size=".13"/>
  <geom name="upper" type="capsule" size=".05" fromto="0 0 .1 0 0 .3"/>
  <body name="fore" pos="0 0 .4"><joint name="b" axis="0 1 0" range="-2.5 2.5"/>
   <geom name="fore" type="capsule" size=".04" fromto="0 0 .05 0 0 .25"/>
   <body name="hand" pos="0 0 .35"><joint name="c" axis="1 0 0" range="-1 1"/><geom type="box" size=".03 .06 .04"/>
    <geom type="sphere" size=".02" pos="0 0 .06" contype="0" conaffinity="2"/><site name="tip" pos="0 0 .08"/></body>
  </body></body></body></worldbody>
<contact><exclude body1="upper" body2="hand"/></contact></mujoco>"""

# A joint whose shape never comes near another, 9 m away.
SMALL = """<mujoco><worldbody><body name="prop" pos="9 0 0"><geom name="prop" size=".1"/></body>
<body name="hand"><joint axis="0 1 0"/><geom name="end" size=".1" pos=".3 0 0" mass="1"/></body></worldbody></mujoco>"""
BARE = '<mujoco><worldbody><body><joint/><geom size=".1" contype="0" conaffinity="0"/></body></worldbody></mujoco>'


@cache
def arm() -> jaxik.Robot:
    with pytest.warns(JaxikWarning, match="always touch, which nothing can keep apart: socket - hub"):
        return jaxik.load_robot(ARM, geometry="model")


def test_pairs_of_shapes_without_names_are_told_whole() -> None:
    unnamed = ARM.replace('name="socket"', "").replace('name="hub"', "")
    with pytest.warns(JaxikWarning, match="nothing can keep apart: [a-z]+/[0-9]+ - [a-z]+/[0-9]+"):
        jaxik.load_robot(unnamed, geometry="model")


def world(**masks: object) -> jaxik.World:
    return jaxik.World(
        spheres=jaxik.Spheres([[0.5, 0, 0.5], [0, 0.5, 0.9]], 0.1, **masks),
        capsules=jaxik.Capsules([[0.4, -0.4, 0.2]], [[0.4, 0.4, 0.2]], 0.05),
        boxes=jaxik.Boxes([[-0.5, 0, 0.5]], [0.1, 0.2, 0.3]),
        planes=jaxik.Planes([[-1.0, 0, 0]], -0.9),
    )


def placed(robot: jaxik.Robot) -> mujoco.MjModel:
    """The model with the obstacles of `world` in it."""
    spec = mujoco.MjSpec.from_string(ARM)
    geom = mujoco.mjtGeom
    add = spec.worldbody.add_geom
    add(name="spheres/0", type=geom.mjGEOM_SPHERE, size=[0.1, 0, 0], pos=[0.5, 0, 0.5])
    add(name="spheres/1", type=geom.mjGEOM_SPHERE, size=[0.1, 0, 0], pos=[0, 0.5, 0.9])
    add(name="capsules/0", type=geom.mjGEOM_CAPSULE, size=[0.05, 0, 0], fromto=[0.4, -0.4, 0.2, 0.4, 0.4, 0.2])
    add(name="boxes/0", type=geom.mjGEOM_BOX, size=[0.1, 0.2, 0.3], pos=[-0.5, 0, 0.5])
    return spec.compile()


def test_pairs_are_those_that_mujoco_looks_at() -> None:
    kept, dropped = arm().collision_pairs
    model = mujoco.MjModel.from_xml_string(ARM)
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_OVERRIDE
    model.opt.o_margin = 10.0
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    names = [model.geom(i).name or f"hand/{i - 6}" for i in range(model.ngeom)]
    by_mujoco = {frozenset(names[i] for i in pair) for pair in data.contact.geom}
    sampled = {frozenset(pair[:2]) for pair in dropped if "samples" in pair.reason}
    assert {frozenset(pair) for pair in kept} | sampled == by_mujoco
    assert {pair.reason for pair in dropped if frozenset(pair[:2]) not in by_mujoco} == {
        "parent and child",
        "excluded by the model",
        "contype and conaffinity",
        "fixed to each other",
    }


def test_each_dropped_pair_has_its_reason() -> None:
    reasons = {frozenset(pair[:2]): pair.reason for pair in arm().collision_pairs.dropped}
    assert reasons[frozenset(("socket", "hub"))] == "touch in all of 10000 samples"
    assert reasons[frozenset(("floor", "upper"))].startswith("never nearer than")
    assert reasons[frozenset(("upper", "fore"))] == "parent and child"
    assert reasons[frozenset(("upper", "hand/0"))] == "excluded by the model"
    assert ("socket", "fore") in arm().collision_pairs.kept  # the base is fixed to the world, its child is not


@pytest.mark.parametrize("name", ["spheres/0", "capsules/0", "boxes/0"])
def test_distances_in_a_world_are_mujocos(name: str) -> None:
    robot, model = arm(), placed(arm())
    data, q = mujoco.MjData(model), np.asarray(robot.sample(jax.random.key(0), 50))
    found = robot.distances(q, world())
    columns = [i for i, pair in enumerate(found.pairs) if pair[1] == name]
    assert len(columns) == 5  # the base does not move
    for row, x in zip(np.asarray(found.distance), q, strict=True):
        data.qpos[:] = x
        mujoco.mj_kinematics(model, data)
        for i in columns:
            first = _geom(model, found.pairs[i][0])
            line = np.zeros(6)
            theirs = mujoco.mj_geomDistance(model, data, first, model.geom(name).id, 10.0, line)
            if theirs > 0:  # overlapping, MuJoCo's is no shortest way out
                assert row[i] == pytest.approx(theirs, abs=2e-6)
            else:
                assert row[i] < 1e-6


def _geom(model: mujoco.MjModel, name: str) -> int:
    if name.startswith("hand/"):
        return int(model.body("hand").geomadr[0]) + int(name[5:])
    return model.geom(name).id


def test_an_element_does_not_depend_on_its_batch_and_may_have_its_own_world() -> None:
    robot, obstacles = arm(), world()
    q = robot.sample(jax.random.key(1), 300)
    q = q.at[1].set(q[0])  # in two worlds
    shift = jax.random.normal(jax.random.key(2), (300, 1, 3)) * 0.1
    own = dataclasses.replace(
        obstacles, spheres=dataclasses.replace(obstacles.spheres, center=obstacles.spheres.center + shift)
    )
    batch = robot.distances(q, own)
    some = jax.tree.map(lambda x: x[130:200] if x.ndim == 3 and len(x) == 300 else x, own)
    # XLA contracts products and sums of another loop differently: up to the last bit.
    fewer, part = robot.distances(q[130:200], some), jax.tree.map(lambda x: x[130:200], batch)
    chex.assert_trees_all_close(fewer, part, rtol=0, atol=1e-14)
    assert not np.allclose(batch.distance[0], batch.distance[1])
    np.testing.assert_allclose(robot.clearance(q, own), batch.clearance, atol=1e-14)
    assert (robot.in_collision(q, own) == (batch.clearance < 0)).all()
    np.testing.assert_allclose(robot.clearance(q[7], own.element(7)), batch.clearance[7], atol=1e-14)
    np.testing.assert_allclose(robot.clearance(q[:3], own.element(slice(3))), batch.clearance[:3], atol=1e-14)
    apart = jax.tree.map(lambda x: x[7] if x.ndim > 0 and len(x) == 300 else x[0], own)
    with pytest.raises(JaxikError, match=r"world.element\(i\)"):
        robot.clearance(q[7], apart)


def test_the_clearance_of_boxes_is_the_least_of_all_distances() -> None:
    # Bounds of boxes whose corners or edges are nearest are below their distances, and may be in another order.
    robot, count, rng = arm(), 60, np.random.default_rng(0)
    q = robot.sample(jax.random.key(4), count)
    turned = jaxlie.SO3(jnp.asarray(rng.normal(size=(count, 6, 4)))).normalize()
    poses = jaxlie.SE3.from_rotation_and_translation(turned, jnp.asarray(rng.uniform(-1, 1, (count, 6, 3))))
    boxes = jaxik.World(boxes=jaxik.Boxes(poses, jnp.asarray(rng.uniform(0.05, 0.2, (count, 6, 3)))))
    pairs = [("hand", "world")]
    least = lambda q: robot.distances(q, boxes, pairs).distance.min(-1)  # noqa: E731
    found, expected = robot.clearance(q, boxes, pairs), least(q)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert len({*np.asarray(robot.distances(q, boxes, pairs).nearest)}) > 3
    slopes = jax.jit(jax.grad(lambda q: jnp.sum(robot.clearance(q, boxes, pairs))))(q)
    differences = [(least(q + 1e-6 * e) - least(q - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
    np.testing.assert_allclose(slopes, np.stack(differences, 1), atol=1e-6)
    lost = robot.clearance(q.at[0, 1].set(jnp.nan), boxes, pairs)
    assert np.array_equal(np.isnan(lost), np.arange(count) == 0)


def test_moving_and_masking_obstacles_compiles_nothing() -> None:
    robot, q = arm(), arm().sample(jax.random.key(3), 4)

    @jax.jit
    @chex.assert_max_traces(2)  # with its derivative
    def clearance(world, q):
        return robot.clearance(q, world, [("fore", "spheres")])

    everything = clearance(world(), q)
    nothing = clearance(world(mask=jnp.array([False, False])), q)
    assert np.isfinite(everything).all() and (nothing == jnp.inf).all()
    gradient = jax.jit(jax.grad(lambda w: jnp.sum(jnp.minimum(clearance(w, q), 1.0)), allow_int=True))
    moved = gradient(world(mask=jnp.array([True, False])))
    assert np.isfinite(moved.spheres.center).all() and (moved.spheres.center[1] == 0).all()


def test_pairs_are_chosen_by_name() -> None:
    robot, q = arm(), arm().q_home
    assert robot.distances(q, world(), [("hand", "boxes/0")]).pairs == (("hand/0", "boxes/0"), ("hand/1", "boxes/0"))
    assert robot.distances(q, None, [("hand/0", "socket")]).pairs == (("socket", "hand/0"),)
    assert {b for _, b in robot.distances(q, world(), [("fore", "world")]).pairs} == {
        "fore",  # with the model's own floor
        "spheres/0", "spheres/1", "capsules/0", "boxes/0", "planes/0",
    }  # fmt: skip
    for given, error, words in [
        ([("hnad", "world")], UnknownNameError, "hand"),
        ([("socket", "boxes/0")], JaxikError, "never changes"),
        ([("hand/0", "hand/1")], JaxikError, "never changes"),
        ([], JaxikError, "pairs is empty"),
        (["hand"], JaxikError, "pairs of names"),
    ]:
        with pytest.raises(error, match=words):
            robot.distances(q, world(), given)
    assert robot.distances(q, None, [("fore", "world")]).pairs == (("floor", "fore"),)
    with pytest.raises(JaxikError, match="no world with such obstacles"):
        robot.distances(q, None, [("hand", "boxes")])
    assert robot.in_collision(q * jnp.nan, world())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jaxik.World(), "no obstacles"),
        (lambda: jaxik.World(spheres=[[0, 0, 0]]), "jaxik.Spheres"),
        (lambda: jaxik.Spheres([0, 0, 0], 1), "write \\[point\\]"),
        (lambda: jaxik.Spheres([[0, 0, np.nan]], 1), "finite"),
        (lambda: jaxik.Spheres([[0, 0, 0]], -1), "above zero"),
        (lambda: jaxik.Spheres([[0, 0, 0]], [1, 2]), "n = 1"),
        (lambda: jaxik.Spheres([[0, 0, 0]], 1, mask=[True, False]), "n = 1"),
        (lambda: jaxik.Capsules([[0, 0, 0]], [[0, 0, 1], [0, 0, 2]], 1), "as many"),
        (lambda: jaxik.Boxes([[0, 0, 0]], [1, 1, 0]), "above zero"),
        (lambda: jaxik.Boxes([0, 0, 0], [1, 1, 1]), "write \\[point\\]"),
        (lambda: jaxik.Boxes(np.zeros((3, 3)), np.ones((2, 3))), "n = 3"),
        (lambda: jaxik.Boxes(np.zeros((1, 7)), np.ones(3)), "no rotation"),
        (lambda: jaxik.Planes([[0, 0, 0]]), "not zero"),
        (lambda: jaxik.Planes(np.ones((3, 3)), np.ones(2)), "n = 3"),
        (lambda: arm().distances(np.zeros(3), pairs=5), "list of pairs"),
        (lambda: arm().distances(np.zeros(3), world(), [("world", "world")]), "never changes"),
        (lambda: jaxik.load_robot("panda").distances(np.zeros(7)), "load_robot"),
        (lambda: jaxik.load_robot("panda").collision_pairs, "load_robot"),
        (lambda: jaxik.load_robot("panda", geometry="mesh"), "geometry is one of"),
        (lambda: arm().distances(np.zeros(3), "table"), "jaxik.World"),
    ],
)
def test_mistakes_are_told_in_a_line(make, words: str) -> None:
    with pytest.raises(JaxikError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_shapes_that_are_no_kind_here_are_said_and_a_robot_without_any_is_an_error() -> None:
    other = SMALL.replace('name="end" size=".1"', 'name="end" type="mesh" mesh="m"').replace(
        "<worldbody>", '<asset><mesh name="m" vertex="0 0 0 .1 0 0 0 .1 0 0 0 .1"/></asset><worldbody>'
    )
    with pytest.warns(JaxikWarning, match="mesh shapes of bodies hand"):
        assert len(jaxik.load_robot(other, geometry="model").geometry.names) == 1
    with pytest.raises(LoadError, match="no shape that collides"):
        jaxik.load_robot(BARE, geometry="model")


def test_pairs_of_a_mocap_body_are_kept_wherever_it_is() -> None:
    robot = jaxik.load_robot(SMALL.replace('name="prop"', 'name="prop" mocap="true"', 1), geometry="model")
    assert robot.collision_pairs.kept == (("prop", "end"),)
    still = jaxik.load_robot(SMALL, geometry="model").collision_pairs
    assert still.kept == () and still.dropped[0].reason.startswith("never nearer than")


# A base that may go anywhere in a room, in which no sample comes near a wall.
BASE = """<mujoco><compiler angle="radian"/><worldbody><geom name="wall" type="box" size=".1 4 1" pos="5 0 1"/>
<geom name="floor" type="plane" size="9 9 1"/><body name="base" pos="0 0 .3">{joints}
<geom name="chassis" type="box" size=".3 .2 .1"/><body name="arm" pos="0 0 .2"><joint range="-2 2" axis="0 1 0"/>
<geom name="arm" type="capsule" size=".03" fromto="0 0 0 .4 0 0"/></body></body></worldbody></mujoco>"""
DRIVEN = {
    "slides": '<joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>',
    "free": "<freejoint/>",
    "limited": '<joint name="x" type="slide" axis="1 0 0" range="-1 1"/>',
}


@pytest.mark.parametrize("joints", DRIVEN)
def test_pairs_that_a_joint_without_end_brings_together_are_kept(joints: str) -> None:
    robot = jaxik.load_robot(BASE.format(joints=DRIVEN[joints]), geometry="model")
    reached = {("wall", "chassis"), ("wall", "arm")} & {*robot.collision_pairs.kept}
    assert reached == (set() if joints == "limited" else {("wall", "chassis"), ("wall", "arm")})
    if joints == "slides":
        assert robot.in_collision(jnp.array([4.7, 0.0, 0.0])) and not robot.in_collision(jnp.zeros(3))


def test_pairs_come_back_where_a_base_is_freed_or_put_elsewhere() -> None:
    robot = jaxik.load_robot(BASE.format(joints=""), geometry="model")
    assert robot.collision_pairs.kept == (("chassis", "arm"),)
    freed = robot.with_free_root()
    assert {("wall", "chassis"), ("wall", "arm"), ("floor", "chassis")} <= {*freed.collision_pairs.kept}
    assert ("wall", "floor") not in freed.collision_pairs.kept
    sunk = freed.configuration({"root": jnp.array([0, 0, 0.05, 1, 0, 0, 0.0])})
    assert freed.in_collision(sunk) and not freed.in_collision(freed.q_home)
    moved = robot.with_base(jaxlie.SE3.from_translation(jnp.array([4.6, 0.0, 0.0])))
    assert ("wall", "arm") in moved.collision_pairs.kept and moved.in_collision(moved.q_home)
    assert jax.tree.structure(robot.with_base(jaxlie.SE3.identity())) == jax.tree.structure(moved)


def test_a_pair_whose_distance_never_changes_is_left_out() -> None:
    """A first link that stands on its base, and turns on it: no motion keeps them apart, nor lets them collide."""
    turning = ARM.replace('name="a" axis="0 1 0"', 'name="a" axis="0 0 1"').replace(
        '<geom name="hub" size=".13"/>', '<geom name="hub" type="cylinder" size=".05 .05" pos="0 0 -.05"/>'
    )
    pairs = jaxik.load_robot(turning, geometry="model").collision_pairs
    reasons = {frozenset((pair.first, pair.second)): pair.reason for pair in pairs.dropped}
    assert reasons[frozenset(("socket", "hub"))].startswith("as far apart in all of")


def test_a_saved_robot_keeps_its_shapes(tmp_path: Path) -> None:
    jaxik.save(tmp_path / "bare.npz", jaxik.load_robot("pendulum"))
    with pytest.raises(LoadError, match="saved without shapes"):
        jaxik.load_robot(tmp_path / "bare.npz", geometry="model")
    jaxik.save(tmp_path / "arm.npz", arm())
    again = jaxik.load(tmp_path / "arm.npz")
    chex.assert_trees_all_equal(again, arm())
    assert again.collision_pairs == arm().collision_pairs
    with pytest.raises(LoadError, match="saved robot, with its pairs"):
        jaxik.load_robot(tmp_path / "arm.npz", srdf="none.srdf")


def test_a_held_object_is_kept_apart_as_the_robot_itself() -> None:
    """A rod of 0.3 m in the hand, against one of the same place in the model."""
    pose = jaxlie.SE3.from_translation(jnp.array([0, 0, 0.2]))
    held = arm().with_shape("rod", "hand", "capsule", (0.02, 0.15), pose, touching=["fore"])
    spec = mujoco.MjSpec.from_string(ARM)
    rod = spec.body("hand").add_geom(name="rod", type=mujoco.mjtGeom.mjGEOM_CAPSULE, pos=[0, 0, 0.2])
    rod.size = [0.02, 0.15, 0]
    model = spec.compile()
    data, q = mujoco.MjData(model), held.sample(jax.random.key(0), 20)
    with_rod = [pair for pair in held.collision_pairs.kept if "rod" in pair]
    assert {name for pair in with_rod for name in pair} == {"rod", "floor", "socket", "hub", "upper"}
    assert held.collision_pairs.dropped[-1] == ("fore", "rod", "may touch")
    named = arm().with_shape("rod", "hand", "capsule", (0.02, 0.15), pose, touching="fore")
    assert named.collision_pairs == held.collision_pairs
    found = held.distances(q, pairs=[("rod", "hub"), ("rod", "upper"), ("rod", "floor")])
    for i, at in enumerate(q):
        data.qpos[:] = at
        mujoco.mj_kinematics(model, data)
        for k, pair in enumerate(found.pairs):
            theirs = mujoco.mj_geomDistance(model, data, *(model.geom(name).id for name in pair), 9.0, None)
            assert abs(found.distance[i, k] - theirs) < 1e-5 or (theirs < 0 and found.distance[i, k] < 0)
    for make, words in (
        (lambda: arm().with_shape("hub", "hand", "sphere", 0.1), "has a shape 'hub' already"),
        (lambda: arm().with_shape("cup", "hand", "box", 0.1), "size of a box has 3 numbers"),
        (lambda: arm().with_shape("cup", "hand", "plane", 0.1), "kind is one of sphere"),
        (lambda: arm().with_shape("cup", "paw", "sphere", 0.1), "paw"),
        (lambda: arm().with_shape("world", "hand", "sphere", 0.1), "'world' of a shape stands for obstacles"),
        (lambda: arm().with_shape("spheres/0", "hand", "sphere", 0.1), "stands for obstacles"),
        (lambda: arm().with_shape("fore", "hand", "sphere", 0.1), "is that of a body"),
        (lambda: arm().with_shape("", "hand", "sphere", 0.1), "is empty"),
    ):
        with pytest.raises(JaxikError, match=words):
            make()


URDF = """<robot name="cart"><link name="base"><collision><geometry><box size="2 .2 .2"/></geometry></collision></link>
<link name="cart"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
 <visual><geometry><sphere radius="3"/></geometry></visual><collision><origin xyz="0 0 .3"/><geometry>
 <cylinder radius=".1" length=".2"/></geometry></collision></link>
<link name="pole"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
 <collision><origin xyz="0 0 .3"/><geometry><sphere radius=".05"/></geometry></collision></link>
<joint name="slide" type="prismatic"><parent link="base"/><child link="cart"/><axis xyz="1 0 0"/>
 <limit lower="-1" upper="1" velocity="1" effort="1"/></joint>
<joint name="swing" type="revolute"><parent link="cart"/><child link="pole"/><origin xyz="0 0 .2"/><axis xyz="0 1 0"/>
 <limit lower="-3" upper="3" velocity="1" effort="1"/></joint></robot>"""
SRDF = """<robot name="cart"><disable_collisions link1="pole" link2="base" reason="User"/></robot>"""


def test_a_urdf_has_its_collision_shapes_and_an_srdf_leaves_pairs_out(tmp_path: Path) -> None:
    (tmp_path / "cart.srdf").write_text(SRDF)
    robot = jaxik.load_robot(URDF, geometry="model")
    assert robot.geometry.kinds == ("box", "cylinder", "sphere")
    np.testing.assert_allclose(robot.geometry.size[1, :2], [0.1, 0.1])
    assert {frozenset(pair) for pair in robot.collision_pairs.kept} >= {frozenset(("base/0", "pole/0"))}
    fewer = jaxik.load_robot(URDF, geometry="model", srdf=tmp_path / "cart.srdf")
    assert fewer.collision_pairs.dropped[-1] == ("base/0", "pole/0", "SRDF: User")
    assert len(fewer.collision_pairs.kept) == len(robot.collision_pairs.kept) - 1
    (tmp_path / "wrong.srdf").write_text(SRDF.replace("pole", "pola"))
    with pytest.raises(UnknownNameError, match="pola"):
        jaxik.load_robot(URDF, geometry="model", srdf=tmp_path / "wrong.srdf")
    with pytest.raises(LoadError, match="no such file"):
        jaxik.load_robot(URDF, geometry="model", srdf=tmp_path / "none.srdf")
    with pytest.raises(JaxikError, match="has no shapes"):
        jaxik.load_robot(URDF, srdf=tmp_path / "cart.srdf")


@pytest.mark.parametrize("name", ["dual_arm", "quadruped"])
def test_no_pair_that_is_left_out_can_be_brought_near(name: str) -> None:
    """By random steps that lower the distance; 28 of the pairs of two arms that samples alone leave out overlap so."""
    robot = jaxik.load_robot(name, geometry="model")
    model = mujoco.MjModel.from_xml_path(str(Path(jaxik.__file__).parent / f"robot/bundled/{name}.xml"))
    shapes, data, random = robot.geometry, mujoco.MjData(model), np.random.default_rng(1)
    assert shapes is not None
    collide = np.flatnonzero((model.geom_contype != 0) | (model.geom_conaffinity != 0))
    place = dict(zip(shapes.names, map(int, collide), strict=True))
    left_out = [pair for pair in shapes.dropped if pair.reason.startswith("never nearer")]
    pairs = [(place[pair.first], place[pair.second]) for pair in left_out]
    starts = np.asarray(robot.sample(jax.random.key(2), 200), float)
    hinges = np.isin(model.jnt_type, (2, 3))
    places, (lower, upper) = model.jnt_qposadr[hinges], model.jnt_range[hinges].T

    def distance(q: np.ndarray, pair: tuple[int, int]) -> float:
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        return mujoco.mj_geomDistance(model, data, *pair, 10.0, None)

    for pair in pairs:
        q = min(starts, key=lambda q, pair=pair: distance(q, pair))  # type: ignore[misc]
        least = distance(q, pair)
        for step in range(150):
            trial = q.copy()
            mujoco.mj_integratePos(model, trial, 0.01 ** (step / 150) * random.normal(size=model.nv), 1.0)
            trial[places] = np.clip(trial[places], lower, upper)
            if (found := distance(trial, pair)) < least:
                q, least = trial, found
        assert least >= 0.02, (model.geom(pair[0]).name, model.geom(pair[1]).name, least)
