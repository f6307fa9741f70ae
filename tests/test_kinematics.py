"""Kinematics against C MuJoCo: every joint type, every kind of frame, random trees and published models."""

import dataclasses
import time
import warnings
from functools import cache, partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import jaxlie
import models
import mujoco
import numpy as np
import oracle
import pytest
import random_trees
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.batching.broadcast import over_batch
from jaxik.core.errors import JaxikError, JaxikWarning
from jaxik.core.pytree import core_ranks
from jaxik.kinematics.forward import forward
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.link_constants import segments
from jaxik.kinematics.schedule import Plan, plan
from jaxik.kinematics.topology import JointType, subtree
from jaxik.numerics.lie import Transform
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot

SEEDS = range(5)
MODELS = (
    "shadow_hand",  # dexterous hand
    "leap_hand",
    "mjx_humanoid",
    "barkour",  # quadruped
    "pendula",  # every joint type, mocap bodies
    "mjx_sensors",
    "ur5e",
    "robotiq_2f85",
    "aloha",
    "mjlab_g1",
    "yam",
    "gym_walker2d",  # ref
    "upkie",  # URDF from here on
    "frax_panda",
    "frax_a2_urdf",
)
# Those held to float32 as well, after the trees: a quarter of the compile time of this module.
IN_FLOAT32 = (
    "shadow_hand",
    "mjx_humanoid",
    "barkour",
    "pendula",
    "ur5e",
    "aloha",
    "gym_walker2d",
    "upkie",
    "frax_panda",
)
# Every kind of joint, joints with a reference, and both formats of files; the other models have more of the same.
ALWAYS = [(0, np.float64), ("gym_walker2d", np.float64), ("frax_panda", np.float32)]
CASES = [(name, np.float64) for name in (*SEEDS, *MODELS)] + [(name, np.float32) for name in (*SEEDS[:3], *IN_FLOAT32)]
BATCH = 6
# What is compiled for a few configurations need not run fast.
UNOPTIMISED = {"xla_backend_optimization_level": 0}
FRAMES_PER_KIND = 12


@cache
def tree(seed: int) -> Robot:
    return load_robot(random_trees.compiled(seed))


