"""Recorded motions as motions of a robot: poses are carried over in proportion, feet stay, limits hold."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.retargeting import LinkMap, contacts, match, planted, retarget

FEET = tuple(f"{end} {side}" for end in ("front", "rear") for side in ("left", "right"))
BODIES: dict[str, dict[str, str]] = {
    "quadruped": {"trunk": "trunk"} | {foot: f"{foot} foot".replace(" ", "_") for foot in FEET},
    "hand": {"wrist": "palm", "index": "index_tip", "middle": "middle_tip", "ring": "ring_tip", "thumb": "thumb_tip"},
}
ROOTS = {"quadruped": "trunk", "hand": "wrist"}


@functools.cache
def robot_of(name: str) -> jaxik.Robot:
    return jaxik.load_robot(name)


def pose(seed: int, *batch: int) -> jaxlie.SE3:
    rng = np.random.default_rng(seed)
    rotation = rng.normal(size=(*batch, 4)) + np.array([2.0, 0, 0, 0])
    rotation /= np.linalg.norm(rotation, axis=-1, keepdims=True)
    return jaxlie.SE3(jnp.asarray(np.concatenate([rotation, rng.uniform(size=(*batch, 3))], axis=-1)))


def recorded(robot: jaxik.Robot, q: Any, bodies: dict[str, str], points: tuple[str, ...] = ()) -> dict[str, Any]:
    """Poses of a body of other proportions, with other axes of its links: the robot, grown by a quarter."""
    sizes = {name: 1.25 * getattr(robot, name) for name in ("body_position", "site_position", "joint_anchor")}
    large = dataclasses.replace(robot, **sizes)
    found: dict[str, Any] = {}
    for seed, (name, frame) in enumerate(bodies.items()):
        there = large.frame_pose(q, frame)
        found[name] = there.translation() if name in points else there @ jaxlie.SE3.from_rotation(pose(seed).rotation())
    return found


def matched(name: str, points: tuple[str, ...] = ()) -> tuple[jaxik.Robot, LinkMap]:
    robot, bodies = robot_of(name), BODIES[name]
    feet = FEET if name == "quadruped" else ()
    return robot, match(
        robot, bodies, robot.q_home, recorded(robot, robot.q_home, bodies, points), root=ROOTS[name], feet=feet
    )


@pytest.mark.parametrize(
    ("name", "points"), [("quadruped", ()), ("quadruped", FEET[:2]), ("hand", ()), ("hand", ("index", "thumb"))]
)
def test_the_pose_that_both_take_is_carried_onto_the_frames(name: str, points: tuple[str, ...]) -> None:
    robot, links = matched(name, points)
    targets = links.targets(recorded(robot, robot.q_home, BODIES[name], points))
    assert {*targets} == {*BODIES[name]} - ({"wrist"} if name == "hand" else set())
    for body, target in targets.items():
        frame = robot.frame_pose(robot.q_home, BODIES[name][body])
        if body not in points:
            np.testing.assert_allclose((target.inverse() @ frame).log(), 0, atol=1e-7)
        elif name == "hand":  # of the same proportions
            np.testing.assert_allclose(target, frame.translation(), atol=1e-7)


def test_steps_are_as_long_as_the_legs_are_and_what_stands_stays_on_the_ground() -> None:
    robot, links = matched("quadruped")
    poses = recorded(robot, robot.q_home, BODIES["quadruped"])
    heights = [
        x["trunk"].translation()[2] - min(x[f].translation()[2] for f in FEET)
        for x in ({name: robot.frame_pose(robot.q_home, frame) for name, frame in BODIES["quadruped"].items()}, poses)
    ]
    moved = {name: jaxlie.SE3.from_translation(jnp.array([0.3, 0.1, 0.0])) @ p for name, p in poses.items()}
    before, after = links.targets(poses), links.targets(moved)
    for name in poses:
        shift = after[name].translation() - before[name].translation()
        np.testing.assert_allclose(shift, np.array([0.3, 0.1, 0]) * heights[0] / heights[1], atol=1e-7)
    lower = poses | {"trunk": jaxlie.SE3.from_translation(jnp.array([0.0, 0.0, -0.1])) @ poses["trunk"]}
    for foot in FEET:
        np.testing.assert_allclose(links.targets(lower)[foot].translation(), before[foot].translation(), atol=1e-7)


def test_a_hand_goes_nowhere_where_the_recorded_wrist_carries_all_with_it() -> None:
    robot, links = matched("hand", ("ring",))
    poses = recorded(robot, robot.sample(jax.random.key(3)), BODIES["hand"], ("ring",))
    there = pose(4)
    carried = {name: there @ p for name, p in poses.items()}
    for one, other in zip(jax.tree.leaves(links.targets(poses)), jax.tree.leaves(links.targets(carried)), strict=True):
        np.testing.assert_allclose(*(np.abs(x) if x.shape == (4,) else x for x in (one, other)), atol=1e-6)


def test_feet_stand_where_they_are_low_and_slow() -> None:
    t = np.linspace(0, 2, 201)
    up = np.maximum(np.sin(2 * np.pi * t), 0)  # in the air in the first half of each second
    ahead = np.cumsum(np.where(up > 0, 0.02, 0.001))  # 2 m/s and 0.1 m/s
    path = np.stack([ahead, 0 * t, 0.4 + 0.2 * up], axis=-1)
    stands = np.asarray(contacts(np.stack([path, path + 0.3], axis=1), 0.01))
    assert stands.shape == (201, 2)
    np.testing.assert_array_equal(
        stands[1:-1], np.broadcast_to((up == 0)[1:-1, None], (199, 2)) & (stands[1:-1] | False)
    )
    assert stands[55:95].all() and stands[155:195].all() and not stands[5:45].any() and not stands[105:145].any()
    assert not contacts(path, 0.01, speed=0.05).any() and not contacts(path, 0.01, height=0.0)[10:40].any()


@pytest.mark.parametrize("stretches", [[(0, 4), (9, 20), (25, 26)], [(5, 10)], [(0, 30)], []])
def test_a_planted_foot_stays_at_the_mean_of_its_stretch_and_never_jumps(stretches: list[tuple[int, int]]) -> None:
    path = 0.01 * np.cumsum(np.random.default_rng(5).normal(size=(30, 2, 3)), axis=0)
    poses = jaxlie.SE3(jnp.asarray(np.concatenate([pose(6, 30, 2).wxyz_xyz[..., :4], path], axis=-1)))
    mask = np.zeros(30, bool)
    for begin, end in stretches:
        mask[begin:end] = True
    placed = np.asarray(planted(poses, mask).wxyz_xyz)
    np.testing.assert_array_equal(placed[..., :4], np.asarray(poses.wxyz_xyz)[..., :4])
    shift = placed[..., 4:] - path
    for begin, end in stretches:
        mean = np.broadcast_to(path[begin:end].mean(axis=0), (end - begin, 2, 3))
        np.testing.assert_allclose(placed[begin:end, :, 4:], mean, atol=1e-7)
    # In between, as NumPy interpolates.
    known, every = np.flatnonzero(mask), np.arange(30)
    for k in range(6):
        expected = np.interp(every, known, shift.reshape(30, 6)[known, k]) if stretches else np.zeros(30)
        np.testing.assert_allclose(shift.reshape(30, 6)[:, k], expected, atol=1e-7)
    np.testing.assert_allclose(planted(path, mask), placed[..., 4:], atol=1e-7)


def walking(robot: jaxik.Robot, steps: int) -> jax.Array:
    """Configurations (T, 2, nq) of a body that turns, and lifts its legs, elsewhere than at home."""
    t = jnp.arange(steps)[:, None] / 30
    waves = 0.15 * jnp.sin(2 * jnp.pi * t[..., None] + jnp.arange(robot.nv)) * jnp.array([[1.0], [0.5]])
    waves = waves.at[..., :6].set(jnp.array([0.5, 0, 0, 0, 0, 0.5]) * t[..., None])
    away = robot.integrate(robot.q_home, jnp.zeros(robot.nv).at[:6].set(jnp.array([3.0, -2.0, 0, 0, 0, 2.5])))
    return robot.integrate(away, waves)


@functools.cache
def own_motion() -> tuple[LinkMap, jax.Array, dict[str, jaxlie.SE3]]:
    """The quadruped's map to itself, with other axes of its links, and what was recorded of its own motion."""
    robot, bodies = robot_of("quadruped"), BODIES["quadruped"]
    q = walking(robot, 40)
    axes = jaxlie.SE3.from_rotation(pose(9).rotation())
    poses = {name: robot.frame_pose(q, frame) @ axes for name, frame in bodies.items()}
    rest = {name: robot.frame_pose(robot.q_home, frame) @ axes for name, frame in bodies.items()}
    return match(robot, bodies, robot.q_home, rest, root="trunk", feet=FEET), q, poses


