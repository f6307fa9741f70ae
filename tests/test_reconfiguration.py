"""Closures, goals and joints switched while they move: as if built so, without recompiling."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.robot.robot import Robot

FEET = [f"foot{k}" for k in range(6)]
EVEN = np.arange(6) % 2 == 0
STEPS, STRIDE = 20, 0.06


def parts() -> jaxik.Mechanism:
    """A crank with a coupler, and a rocker with two places where the coupler may end."""
    made = jaxik.Mechanism("parts")
    made.link("crank", joints="EZ")
    made.link("coupler", "crank", position=(0.1, 0, 0), joints="EZ", rest=0.5)
    made.link("rocker", position=(0.3, 0, 0), joints="EZ", rest=1.5)
    made.frame("pin", "coupler", position=(0.35, 0, 0))
    made.frame("near", "rocker", position=(0.2, 0, 0))
    made.frame("far", "rocker", position=(0.25, 0, 0))
    return made


# Which place the coupler is held at in each element, if any, and in which it is pinned to the world instead.
HELD, PINNED = jnp.array([0, 1, -1, -1]), jnp.array([False, False, False, True])


@cache
def open_chain() -> Robot:
    return parts().build()


@cache
def reattachable() -> Robot:
    return open_chain().with_closure("loop", "pin", ["near", "far"], "spherical")


def asked(robot: Robot, q: jax.Array) -> jaxik.Problem:
    """The crank where q has it and, more weakly, all near q: one solution, loop or none."""
    return jaxik.Problem(robot, {"near": jaxik.PostureTask(q, cost=jnp.array([3.0, 1.0, 0.5]))})


@jax.jit
def solved(index: jax.Array, pinned: jax.Array, q: jax.Array) -> tuple[jaxik.Solution, jax.Array]:
    """Solutions, and their derivatives by the angle that the crank is asked for."""
    home = open_chain().q_home
    robot = reattachable().pinned(home, ["pin"], pinned[:, None], kind=("x", "y")).with_active({"loop": index})

    def found(q: jax.Array) -> tuple[jax.Array, jaxik.Solution]:
        solution = jaxik.solve(asked(robot, q), home)
        return solution.q, solution

    _, slope, solution = jax.jvp(found, (q,), (jnp.zeros_like(q).at[..., 0].set(1.0),), has_aux=True)
    return solution, slope


@cache
def switched() -> tuple[jax.Array, jaxik.Solution, jax.Array]:
    """Held near, held far, not held, and pinned to where it is at home; each where it would go on its own."""
    q = reattachable().q_home + jnp.array([[0.4, 0.1, -0.2]]) * jnp.ones((4, 1))
    return q, *solved(HELD, PINNED, q)


@exhaustive
def test_a_closure_is_held_by_one_of_its_candidates_or_by_none() -> None:
    q, found, slope = switched()
    assert np.all(found.status == jaxik.Status.CONVERGED)
    assert np.all(found.derivative_status == jaxik.DerivativeStatus.EXACT)
    pin, near, far = (
        np.asarray(open_chain().frame_pose(found.q, name).translation()) for name in ("pin", "near", "far")
    )
    gaps = np.stack([np.linalg.norm(pin - near, axis=-1), np.linalg.norm(pin - far, axis=-1)])
    assert gaps[0, 0] < 1e-9 and gaps[1, 1] < 1e-9
    assert min(gaps[1, 0], gaps[0, 1], gaps[0, 2], gaps[1, 2]) > 0.04
    # Of what is off no row is left: neither in the solution, nor in its derivative, nor in what is reported.
    np.testing.assert_allclose(found.q[2], q[2], atol=1e-12)
    np.testing.assert_allclose(slope[2], [1, 0, 0], atol=1e-9)
    assert np.all(np.asarray(found.residuals["model"])[2] == 0)


def test_a_frame_that_is_pinned_stays_where_it_stands_and_the_rest_moves() -> None:
    q, found, slope = switched()
    every = jnp.stack([open_chain().q_home, found.q[3], q[3]])
    stood, stays, alone = open_chain().frame_pose(every, "pin").translation()
    np.testing.assert_allclose(stays, stood, rtol=0, atol=1e-9)
    assert np.linalg.norm(alone - stood) > 0.01
    np.testing.assert_allclose(found.q[3, 2], q[3, 2], rtol=0, atol=1e-9)
    np.testing.assert_allclose(slope[3], 0, rtol=0, atol=1e-9)


@exhaustive
def test_switched_closures_are_as_if_the_robot_was_built_so() -> None:
    q, found, _ = switched()
    site = open_chain().site_position
    near = site.at[open_chain().frame("far").index].set(site[open_chain().frame("near").index])
    robot = open_chain().with_closure("loop", "pin", "far", "spherical")
    robot = dataclasses.replace(robot, site_position=jnp.stack([near, site]))
    built = jaxik.solve(asked(robot, q[:2]))
    np.testing.assert_allclose(found.q[:2], built.q, atol=1e-9)
    np.testing.assert_array_equal(found.status[:2], built.status)


def test_derivatives_of_what_is_switched_are_those_of_differences() -> None:
    q, _, slope = switched()
    h = jnp.array([1e-6, 0, 0])
    ahead, back = (solved(HELD, PINNED, q + way)[0].q for way in (h, -h))
    np.testing.assert_allclose(slope, (ahead - back) / 2e-6, atol=1e-7)


@exhaustive
def test_a_step_keeps_what_is_held_and_nothing_else() -> None:
    found = jax.tree.map(lambda x: x[:3], switched()[1])
    robot = reattachable().with_active({"loop": HELD[:3]})
    wanted = found.q + jnp.array([1e-4, 0, 0])
    stepped = jaxik.step(asked(robot, wanted), found.q, 1.0)
    assert np.all(stepped.converged)
    task = jaxik.EqualityConstraintTask(robot.equalities())
    rows = jax.vmap(lambda index, q: _rows(task, reattachable().with_active({"loop": index}), q))
    assert np.abs(rows(HELD[:3], stepped.q)).max() < 1e-7  # of second order
    np.testing.assert_allclose(stepped.q[2], wanted[2], atol=1e-9)
    assert np.abs(np.asarray(stepped.q)[:2] - np.asarray(wanted)[:2]).max() > 1e-5


def _rows(task: jaxik.EqualityConstraintTask, robot: Robot, q: jax.Array) -> jax.Array:
    return task.residual(robot, robot.kinematics(q, task.frames))


def test_switching_compiles_once() -> None:
    q, found, _ = switched()
    order = np.array([2, 0, 3, 1])
    again, _ = solved(HELD[order], PINNED[order], q)
    np.testing.assert_array_equal(again.q, found.q[order])
    assert solved._cache_size() == 1


@jax.jit
def walk(q: jax.Array, pinned: jax.Array, places: jax.Array, bodies: jax.Array) -> jaxik.Solution:
    """Step after step: feet that are pinned stay where they stand, the others go to their places."""
    robot = jaxik.load_robot("hexapod")
    free = [robot.frame(name) for name in FEET]

    def stride(q: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jaxik.Solution]:
        on, place, body = now
        tasks = {"body": jaxik.FrameTask(robot.frame("center"), jaxlie.SE3(body))}
        for k, foot in enumerate(free):
            cost = jnp.where(on[k], 0.0, 1.0)
            tasks[foot.name] = jaxik.FrameTask(foot, place[k], position_cost=cost, orientation_cost=None)
        found = jaxik.solve(jaxik.Problem(robot.pinned(q, FEET, on), tasks), q)
        return found.q, found

    return jax.lax.scan(stride, q, (pinned, places, bodies))[1]


@exhaustive
def test_a_hexapod_walks_twenty_steps_on_pinned_feet() -> None:
    robot = jaxik.load_robot("hexapod")
    q, count = robot.q_home, np.arange(STEPS)
    start = np.stack([robot.frame_pose(q, name).translation() for name in FEET])
    pinned = EVEN ^ (count % 2 == 0)[:, None]
    ahead = np.zeros((STEPS, 6, 3))
    ahead[..., 0] = STRIDE * (count[:, None] + 1)
    bodies = np.tile(robot.frame_pose(q, "center").wxyz_xyz, (STEPS, 1))
    bodies[:, 4] += STRIDE * (count + 0.5)
    found = walk(q, pinned, start + ahead, bodies)
    assert np.all(found.status == jaxik.Status.CONVERGED)
    every = np.concatenate([q[None], found.q])
    feet = np.stack([robot.frame_pose(every, name).translation() for name in FEET], axis=1)
    moved = np.linalg.norm(np.diff(feet, axis=0), axis=-1)
    assert moved[pinned].max() < 1e-9
    assert moved[~pinned].min() > 0.9 * STRIDE
    np.testing.assert_allclose(feet[-1, :, 0] - start[:, 0], STRIDE * np.where(pinned[-1], STEPS - 1, STEPS), atol=1e-4)
    walk(q, ~pinned, start + ahead, bodies)
    assert walk._cache_size() == 1


COUPLED = """<mujoco><worldbody>
  <body name="a"><joint name="a"/><geom size=".1"/></body>
  <body name="b"><joint name="b"/><geom size=".1"/></body></worldbody>
  <equality><joint name="both" joint1="a" joint2="b"/><weld name="held" body1="a" body2="b" active="false"/></equality>