@cache
def published(name: str) -> Robot:
    """The robot read from its file; what had to be dropped is no matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxikWarning)
        return load_robot(models.require(name))


def case(name: str | int) -> tuple[mujoco.MjModel, Robot]:
    if isinstance(name, int):
        return oracle.exact(random_trees.compiled(name)), tree(name)
    return oracle.exact(models.reference_model(name)), published(name)


def tolerance(model: mujoco.MjModel, data: list[mujoco.MjData], dtype: Any) -> float:
    """What the two dtypes are held to; the extent is the largest coordinate that occurs."""
    if dtype == np.float64:
        return 1e-12
    return 1e-6 * max(1.0, *(float(np.abs(d.xpos).max()) for d in data))


def some(frames: list[Frame]) -> list[Frame]:
    """At most `FRAMES_PER_KIND`, the last among them."""
    step = -(-len(frames) // FRAMES_PER_KIND)
    return frames[::-1][:: max(step, 1)]


def frames_of(model: mujoco.MjModel, robot: Robot) -> tuple[Frame, ...]:
    """All bodies, and sites and geoms that stand at the same place in the reference."""
    frames = [Frame("body", i) for i in range(model.nbody)]
    frames += some([Frame("site", i) for i in range(model.nsite)])
    if tuple(model.geom_bodyid) == tuple(
        body for _, body in robot.topology.geoms
    ):  # else visuals or meshes are missing
        frames += some([Frame("geom", i) for i in range(model.ngeom)])
    return tuple(frames)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=UNOPTIMISED)
def everything(evaluation: Plan, moved: tuple[Frame, ...], robot: Robot, q: jax.Array, q2: jax.Array, dq: jax.Array):
    """All that kinematics say of a batch of configurations, in one program."""

    def one(robot: Robot, q: jax.Array) -> dict[str, Any]:
        kin = forward(segments(robot, evaluation), q)
        return {
            "rotations": kin.frame_rotations,
            "positions": kin.frame_positions,
            "jacobians": jnp.stack([jnp.concatenate(kin.jacobian_world_aligned(frame)) for frame in moved]),
            "com": jnp.stack([kin.center_of_mass(root) for root in evaluation.subtrees]),
            "com_jacobian": jnp.stack([kin.center_of_mass_jacobian(root) for root in evaluation.subtrees]),
        }

    robot = robot.astype(q.dtype)
    out = over_batch(one, {"robot": robot, "q": q}, {"robot": core_ranks(robot), "q": 1})
    return {**out, "integrate": robot.integrate(q, dq), "difference": robot.difference(q, q2)}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [case if case in ALWAYS else pytest.param(*case, marks=exhaustive) for case in CASES],
    ids=[f"{name}-{np.dtype(dtype)}" for name, dtype in CASES],
)
def test_kinematics_agree_with_c_mujoco(name: str | int, dtype: Any) -> None:
    model, robot = case(name)
    rng = np.random.default_rng(0)
    qs, q2s = (np.stack([random_trees.random_qpos(model, rng) for _ in range(BATCH)]).astype(dtype) for _ in range(2))
    dqs = rng.uniform(-1, 1, (BATCH, model.nv)).astype(dtype)
    frames = frames_of(model, robot)
    moved = frames[-1:0:-3][:: max(1, len(frames) // 12)]
    roots = [0, int(model.nbody // 2)]
    roots = tuple(root for root in roots if sum(model.body_mass[list(subtree(robot.topology, root))]) > 0)

    got = everything(plan(robot.topology, frames, roots), moved, robot, qs, q2s, dqs)
    assert {x.dtype for x in jax.tree.leaves(got)} == {np.dtype(dtype)}

    data = [oracle.evaluated(model, q.astype(float)) for q in qs]
    poses = [[oracle.frame_pose(d, frame) for frame in frames] for d in data]
    want = {
        "rotations": [[rotation for rotation, _ in row] for row in poses],
        "positions": [[position for _, position in row] for row in poses],
        "jacobians": [[oracle.frame_jacobian(model, d, frame) for frame in moved] for d in data],
        "integrate": [
            oracle.integrate(model, q.astype(float), dq.astype(float)) for q, dq in zip(qs, dqs, strict=True)
        ],
        "difference": [
            oracle.difference(model, q.astype(float), q2.astype(float)) for q, q2 in zip(qs, q2s, strict=True)
        ],
    }
    if isinstance(name, int) or not models.MODELS[name].needs_kinematics_only:
        want["com"] = [[d.subtree_com[root] for root in roots] for d in data]
        want["com_jacobian"] = [[oracle.com_jacobian(model, d, root) for root in roots] for d in data]
    for what, values in want.items():
        error = np.abs(np.asarray(got[what], float) - np.asarray(values)).max(initial=0)
        assert error <= tolerance(model, data, dtype), what


# --- one small tree with every joint type --------------------------------------------------------------------------

STACKS = (("hinge",), ("slide", "hinge"), ("ball",), ("hinge", "slide"))


@cache
def small_model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(random_trees.random_tree(7, n_bodies=4, stacks=STACKS))


@cache
def small() -> Robot:
    return load_robot(small_model())


def configurations(*batch: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    count = int(np.prod(batch))
    return np.stack([random_trees.random_qpos(small_model(), rng) for _ in range(count)]).reshape(*batch, -1)


@cache
def tip() -> Frame:
    """The frame behind the most joints: the last body's geom, which has an offset and a rotation of its own."""
    return small().frame("body3_geom")


def parameters(robot: Robot, q: jax.Array) -> jax.Array:
    return robot.frame_pose(q, tip()).wxyz_xyz


def matrix(pose: jax.Array) -> jax.Array:
    """A pose (7,) as the 12 numbers that are smooth everywhere."""
    transform = Transform.from_se3(jaxlie.SE3(pose))
    return jnp.concatenate([transform.rotation.ravel(), transform.position])


def test_public_functions_agree_with_c_mujoco() -> None:
    model, robot, q = small_model(), small(), configurations(1)[0]
    data = oracle.evaluated(model, q)
    site = robot.frame(next(name for name, _ in robot.topology.sites if name.startswith("body")))
    subtrees = {None: 0, "body1": model.body("body1").id}

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def public(robot: Robot, q: jax.Array) -> dict[str, Any]:
        return {
            "bodies": robot.forward(q).translation(),
            "poses": [robot.frame_pose(q, frame).as_matrix()[:3] for frame in (site, tip())],
            "jacobians": {r: robot.frame_jacobian(q, tip(), r) for r in ("body", "world", "world_aligned")},
            "com": [robot.center_of_mass(q, name) for name in subtrees],
            "com_jacobian": [robot.center_of_mass_jacobian(q, name) for name in subtrees],
        }

    poses = [oracle.frame_pose(data, frame) for frame in (site, tip())]
    rotation, position = poses[1]
    linear, angular = np.split(oracle.frame_jacobian(model, data, tip()), 2)
    want = {
        "bodies": data.xpos,
        "poses": [np.column_stack(pose) for pose in poses],
        "jacobians": {
            "body": np.vstack([rotation.T @ linear, rotation.T @ angular]),
            "world": np.vstack([linear + np.cross(position, angular.T).T, angular]),
            "world_aligned": np.vstack([linear, angular]),
        },
        "com": [data.subtree_com[root] for root in subtrees.values()],
        "com_jacobian": [oracle.com_jacobian(model, data, root) for root in subtrees.values()],
    }
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-12), public(robot, q), want)