def followed(links: LinkMap, poses: dict[str, Any], fastest: float = 20.0) -> jaxik.Track:
    limits = (jaxik.ConfigurationLimit(), jaxik.VelocityLimit(fastest))
    robot, costs = robot_of("quadruped"), {"trunk": 1.0}
    return retarget(robot, links, poses, 1 / 30, limits=limits, posture_cost=0, orientation_cost=costs)


def off(q: jax.Array, other: jax.Array, frame: str) -> np.ndarray:
    """How far a frame of the quadruped is from where another configuration has it [m]."""
    here, there = (robot_of("quadruped").frame_pose(x, frame).translation() for x in (q, other))
    return np.linalg.norm(here - there, axis=-1)


def test_a_robots_own_motion_is_found_again_and_its_speeds_are_kept() -> None:
    links, q, poses = own_motion()
    motion = followed(links, poses).check()
    assert motion.q.shape == q.shape == (40, 2, robot_of("quadruped").nq) and (motion.peak_speed <= 1 + 1e-9).all()
    for name, frame in BODIES["quadruped"].items():
        assert off(motion.q, q, frame).max() < 2e-3, name
    np.testing.assert_allclose(followed(links, poses, fastest=0.3).peak_speed, 1, atol=1e-9)


def without(poses: dict[str, Any], body: str, *where: Any) -> dict[str, Any]:
    """Poses of which those of a body are not seen there."""
    return poses | {body: jax.tree.map(lambda x: x.at[where].set(jnp.nan), poses[body])}


