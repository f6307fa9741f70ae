"""`search` where two arms on one trunk have to be free at once: one that is stays while the other is drawn anew."""

import dataclasses
from functools import cache

import jax
import numpy as np

import jaxik
from jaxik.solvers.nonlinear.chains import branches
from jaxik.solvers.nonlinear.formulation import formulation
from jaxik.solvers.search.looks import _movers


@cache
def pair() -> jaxik.Robot:
    """A trunk that turns, with two planar arms of three links of 0.3 m, whose tips are turned by a coupled joint."""
    arms = "".join(
        f"""<body name="{side}0" pos="0 {y} 0.1"><joint name="{side}0" axis="0 0 1" range="-2.9 2.9"/>
        <geom name="{side}0" type="capsule" size=".03" fromto=".04 0 0 .26 0 0"/>
        <body name="{side}1" pos=".3 0 0"><joint name="{side}1" axis="0 0 1" range="-2.6 2.6"/>
         <geom name="{side}1" type="capsule" size=".03" fromto=".04 0 0 .26 0 0"/>
         <body name="{side}2" pos=".3 0 0"><joint name="{side}2" axis="0 0 1" range="-2.6 2.6"/>
          <geom name="{side}2" type="capsule" size=".03" fromto=".04 0 0 .26 0 0"/>
          <body pos=".27 0 0"><joint name="{side}3" axis="0 0 1" range="-2.6 2.6"/>
           <inertial pos="0 0 0" mass=".1" diaginertia="1e-4 1e-4 1e-4"/>
           <site name="{side}" pos=".03 0 0"/></body></body></body></body>"""
        for side, y in (("left", 0.4), ("right", -0.4))
    )
    coupled = "".join(f'<joint joint1="{side}3" joint2="{side}2"/>' for side in ("left", "right"))
    text = f"""<mujoco><compiler angle="radian"/><worldbody><body name="trunk">
        <joint name="trunk" axis="0 0 1" range="-1 1"/><geom name="trunk" type="sphere" size=".05"/>{arms}
        </body></worldbody><equality>{coupled}</equality></mujoco>"""
    return jaxik.load_robot(text, geometry="model")


def balls() -> jaxik.World:
    places = [(0.25, 0.75), (0.45, 0.3), (0.25, -0.75), (0.45, -0.3), (0.5, 0.0)]
    return jaxik.World(spheres=jaxik.Spheres([(x, y, 0.1) for x, y in places], [0.07] * len(places)))


def problem(q: jax.Array) -> jaxik.Problem:
    """Both tips at once, at where a free configuration (*batch, nq) has them."""
    robot = pair()
    tasks = {
        side: jaxik.FrameTask(robot.frame(side), robot.frame_pose(q, side), orientation_cost=None)
        for side in ("left", "right")
    }
    limits = jaxik.ConfigurationLimit(), jaxik.CollisionLimit(balls())
    return jaxik.Problem(robot, tasks, limits=limits)


def test_branches_are_what_hangs_together_without_what_all_tasks_read() -> None:
    found = []

    def look(q: jax.Array) -> None:
        given = problem(q)
        left = jaxik.Problem(pair(), {"left": given.tasks["left"]})
        found.extend(branches(formulation(each)) for each in (dataclasses.replace(given, limits=None), left))

    jax.eval_shape(look, pair().q_home)  # operation by operation it takes seconds
    assert found == [[frozenset({1, 2, 3, 4}), frozenset({5, 6, 7, 8})], []]


def test_both_arms_are_free_and_an_element_is_the_same_alone_and_in_a_batch() -> None:
    q = pair().sample(jax.random.key(1), (400,))
    q = q[np.asarray(pair().clearance(q, balls())) > 0.01][:40]
    keys = jax.random.split(jax.random.key(0), 40)
    search = jax.jit(lambda q, keys: jaxik.search(problem(q), keys))
    found = search(q, keys)
    assert found.converged.all() and (found.clearance >= 0.005).all()
    np.testing.assert_allclose(found.clearance, pair().clearance(found.q, balls()), atol=1e-6)
    assert np.max(found.num_starts) > 1  # some are drawn anew
    # In other lanes, beside other elements.
    order = np.argsort(np.asarray(found.num_starts))
    np.testing.assert_array_equal(search(q[order], keys[order]).q, found.q[order])


def test_of_arms_too_near_each_other_alone_the_first_or_the_last_is_drawn_anew() -> None:
    # By what moves the pair: left and world, right and world, both arms, neither.
    signs = np.array([[1, 0], [0, 1], [-1, 1], [0, 0]])
    alone, ends = _movers(signs, [frozenset({0}), frozenset({1})])
    np.testing.assert_array_equal(alone, [[True, False, False, False], [False, True, False, False]])
    np.testing.assert_array_equal(ends[:, :, 2], [[True, False], [False, True]])
    assert not ends[:, :, [0, 1, 3]].any()