def test_mocap_bodies_stand_where_their_leaves_say() -> None:
    model, robot, q = small_model(), small(), configurations(1)[0]
    (body,) = robot.topology.mocap_bodies
    pose = np.array([[0.3, -2.0, 0.7, 0.4, -0.4, 0.2, 1.5]])
    data = oracle.evaluated(oracle.exact(model), q, pose)
    moved = dataclasses.replace(
        robot,
        body_position=robot.body_position.at[body].set(pose[0, :3]),
        body_quaternion=robot.body_quaternion.at[body].set(pose[0, 3:]),
    )
    rotations = moved.forward(q).rotation().as_matrix()
    np.testing.assert_allclose(moved.forward(q).translation(), data.xpos, atol=1e-12)
    np.testing.assert_allclose(rotations, data.xmat.reshape(-1, 3, 3), atol=1e-12)
    assert np.abs(moved.forward(q).translation() - robot.forward(q).translation()).max() > 1


@pytest.mark.parametrize("length", [0.0, 1e-20, 0.3, 7.0])
def test_quaternions_of_any_length_mean_what_they_mean_to_c_mujoco(length: float) -> None:
    model, robot, q = small_model(), small(), configurations(1, seed=3)[0]
    for joint in robot.topology.joints:
        if joint.type in (JointType.BALL, JointType.FREE):
            q[joint.q_index + joint.type.nq - 4 : joint.q_index + joint.type.nq] *= length
    data = oracle.evaluated(oracle.exact(model), q)
    np.testing.assert_allclose(robot.forward(q).translation(), data.xpos, atol=1e-12)
    dq = np.linspace(-1, 1, model.nv)
    np.testing.assert_allclose(robot.integrate(q, dq), oracle.integrate(model, data.qpos, dq), atol=1e-12)


# --- transformations -----------------------------------------------------------------------------------------------


def test_batches_vmap_and_jit_say_the_same_as_one_element() -> None:
    robot, q = small(), jnp.asarray(configurations(2, 3))
    one = jnp.stack([parameters(robot, x) for x in q.reshape(6, -1)]).reshape(2, 3, 7)
    forms = {
        "batch (2, 3)": parameters(robot, q),
        "vmap of vmap": jax.vmap(jax.vmap(lambda x: parameters(robot, x)))(q),
        "vmap of a batch": jax.vmap(lambda x: parameters(robot, x), in_axes=1, out_axes=1)(q),
        "jit, robot closed over": jax.jit(lambda x: parameters(robot, x))(q),
        "jit, robot an argument": jax.jit(parameters)(robot, q),
    }
    for name, got in forms.items():
        np.testing.assert_allclose(got, one, atol=1e-14, err_msg=name)


def randomised(*batch: int) -> Robot:
    """Robots with other link lengths."""
    robot = small()
    scale = np.random.default_rng(5).uniform(0.5, 1.5, (*batch, robot.body_position.shape[0], 1))
    return dataclasses.replace(robot, body_position=robot.body_position * scale)


def test_a_thousand_robots_in_one_call_are_each_themselves() -> None:
    robots, q = randomised(1000), configurations(1000)
    got = parameters(robots, q)
    assert got.shape == (1000, 7)
    for i in (0, 17, 999):
        alone = dataclasses.replace(small(), body_position=robots.body_position[i])
        np.testing.assert_allclose(got[i], parameters(alone, q[i]), atol=1e-14)
    assert robots.sample(jax.random.key(0)).shape == (1000, robots.nq)


def test_robots_and_configurations_broadcast() -> None:
    robots, q = randomised(4, 1), configurations(3)
    got = robots.frame_jacobian(q, tip())
    assert got.shape == (4, 3, 6, robots.nv)
    alone = dataclasses.replace(small(), body_position=robots.body_position[2, 0])
    np.testing.assert_allclose(got[2, 1], alone.frame_jacobian(q[1], tip()), atol=1e-14)
    mapped = jax.vmap(lambda lengths: parameters(dataclasses.replace(small(), body_position=lengths), q[0]))
    np.testing.assert_allclose(mapped(robots.body_position[:, 0]), parameters(robots, q)[:, 0], atol=1e-14)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(JaxikError, match=r"q: \(3, \d+\) of .* robot\.body_position: \(4, \d+, 3\) of .*none$"):
        parameters(randomised(4), configurations(3))
    with pytest.raises(JaxikError, match=rf"nq = {small().nq}, not \(5,\)"):
        parameters(small(), np.zeros(5))
    with pytest.raises(JaxikError, match=rf"dq.*nv = {small().nv}, not \(2,\)"):
        small().integrate(small().q_home, np.zeros(2))