def test_others_are_followed_on_where_the_root_or_a_foot_is_hidden() -> None:
    links, q, poses = own_motion()
    gaps = [("trunk", slice(10, 14), 0), ("front left", slice(3), 1), ("rear right", slice(30, 40), 0)]
    gaps.append(("rear left", slice(None), 1))
    for body, *where in gaps:
        poses = without(poses, body, *where)
    motion = followed(links, poses).check()
    for name, frame in BODIES["quadruped"].items():
        hidden = np.zeros((40, 2), bool)
        for body, *where in gaps:
            hidden[tuple(where)] |= body == name
        error = np.asarray(motion.residuals[name]["position"])
        np.testing.assert_array_equal(np.isnan(error), np.broadcast_to(hidden[..., None], error.shape))
        assert off(motion.q, q, frame)[~hidden].max() < 2e-3, name
    # The foot that is hidden first waits where it is seen first, relative to the trunk.
    robot = robot_of("quadruped")
    ways = [
        robot.frame_pose(x, "front_left_foot").translation() - robot.frame_pose(x, "trunk").translation()
        for x in (motion.q[0, 1], q[3, 1], q[0, 1])
    ]
    assert np.linalg.norm(ways[0] - ways[1]) < 0.01 and np.linalg.norm(ways[2] - ways[1]) > 0.02


def closing(points: tuple[str, ...]) -> tuple[jaxik.Robot, LinkMap, dict[str, Any]]:
    """A hand of the same kind that closes, somewhere else."""
    robot, links = matched("hand", points)
    bent = jnp.clip(robot.q_home + 0.2 * jnp.linspace(0, 1, 10)[:, None], robot.limit_lower, robot.limit_upper)
    return robot, links, {name: pose(1) @ x for name, x in recorded(robot, bent, BODIES["hand"], points).items()}


FINGERS = ("index", "middle", "ring", "thumb")


def test_a_hand_closes_as_another_one_does() -> None:
    robot, links, poses = closing(FINGERS)
    motion = retarget(robot, links, poses, 0.05, posture_cost=1e-3, q0=robot.q_home)
    assert motion.q.shape == (10, 16) and (robot.limit_excess(motion.q) == 0).all()
    for name, target in links.targets(poses).items():
        there = robot.frame_pose(motion.q, BODIES["hand"][name]).translation()
        assert np.linalg.norm(there - target, axis=-1).max() < 1e-3, name