</mujoco>"""

MISTAKES: dict[str, tuple[Any, str]] = {
    "name": (lambda: reattachable().with_active({"lop": 0}), "unknown equality constraint 'lop'.*loop"),
    "mapping": (lambda: reattachable().with_active(["loop"]), "active is a dict"),
    "flag": (lambda: reattachable().with_active({"loop/near": 2}), "True or False"),
    "index": (lambda: reattachable().with_active({"loop": 2}), "index of a candidate, 0 to 1, or -1"),
    "bool for an index": (lambda: reattachable().with_active({"loop": True}), "index of a candidate"),
    "coupling": (lambda: jaxik.load_robot(COUPLED).with_active({"both": False}), "part of its coordinates"),
    "feet": (lambda: jaxik.load_robot("hexapod").pinned(jnp.zeros(25), FEET, [True] * 5), r"\(\*batch, 6\)"),
    "no feet": (lambda: jaxik.load_robot("hexapod").pinned(jnp.zeros(25), []), "one a frame"),
    "foot": (lambda: jaxik.load_robot("hexapod").pinned(jnp.zeros(25), ["foot9"]), "unknown frame .foot9."),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_line(mistake: str) -> None:
    make, said = MISTAKES[mistake]
    with pytest.raises(jaxik.JaxikError, match=said) as error:
        make()
    assert "\n" not in str(error.value)


def test_a_constraint_that_the_model_starts_without_can_be_switched_on(tmp_path: Path) -> None:
    robot = jaxik.load_robot(COUPLED)
    held = robot.with_active({"held": True})
    assert [e.label for e in held.equalities()] == ["both", "held"]
    task = jaxik.EqualityConstraintTask(held.equalities("held"))
    q = jnp.array([0.1, 0.3])
    assert np.abs(jax.jit(lambda q: task.residual(held, held.kinematics(q, task.frames)))(q)).max() > 0.1
    off = held.with_active({"held": False}).with_closure("more", "a", "b", "weld")
    np.testing.assert_array_equal(off.equality_active, [1, 0, 1])
    jaxik.save(tmp_path / "off.npz", off)
    np.testing.assert_array_equal(jaxik.load_robot(tmp_path / "off.npz").equality_active, [1, 0, 1])


def test_a_goal_is_off_where_its_cost_or_its_mask_is_zero() -> None:
    """One goal a link: what only a goal that is off asks for stays where it was."""
    robot = open_chain()
    pin, end = (jnp.array(place) for place in ([0.2, 0.3, 0.0], [0.3, 0.2, 0.0]))
    on = jnp.array([[True, True], [False, True], [True, False], [False, False]])
    tasks = {
        "pin": jaxik.FrameTask(
            robot.frame("pin"), pin, position_cost=jnp.where(on[:, :1], 1.0, 0.0), orientation_cost=None
        ),
        "end": jaxik.FrameTask(robot.frame("near"), end, mask=on[:, 1:] * jnp.ones(6), orientation_cost=None),
    }
    found = jaxik.solve(jaxik.Problem(robot, tasks))
    assert np.all(found.status == jaxik.Status.CONVERGED)
    assert np.all(found.chains.status == jaxik.Status.CONVERGED)
    assert found.chains.goals == (("pin",), ("end",))
    off = np.linalg.norm(np.stack([found.residuals[name]["position"] for name in ("pin", "end")], axis=1), axis=-1)
    np.testing.assert_array_equal(off < 1e-9, on)
    stays = np.asarray(found.q == robot.q_home)
    np.testing.assert_array_equal(stays[:, 2], ~on[:, 1])
    np.testing.assert_array_equal(stays[:, :2].all(axis=1), ~on[:, 0])