def test_no_configurations_give_no_poses() -> None:
    assert parameters(small(), np.zeros((0, small().nq))).shape == (0, 7)
    assert small().frame_jacobian(np.zeros((2, 0, small().nq)), tip()).shape == (2, 0, 6, small().nv)


def test_new_values_do_not_retrace() -> None:
    traced = chex.assert_max_traces(parameters, 1)
    chex.clear_trace_counter()
    compiled = jax.jit(traced)
    robot, q = small(), jnp.asarray(configurations(2))
    longer = dataclasses.replace(robot, body_position=robot.body_position * 1.1, site_position=robot.site_position + 1)
    reloaded = load_robot(small_model())
    for one, at in ((robot, q[0]), (robot, q[1]), (longer, q[0]), (reloaded, q[1])):
        assert compiled(one, at).shape == (7,)


LEAVES = ("body_position", "body_quaternion", "joint_anchor", "joint_axis", "geom_position", "geom_quaternion")


def test_derivatives_agree_with_central_differences() -> None:
    robot, q = small(), jnp.asarray(configurations(1)[0])
    leaves = {name: getattr(robot, name) for name in LEAVES}

    def function(leaves: dict[str, jax.Array], q: jax.Array) -> jax.Array:
        return matrix(parameters(dataclasses.replace(robot, **leaves), q))

    rng = np.random.default_rng(0)
    weights = jnp.asarray(rng.standard_normal(12))
    keys = {name: jnp.asarray(rng.standard_normal(x.shape)) for name, x in leaves.items()}
    step = jnp.asarray(rng.standard_normal(q.shape))

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def both(leaves: dict[str, jax.Array], q: jax.Array) -> Any:
        forward = {
            name: jax.jvp(lambda x, n=name: function({**leaves, n: x}, q), (leaves[name],), (keys[name],))[1]
            for name in LEAVES
        }
        forward["q"] = jax.jvp(lambda x: function(leaves, x), (q,), (step,))[1]
        return forward, jax.grad(lambda leaves, q: weights @ function(leaves, q), argnums=(0, 1))(leaves, q)

    forward, (by_leaf, by_q) = both(leaves, q)
    h = 1e-6
    value = jax.jit(function, compiler_options=UNOPTIMISED)
    for name in LEAVES:
        ahead, behind = ({**leaves, name: leaves[name] + s * keys[name]} for s in (h, -h))
        want = (value(ahead, q) - value(behind, q)) / (2 * h)
        assert np.abs(want).max() > 1e-3
        np.testing.assert_allclose(forward[name], want, atol=1e-8, err_msg=name)
        np.testing.assert_allclose(jnp.vdot(by_leaf[name], keys[name]), weights @ want, atol=1e-8, err_msg=name)
    want = (value(leaves, q + h * step) - value(leaves, q - h * step)) / (2 * h)
    np.testing.assert_allclose(forward["q"], want, atol=1e-8)
    np.testing.assert_allclose(by_q @ step, weights @ want, atol=1e-8)


@pytest.mark.parametrize("name", mostly_exhaustive(["panda", "ur5e", "humanoid"], ["ur5e"]))
def test_the_worlds_own_pose_has_no_say(name: str) -> None:
    """The identity stands in its row, and for bodies that are not there: a gradient must not move it."""
    robot = load_robot(name)

    def total(robot: Robot) -> jax.Array:
        return jnp.sum(jnp.sin(robot.forward(robot.q_home).wxyz_xyz))

    by = jax.device_get(jax.jit(jax.grad(total))(robot))
    np.testing.assert_array_equal(by.body_position[0], 0)
    np.testing.assert_array_equal(by.body_quaternion[0], 0)
    assert np.abs(by.body_position[1:]).any()


def test_gradients_of_a_batch_are_those_of_its_elements() -> None:
    robot, q = small(), jnp.asarray(configurations(3))
    total = jax.grad(lambda robot, q: jnp.sum(jnp.sin(parameters(robot, q))), argnums=(0, 1))
    total = jax.jit(total, compiler_options=UNOPTIMISED)
    by_robot, by_q = total(robot, q)
    each = [total(robot, x) for x in q]
    np.testing.assert_allclose(by_q, jnp.stack([g for _, g in each]), atol=1e-13)
    for name in LEAVES:
        np.testing.assert_allclose(getattr(by_robot, name), sum(getattr(g, name) for g, _ in each), atol=1e-13)