def test_a_hidden_finger_stops_no_other() -> None:
    robot, links, poses = closing(FINGERS)
    whole, part = (
        retarget(robot, links, x, 0.05, posture_cost=1e-3, q0=robot.q_home).check()
        for x in (poses, without(poses, "index", slice(4, 7)))
    )
    own = np.array(["index" in name for name in robot.joint_names])
    np.testing.assert_allclose(part.q[:, ~own], whole.q[:, ~own], atol=1e-6)
    np.testing.assert_allclose(part.q[jnp.array([3, 9])][:, own], whole.q[jnp.array([3, 9])][:, own], atol=5e-3)
    hidden = np.isnan(part.residuals["index"]["position"]).all(axis=-1)
    np.testing.assert_array_equal(np.flatnonzero(hidden), [4, 5, 6])
    # All hang on the wrist.
    lost = retarget(robot, links, without(poses, "wrist", 9), 0.05, posture_cost=1e-3, q0=robot.q_home).check()
    assert all(np.isnan(lost.residuals[name]["position"][9]).all() for name in FINGERS)
    np.testing.assert_array_equal(lost.q[:9], whole.q[:9])


def test_derivatives_leave_out_what_is_not_seen() -> None:
    _, links, poses = closing(("index", "thumb"))
    poses = without(without(poses, "index", 4), "ring", 5)

    def seen(scale: dict[str, jax.Array], poses: dict[str, Any]) -> jax.Array:
        targets = dataclasses.replace(links, scale=scale).targets(poses)
        return sum(jnp.nansum(x[..., -3:] ** 2) for x in jax.tree.leaves(targets))  # type: ignore[return-value]

    slopes = jax.grad(seen)(links.scale, poses)
    later = jax.grad(seen)(links.scale, jax.tree.map(lambda x: jnp.concatenate([x[:4], x[5:]]), poses))
    one = jax.grad(seen)(links.scale, jax.tree.map(lambda x: x[4:5], poses))
    assert one["index"] == 0
    for name in links.scale:
        np.testing.assert_allclose(slopes[name], later[name] + one[name], rtol=1e-6, atol=1e-9)


@exhaustive  # 14 s, of which all but the map's is `track`'s derivative
def test_the_scale_has_a_derivative() -> None:
    robot = robot_of("double_pendulum")
    bodies = {"base": "world", "tip": robot.frame_names["site"][0]}
    q = robot.q_home + jnp.array([0.5, 0.8])
    poses = {name: jaxlie.SE3(jnp.tile(robot.frame_pose(q, frame).wxyz_xyz, (6, 1))) for name, frame in bodies.items()}
    links = match(robot, bodies, q, {name: jaxlie.SE3(x.wxyz_xyz[0]) for name, x in poses.items()}, root="base")

    def end(scale: jax.Array) -> jax.Array:
        sized = dataclasses.replace(links, scale=links.scale | {"tip": scale})
        return jnp.sum(retarget(robot, sized, poses, 0.05, posture_cost=0.1, orientation_cost=None).q[-1])

    h, at = 1e-5, jnp.asarray(0.9)
    _, slope = jax.jvp(end, (at,), (jnp.ones_like(at),))
    np.testing.assert_allclose(slope, (end(at + h) - end(at - h)) / (2 * h), rtol=1e-5)
    assert abs(slope) > 0.1


def over_time(poses: dict[str, Any], steps: int) -> dict[str, Any]:
    return jax.tree.map(lambda x: jnp.tile(x, (steps, *(1,) * x.ndim)), poses)


def matched_to(poses: dict[str, Any], turn: jaxlie.SO3, unit: float = 1.0) -> LinkMap:
    """The quadruped's map to poses that are turned, in another unit."""
    robot, bodies = robot_of("quadruped"), BODIES["quadruped"]
    turned = {name: jaxlie.SE3.from_rotation(turn) @ x for name, x in poses.items()}
    scaled = {n: jaxlie.SE3(x.wxyz_xyz * jnp.array([1.0] * 4 + [unit] * 3)) for n, x in turned.items()}
    return match(robot, bodies, robot.q_home, scaled, root="trunk", feet=FEET)


def test_a_recording_that_is_turned_a_little_is_matched_all_the_same() -> None:
    robot = robot_of("quadruped")
    poses = recorded(robot, robot.q_home, BODIES["quadruped"])
    for turn in (jaxlie.SO3.from_z_radians(0.5), jaxlie.SO3.from_y_radians(-0.3)):
        links = matched_to(poses, turn)
        there = {name: jaxlie.SE3.from_rotation(turn) @ x for name, x in poses.items()}
        for name, target in links.targets(there).items():
            frame = robot.frame_pose(robot.q_home, BODIES["quadruped"][name])
            np.testing.assert_allclose((target.inverse() @ frame).log(), 0, atol=1e-6)


