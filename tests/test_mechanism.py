"""Mechanisms built in Python: their loops close as the geometry says and as C MuJoCo has them."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.robot.robot import Robot

# Lengths of the four-bar linkage: crank, coupler, rocker and the distance between its two fixed joints.
CRANK, COUPLER, ROCKER, GROUND = 0.1, 0.35, 0.2, 0.3

TREE = """<mujoco><compiler angle="radian"/><worldbody>
  <body name="a" pos="0 0 .1"><joint axis="0 0 1"/><joint type="slide" axis="1 0 .3"/><geom size=".1" mass="1"/>
    <body name="b" pos=".3 0 .1"><joint type="ball"/><geom size=".1" mass="1"/>
      <site name="sb" pos=".1 .2 .3" euler="1 2 3"/></body></body>
  <body name="c" pos="1 0 0"><freejoint/><geom size=".1" mass="1"/>
    <site name="sc" pos="0 .1 0" euler=".1 .2 .3"/></body>
</worldbody></mujoco>"""


def linkage(kind: str = "hinge") -> jaxik.Mechanism:
    made = jaxik.Mechanism("four_bar")
    made.link("crank", joints="EZ")
    made.link("coupler", "crank", position=(CRANK, 0, 0), joints={"EZ": None}, rest=0.5)
    made.link("rocker", position=(GROUND, 0, 0), joints={"EZ": (-9.0, 9.0)}, rest=1.5)
    made.frame("pin", "coupler", position=(COUPLER, 0, 0))
    made.frame("end", "rocker", position=(ROCKER, 0, 0))
    made.frame("pen", "coupler", position=(0.2, 0.1, 0))
    made.closure("loop", "pin", "end", kind)
    return made


@cache
def four_bar() -> Robot:
    return linkage().build()


def driven(robot: Robot, joint: int, q: jax.Array) -> jaxik.Problem:
    """One joint goes to where q has it, the loop takes the others along."""
    cost = jnp.zeros(3).at[joint].set(1.0)
    return jaxik.Problem(robot, {"drive": jaxik.PostureTask(q, cost=cost, tolerance=1e-6)})


@jax.jit
def followed(joint: jax.Array, angles: jax.Array, q: jax.Array) -> jaxik.Solution:
    """Each angle from where the one before ended."""

    def go(q: jax.Array, angle: jax.Array) -> tuple[jax.Array, jaxik.Solution]:
        found = jaxik.solve(driven(four_bar(), joint, q.at[joint].set(angle)), q)
        return found.q, found

    return jax.lax.scan(go, q, angles)[1]


@cache
def turned() -> jaxik.Solution:
    """A full turn of the crank, in degrees."""
    return followed(0, jnp.radians(jnp.arange(361.0)), four_bar().q_home)


def test_a_four_bar_follows_a_full_turn_of_its_crank_on_one_branch() -> None:
    found = turned()
    assert np.all(found.status == jaxik.Status.CONVERGED)
    assert np.max(np.abs(np.diff(found.q, axis=0))) < 0.03
    # Where two circles meet, above the line from the crank's end to the rocker's joint or below, always the same.
    crank, joint = found.q[:, 0], np.array([GROUND, 0.0])
    end = CRANK * np.stack([np.cos(crank), np.sin(crank)], axis=-1)
    way = joint - end
    apart = np.linalg.norm(way, axis=-1)
    along = (COUPLER**2 - ROCKER**2 + apart**2) / (2 * apart)
    across = np.sqrt(COUPLER**2 - along**2)
    unit = way / apart[:, None]
    normal = np.stack([-unit[:, 1], unit[:, 0]], axis=-1)
    pins = [end + along[:, None] * unit + side * across[:, None] * normal for side in (1, -1)]
    reached = np.asarray(four_bar().frame_pose(found.q, "pin").translation())[:, :2]
    assert min(np.abs(reached - pin).max() for pin in pins) < 1e-9


def test_a_dead_centre_is_reached_and_what_lies_beyond_it_is_not() -> None:
    """Driven by the rocker, the crank ends where it and the coupler lie in one line."""
    rocker = np.asarray(turned().q[:, 2])
    at = int(np.argmax(rocker))
    ends = CRANK + COUPLER if np.cos(turned().q[at, 1]) > 0 else COUPLER - CRANK
    assert np.pi - rocker[at] == pytest.approx(_angle(GROUND, ROCKER, ends), abs=1e-4)
    found = followed(2, jnp.linspace(rocker[at] - 0.1, rocker[at] + 0.1, 361), turned().q[at - 40])
    within = np.linspace(-0.1, 0.1, 361) < -1e-3
    assert np.all(np.abs(found.residuals["model"]) < 1e-9)
    assert np.all(found.status[within] == jaxik.Status.CONVERGED)
    assert np.all(found.status[181:] == jaxik.Status.STALLED)
    np.testing.assert_allclose(found.q[181:, 2], rocker[at], atol=2e-4)


def _angle(one: float, other: float, opposite: float) -> float:
    """Of a triangle with these sides [rad]."""
    return float(np.arccos((one**2 + other**2 - opposite**2) / (2 * one * other)))


def test_mujoco_holds_the_saved_loops_where_they_are_solved(tmp_path: Path) -> None:
    q = turned().q
    for kind, rows in (("hinge", 6), ("spherical", 3)):
        model = mujoco.MjModel.from_xml_path(str(linkage(kind).save(tmp_path / f"{kind}.xml")))
        data = mujoco.MjData(model)
        for row in np.asarray(q)[::60]:
            data.qpos[:] = row
            mujoco.mj_forward(model, data)
            assert data.ne == rows and np.abs(data.efc_pos[: data.ne]).max() < 1e-9
    loaded = jaxik.load_robot(tmp_path / "spherical.xml")
    np.testing.assert_array_equal(loaded.q_home, four_bar().q_home)
    assert loaded.equalities()[0].kind == "connect"
    with pytest.raises(jaxik.JaxikError, match=r"'loop' of the kind 'cylinder'.*jaxik.save"):
        linkage("cylinder").save(tmp_path / "no.xml")


KINDS = ["spherical", "universal", "hinge", "cylinder", "slide", "weld", ("x", "rz"), ("ry",), ("rx", "rz")]


@pytest.mark.parametrize("kind", mostly_exhaustive(KINDS, ["universal"]), ids=str)
def test_rows_of_closures_have_the_derivatives_of_differences(kind: Any) -> None:
    """By hinges, slides, balls and free joints, at large angles, between sites, bodies and the world."""
    tree = jaxik.load_robot(TREE)
    held = tree.sample(jax.random.key(0))
    robot = tree.with_closure("sites", "sb", "sc", kind, axis=(1.0, 2.0, 3.0), q=held)
    robot = robot.with_closure("body", "c", "sb", kind).with_closure("world", "sb", "world", kind, axis=(0.0, 0, -1))
    task = jaxik.EqualityConstraintTask(robot.equalities())

    @jax.jit
    def rows(q: jax.Array) -> jax.Array:
        return task.residual(robot, robot.kinematics(q, task.frames))

    q = robot.sample(jax.random.key(1))
    ways = 1e-6 * jnp.eye(robot.nv)
    ahead, back = (jax.vmap(lambda w, s=sign: rows(robot.integrate(q, s * w)))(ways) for sign in (1, -1))
    jacobian = jax.jit(lambda q: task.jacobian(robot, robot.kinematics(q, task.frames)))(q)
    np.testing.assert_allclose(jacobian, (ahead - back).T / 2e-6, atol=2e-8)
    assert np.all(np.abs(rows(held)[: len(ahead[0]) // 3]) < 1e-12)


def test_what_is_free_in_a_closure_turns_and_shifts_and_the_rest_does_not() -> None:
    """Two frames shifted along and turned about the axis of their closure by 3 rad: as a cylinder they still close."""
    text = """<mujoco><worldbody><body name="base"><joint axis="1 0 0"/><geom size=".1" mass="1"/></body>
      <body name="other"><freejoint/><geom size=".1" mass="1"/></body></worldbody></mujoco>"""
    robot = jaxik.load_robot(text)
    axis = np.array([1.0, -2.0, 2.0]) / 3
    along, about = np.concatenate([[0], 0.4 * axis, [1, 0, 0, 0]]), np.zeros(8)
    about[4:] = [np.cos(1.5), *(np.sin(1.5) * axis)]
    free = {"hinge": (False, True), "slide": (True, False), "cylinder": (True, True), "weld": (False, False)}
    for kind, closes in free.items():
        closed = robot.with_closure("loop", "other", "base", kind, axis=axis)
        task = jaxik.EqualityConstraintTask(closed.equalities("loop"))

        @jax.jit
        @jax.vmap
        def gaps(q: jax.Array, closed: Any = closed, task: Any = task) -> jax.Array:
            return jnp.abs(task.residual(closed, closed.kinematics(q, task.frames))).max()

        for gap, expected in zip(np.asarray(gaps(np.stack([along, about]))), closes, strict=True):
            assert (gap < 1e-12) == expected and (expected or gap > 0.1), (kind, gap)


@exhaustive
def test_a_solution_has_the_derivatives_of_differences_by_the_geometry() -> None:
    robot = four_bar()

    def pen(length: jax.Array) -> jax.Array:
        longer = robot.site_position.at[robot.frame("pin").index, 0].set(length)
        one = dataclasses.replace(robot, site_position=longer)
        found = jaxik.solve(driven(one, 0, robot.q_home.at[0].set(1.0)), turned().q[57])
        return one.frame_pose(found.q, "pen").translation()[:2]

    h = 1e-6
    lengths = COUPLER + jnp.array([-h, 0, h])
    values, slopes = jax.jit(jax.vmap(lambda x: jax.jvp(pen, (x,), (jnp.ones_like(x),))))(lengths)
    np.testing.assert_allclose(slopes[1], (values[2] - values[0]) / (2 * h), atol=1e-6)
    assert float(jnp.abs(slopes[1]).max()) > 0.1


def test_links_move_by_translations_and_then_turns_about_z_y_and_x() -> None:
    made = jaxik.Mechanism()
    made.link("tool", position=(1, 0, 0), joints=["EX", "X", "EZ", "Y", "EY", "Z"])
    robot = made.build()
    assert robot.joint_names == ("tool_x", "tool_y", "tool_z", "tool_ez", "tool_ey", "tool_ex")
    q = jnp.array([0.1, 0.2, 0.3, 0.4, -0.5, 0.6])
    pose = robot.frame_pose(q, "tool")
    np.testing.assert_allclose(pose.translation(), [1.1, 0.2, 0.3], atol=1e-12)
    angles = pose.rotation().as_rpy_radians()
    np.testing.assert_allclose([angles.yaw, angles.pitch, angles.roll], q[3:], atol=1e-12)


def test_joints_that_are_geared_turn_together() -> None:
    made = linkage()
    made.link("wheel", position=(0, 0, 1), joints="EZ")
    made.coupling("gears", "wheel", "crank", -2.0)
    robot = made.build()
    assert robot.topology.couplings[0].name == "gears"
    q = robot.sample(jax.random.key(0))
    np.testing.assert_allclose(q[robot.q_indices("wheel")], -2 * q[robot.q_indices("crank")])


def test_closures_are_saved_with_the_robot(tmp_path: Path) -> None:
    path = tmp_path / "four_bar.npz"
    jaxik.save(path, four_bar())
    loaded = jaxik.load(path)
    assert loaded.topology is four_bar().topology
    np.testing.assert_array_equal(loaded.equality_data, four_bar().equality_data)


MISTAKES: dict[str, tuple[Any, str]] = {
    "parent": (lambda m: m.link("more", "crnk"), "crank"),
    "joint": (lambda m: m.link("more", joints="RZ"), "unknown joint 'RZ'"),
    "name": (lambda m: m.link("pin"), "'pin' already"),
    "frame": (lambda m: m.frame("crank", "rocker"), "'crank' already"),
    "carrier": (lambda m: m.frame("tip", "rod"), "rocker"),
    "closure": (lambda m: m.closure("loop", "pin", "end"), "'loop' already"),
    "ends": (lambda m: m.closure("more", "pin", "nd"), "end"),
    "limits": (lambda m: m.link("more", joints={"EZ": (1, -1)}), r"limits of joint 'more' are \(lower, upper\)"),
    "ball": (lambda m: m.link("more", joints=("BALL", "X")), "its only one"),
    "rest": (lambda m: m.link("more", joints="X", rest={"Y": 1.0}), "no joint 'Y'"),
    "rests": (lambda m: m.link("more", joints=("X", "Y"), rest=1.0), "by joint"),
    "mass": (lambda m: m.link("more", mass=0.0), "mass is above 0"),
    "numbers": (lambda m: m.link("more", position=(1, 2)), "position is 3 finite numbers"),
    "rigid": (lambda m: (m.closure("self", "pin", "pen"), m.build()), "'pin' and 'pen' are of one rigid body"),
    "joints": (lambda m: (m.link("a", joints=("X", "Y")), m.link("a_x", joints="X")), "joint 'a_x' already"),
    "places": (
        lambda m: (m.closure("more", "end", "pen", "spherical"), m.build()),
        "'more' hold 'end' at two",
    ),
    "coupled": (lambda m: m.coupling("gears", "crank", "rockr"), "rocker"),
    "coupling": (lambda m: m.coupling("loop", "crank", "rocker"), "'loop' already"),
    "kind": (lambda m: (m.closure("more", "pin", "crank", "hing"), m.build()), "hinge"),
    "axis": (lambda m: (m.closure("more", "pin", "crank", axis=(0, 0, 0)), m.build()), "axis is a direction"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line(mistake: str) -> None:
    make, said = MISTAKES[mistake]
    with pytest.raises(jaxik.JaxikError, match=said) as error:
        make(linkage())
    assert "\n" not in str(error.value)


def test_one_frame_may_be_held_in_different_directions_at_two_places() -> None:
    linkage_ = linkage()
    linkage_.closure("height", "end", "crank", "y")
    linkage_.closure("depth", "end", "coupler", "x")
    assert [e.name for e in linkage_.build().equalities()] == ["loop", "height", "depth"]


def test_a_mechanism_without_links_and_a_name_of_a_closure_that_is_taken_are_refused() -> None:
    with pytest.raises(jaxik.JaxikError, match="no links"):
        jaxik.Mechanism().build()
    with pytest.raises(jaxik.JaxikError, match="'loop' already"):
        four_bar().with_closure("loop", "crank", "rocker")
    with pytest.raises(jaxik.JaxikError, match="holds one direction at least"):
        four_bar().with_closure("more", "crank", "rocker", ())