def test_jacobians_are_derivatives_along_integrate() -> None:
    robot, q = small(), jnp.asarray(configurations(4))

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    @jax.vmap
    def jacobians(q: jax.Array) -> Any:
        zero = jnp.zeros(robot.nv)
        here = robot.frame_pose(q, tip()).inverse()
        twist = jax.jacfwd(lambda dq: (here @ robot.frame_pose(robot.integrate(q, dq), tip())).log())(zero)
        com = jax.jacfwd(lambda dq: robot.center_of_mass(robot.integrate(q, dq)))(zero)
        back = jax.jacfwd(lambda dq: robot.difference(q, robot.integrate(q, dq)))(zero)
        return twist, com, back, robot.frame_jacobian(q, tip()), robot.center_of_mass_jacobian(q)

    twist, com, back, body, center = jacobians(q)
    np.testing.assert_allclose(body, twist, atol=1e-12)
    np.testing.assert_allclose(center, com, atol=1e-12)
    np.testing.assert_allclose(back, np.broadcast_to(np.eye(robot.nv), back.shape), atol=1e-12)


def half_turns() -> np.ndarray:
    """Every hinge at 180 degrees from its reference, every quaternion a half turn."""
    q = np.array(small().qpos0)
    for joint in small().topology.joints:
        at = joint.q_index
        if joint.type is JointType.HINGE:
            q[at] += np.pi
        elif joint.type in (JointType.BALL, JointType.FREE):
            q[at + joint.type.nq - 4 : at + joint.type.nq] = (0, 0, 1, 0)
    return q


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float64, np.float32], [np.float32]))
def test_derivatives_are_finite_where_formulas_have_their_singularities(dtype: Any) -> None:
    robot = small()
    # All zeros has quaternions without direction, qpos0 has no rotation, and then there are half turns.
    q = np.stack([np.zeros(robot.nq), robot.qpos0, half_turns()]).astype(dtype)

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    @jax.vmap
    def derivatives(q: jax.Array) -> Any:
        return (
            jax.jacrev(lambda q: parameters(robot, q))(q),
            jax.jacfwd(lambda q: parameters(robot, q))(q),
            jax.jacrev(lambda dq: robot.integrate(q, dq))(jnp.zeros(robot.nv, dtype)),
            jax.jacrev(lambda x: robot.difference(x, q))(jnp.asarray(robot.qpos0, dtype)),
            jax.jacrev(lambda x: robot.limit_excess(x))(q),
        )

    for derivative in derivatives(q):
        assert derivative.dtype == dtype
        assert np.isfinite(np.asarray(derivative)).all()


# --- depth ---------------------------------------------------------------------------------------------------------


def test_a_chain_of_thirty_joints_compiles_fast_with_its_derivative() -> None:
    robot = jax.jit(lambda robot: robot.astype(np.float32))(load_robot(random_trees.deep_chain(30)))
    frame = robot.frame("tip")
    q = jax.random.uniform(jax.random.key(0), (4096, 30), jnp.float32, -2.9, 2.9)
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        start = time.perf_counter()
        pushed = jax.jit(lambda robot, q: jax.jvp(lambda q: robot.frame_pose(q, frame).wxyz_xyz, (q,), (q,)))
        compiled = pushed.lower(robot, q).compile()
        seconds = time.perf_counter() - start
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    start = time.perf_counter()
    pose, _ = jax.block_until_ready(compiled(robot, q))
    print(f"compiled in {seconds:.2f} s, ran in {1e3 * (time.perf_counter() - start):.1f} ms")
    assert seconds < 10
    model = mujoco.MjModel.from_xml_string(random_trees.deep_chain(30))
    data = oracle.evaluated(model, np.asarray(q[-1], float))
    np.testing.assert_allclose(pose[-1, 4:], data.site("tip").xpos, atol=3.1e-6)


@pytest.mark.parametrize("finger", ["index", "thumb"])
def test_joints_before_and_behind_those_that_move_a_frame_have_columns_of_zeros(finger: str) -> None:
    hand = jaxik.load_robot("hand").astype(np.float64)
    tip = hand.frame(f"{finger}_tip")
    jacobian = jax.jit(lambda q: hand.kinematics(q, (tip,)).jacobian(tip))(hand.q_home)
    assert jacobian.shape == (6, hand.nv)
    own = [finger in name for name in hand.joint_names]
    np.testing.assert_array_equal(np.any(jacobian != 0, axis=0), own)