def test_what_was_not_seen_of_a_foot_spoils_nothing_else() -> None:
    t = np.arange(40) / 30
    path = np.stack([0.01 * t, 0 * t, 0.1 + 0.2 * np.maximum(np.sin(6 * t), 0)], axis=-1)
    gap = path.copy()
    gap[12:14] = np.nan
    whole, part = (np.asarray(contacts(x, 1 / 30)) for x in (path, gap))
    np.testing.assert_array_equal(part[16:], whole[16:])
    stays = np.asarray(planted(gap, np.ones(40, bool)))
    assert np.isfinite(stays[np.r_[:12, 14:40]]).all() and np.isnan(stays[12:14]).all()


def test_key_points_alone_say_which_way_a_robot_faces_first() -> None:
    robot, links = matched("quadruped", ("trunk", *FEET))
    away = jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.from_z_radians(3.1), jnp.array([2.0, 1.0, 0.0]))
    rest = recorded(robot, robot.q_home, BODIES["quadruped"], ("trunk", *FEET))
    poses = {name: away @ x for name, x in over_time(rest, 2).items()}
    motion = retarget(robot, links, poses, 1 / 30, orientation_cost=None)
    heading = jaxlie.SO3(motion.q[0, 3:7]).as_matrix()[:, 0]
    np.testing.assert_allclose(heading, [np.cos(3.1), np.sin(3.1), 0], atol=0.05)


HOME, UNSEEN = jaxlie.SE3.identity(), jaxlie.SE3(jnp.full(7, jnp.nan))


@pytest.mark.parametrize(("call", "says"), [
    (lambda r, m, p: match(r, {"trunk": "nobody"}, r.q_home, p, root="trunk"), "nobody"),
    (lambda r, m, p: match(r, {"trunk": "trunk"}, r.q_home, p, root="trunc"), "did you mean"),
    (lambda r, m, p: match(r, {"trunk": "trunk"}, r.q_home, {"trunk": jnp.zeros(2)}, root="trunk"), r"\(\*batch, 3\)"),
    (lambda r, m, p: match(r, {"trunk": "trunk"}, r.q_home, {"trunk": HOME}, root="trunk"), "above the ground"),
    (lambda r, m, p: match(r, {"trunk": "trunk"}, r.q_home, {"trunk": pose(0, 5)}, root="trunk"), "one moment"),
    (lambda r, m, p: matched_to(p, jaxlie.SO3.from_z_radians(1.6)), r"another way.* -1\.6.*q is not the pose"),
    (lambda r, m, p: matched_to(p, jaxlie.SO3.identity(), unit=100.0), "in metres"),
    (lambda r, m, p: matched_to(p | {"trunk": UNSEEN}, jaxlie.SO3.identity()), "all bodies are seen"),
    (lambda r, m, p: jax.jit(lambda x: matched_to(x, jaxlie.SO3.identity()))(p), "before jit"),
    (lambda r, m, p: match(r, BODIES["quadruped"], r.q_home, p, root="trunk", feet="front left"), "tuple"),
    (lambda r, m, p: retarget(r, m, over_time(p, 3) | {"rear left": over_time(p, 4)["rear left"]}, 0.1), r"\(4,\)"),
    (lambda r, m, p: retarget(r, m, over_time(p, 3), 0.1, contacts=["trunk"]), "dict"),
    (lambda r, m, p: m.targets({"trunk": p["trunk"]}), "unknown body"),
    (lambda r, m, p: m.targets(p | {"rear left": jnp.zeros(3)}), "offset"),
    (lambda r, m, p: retarget(r, m, over_time(p, 2), 0.1, contacts={"paw": [True]}), "paw"),
    (lambda r, m, p: retarget(r, m, over_time(p, 2), 0.1, position_cost={"paw": 1.0}), "paw"),
    (lambda r, m, p: retarget(r, "quadruped", p, 0.1), "LinkMap"),
    (lambda r, m, p: contacts(jnp.zeros((1, 3)), 0.1), "two or more"),
    (lambda r, m, p: planted(jnp.zeros((4, 3)), jnp.zeros(3)), r"\(4,\)"),
])  # fmt: skip
def test_what_is_wrong_is_said_before_anything_runs(call: Any, says: str) -> None:
    robot, links = matched("quadruped")
    with pytest.raises(jaxik.JaxikError, match=says):
        call(robot, links, recorded(robot, robot.q_home, BODIES["quadruped"]))
