"""What moves in `solve` and what does not: couplings hold exactly, masks freeze, and what matters to no task rests."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import FrameTask, JaxikError, Problem, solve
from jaxik.kinematics.reduced import apply_couplings_clipped, coordinates, slopes, tighten_leader_limits
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.solve import _solve

# `b` follows `a`, `d` follows `b` by a bent polynomial, `e` follows `c` and carries nothing that is looked at; `z`
# stands beside. The leader `a` has more room than its followers leave it.
ARM = """
<mujoco><compiler angle="radian" autolimits="true"/>
<worldbody>
  <body><joint name="a" axis="0 0 1" range="-2 2"/><geom size=".01"/>
    <body pos=".3 0 0"><joint name="b" axis="0 0 1" range="-1 1"/><geom size=".01"/>
      <body pos=".3 0 0"><joint name="c" axis="0 1 0" range="-2 2"/><geom size=".01"/>
        <body pos=".2 0 0"><joint name="d" axis="1 0 0" range="-.6 .9" ref=".1"/><geom size=".01"/><site name="tip"
          pos=".2 .1 0"/> <body pos=".1 0 0"><joint name="e" axis="0 0 1" range="-1.5 3"/><geom size=".01"/></body>
        </body></body></body></body>
  <body pos="0 0 1"><joint name="z" axis="0 0 1"/><geom size=".01"/></body>
</worldbody>
<equality>
  <joint joint1="d" joint2="b" polycoef="0 -0.5 0.2 0 0"/>
  <joint joint1="b" joint2="a" polycoef="0.05 0.7 0 0 0"/>
  <joint joint1="e" joint2="c" polycoef="0 1 0 0 0"/>
</equality></mujoco>"""
COUNT = 96


@cache
def arm() -> Robot:
    return jaxik.load_robot(ARM)


def followed(q: Any) -> np.ndarray:
    """Where the couplings have their followers: written out, in the order of the joints."""
    q = np.array(q)
    q[..., 1] = 0.05 + 0.7 * q[..., 0]
    q[..., 3] = 0.1 - 0.5 * q[..., 1] + 0.2 * q[..., 1] ** 2
    q[..., 4] = q[..., 2]
    return q


@jax.jit
def tightened(robot: Robot) -> Robot:
    """With limits of leaders that keep those of their followers."""
    return tighten_leader_limits(robot, coordinates(robot.topology, range(6), hold_couplings=True))


@jax.jit
def clipped(q: jax.Array) -> jax.Array:
    """Configurations (n, 6) whose followers are where their leaders, within what all limits leave these, have them."""
    moving = coordinates(arm().topology, range(6), hold_couplings=True)
    return jax.vmap(lambda q: apply_couplings_clipped(tightened(arm()), moving, q))(q)


@cache
def problem() -> tuple[Problem, jax.Array]:
    """Reachable targets, and starts anywhere; with a mask that holds nothing."""
    robot = arm()
    q = clipped(tightened(robot).sample(jax.random.key(0), (COUNT,)))
    task = FrameTask(robot.frame("tip"), robot.frame_pose(q, "tip"))
    mask = np.ones((COUNT, robot.nv), bool)
    return Problem(robot, {"tip": task}, dof_mask=mask), robot.sample(jax.random.key(1), (COUNT,))


def test_coordinates_are_of_leaders_and_of_what_is_used() -> None:
    topology = arm().topology
    table = {
        ((0,), True): (0,),
        ((3,), True): (0,),
        ((4, 5), True): (2, 5),
        ((0, 1, 3), False): (0, 1, 3),
        ((), True): (0,),  # held
    }
    for (used, hold), own in table.items():
        assert coordinates(topology, used, hold_couplings=hold).own == own


def test_followers_and_their_slopes_are_those_of_the_polynomials() -> None:
    robot = arm()
    moving = coordinates(robot.topology, range(6), hold_couplings=True)
    q = tightened(robot).sample(jax.random.key(3), (COUNT,))
    np.testing.assert_allclose(clipped(q), followed(q), rtol=0, atol=1e-15)
    q = jnp.asarray(followed(q))
    found = np.asarray(jax.jit(jax.vmap(lambda q: slopes(robot, moving, q)))(q))[:, np.argsort(moving.couplings)]
    step = 1e-6
    for leader, columns in ((0, {1: 1, 0: 3}), (2, {2: 4})):
        ahead = followed(q + step * np.eye(6)[leader])
        behind = followed(q - step * np.eye(6)[leader])
        for coupling, joint in columns.items():
            true = (ahead - behind)[:, joint] / (2 * step)
            np.testing.assert_allclose(found[:, coupling], true, rtol=0, atol=1e-9)


def test_leaders_keep_the_limits_of_their_followers() -> None:
    robot = arm()
    kept = tightened(robot)
    for side in ("limit_lower", "limit_upper"):
        edge = followed(robot.configuration({n: getattr(kept, side)[i] for i, n in enumerate(robot.joint_names)}))
        assert (edge >= robot.limit_lower - 1e-15).all()
        assert (edge <= robot.limit_upper + 1e-15).all()
        beyond = followed(edge + 1e-6 * np.sign(edge))
        outside = (beyond < np.asarray(robot.limit_lower)) | (beyond > np.asarray(robot.limit_upper))
        assert outside[[0, 1, 3]].any()
        assert outside[[2, 4]].any()
    unlimited = jaxik.load_robot(ARM.replace('range="-2 2"', "").replace('range="-1 1"', ""))
    kept = tightened(unlimited)
    assert np.isfinite(kept.limit_upper).tolist() == [True, False, True, True, True, False]


def test_mujoco_finds_no_violation_of_the_couplings_in_a_solution() -> None:
    model = mujoco.MjModel.from_xml_string(ARM)
    data = mujoco.MjData(model)
    given, q0 = problem()
    solution = solve(given, q0)
    assert np.mean(solution.converged) > 0.6
    for q in np.asarray(solution.q):
        data.qpos[:] = q
        mujoco.mj_fwdPosition(model, data)
        assert np.abs(data.efc_pos[: data.ne]).max() < 1e-15
    assert np.all(arm().check_limits(solution.q))


def test_what_is_masked_and_what_matters_to_no_task_stays_where_it_was() -> None:
    given, q0 = problem()
    start = np.asarray(followed(np.clip(q0, *map(np.asarray, _limits()))))
    masks = {"c": [2, 4], "e": [2, 4], "b": [0, 1, 3], "a": [0, 1, 3], "z": []}
    names = arm().joint_names
    rows = np.arange(COUNT) % len(masks)
    mask = np.ones((COUNT, 6), bool)
    for row, name in enumerate(masks):
        mask[rows == row, names.index(name)] = False
    q = np.asarray(solve(dataclasses.replace(given, dof_mask=mask), q0).q)
    for row, (name, still) in enumerate(masks.items()):
        moved = np.abs(q - start)[rows == row]
        assert moved[:, [*still, 5]].max() < 1e-15, name
        others = [j for j in range(5) if j not in still]
        assert (moved[:, others].max(0) > 0.1).all(), name


def _limits() -> tuple[Any, Any]:
    kept = tightened(arm())
    return kept.limit_lower, kept.limit_upper


def test_without_constraints_followers_are_joints_like_others() -> None:
    given, q0 = problem()
    q = np.asarray(solve(dataclasses.replace(given, constraints={}), q0).q)
    assert np.abs(q - followed(q))[:, [1, 3]].max() > 0.1
    np.testing.assert_array_equal(q[:, 4:], np.clip(q0, arm().limit_lower, arm().limit_upper)[:, 4:])


def test_masks_do_not_recompile() -> None:
    given, q0 = problem()
    solve(given, q0)
    programs = _solve._cache_size()
    none_moves = solve(dataclasses.replace(given, dof_mask=jnp.zeros((COUNT, 6), bool)), q0)
    assert _solve._cache_size() == programs
    np.testing.assert_allclose(none_moves.q, followed(np.clip(q0, *map(np.asarray, _limits()))), rtol=0, atol=1e-15)


def test_a_coupling_that_leaves_the_limits_and_comes_back_keeps_its_leader_before() -> None:
    robot = jaxik.load_robot(
        ARM.replace("-2 2", "-3 3").replace("-1 1", "-.5 .5").replace("0.05 0.7 0 0 0", "0 2 -1 0 0")
    )
    # 2 a - a^2 = 1/2 at a = 1 - sqrt(1/2), and again, on its way back, beyond.
    assert float(tightened(robot).limit_upper[0]) == pytest.approx(1 - np.sqrt(0.5), abs=1e-14)


def test_where_nothing_moves_the_answer_is_the_start() -> None:
    robot = jaxik.load_robot("panda")
    task = FrameTask.from_configuration(robot, robot.q_home, "link0")
    away = dataclasses.replace(task, target=robot.frame_pose(robot.q_home, "tcp"))
    for asked, status in ((task, jaxik.Status.CONVERGED), (away, jaxik.Status.STALLED)):
        solution = solve(Problem(robot, {"base": asked}))
        assert solution.status == status
        np.testing.assert_array_equal(solution.q, robot.q_home)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ('<joint joint1="b" joint2="c"/>', "joint 'b' of .* is driven by two couplings"),
        ('<joint joint1="a" joint2="d"/>', "drive each other in a circle"),
    ],
)
def test_couplings_that_cannot_hold_are_refused_with_the_way_out(extra: str, said: str) -> None:
    robot = jaxik.load_robot(ARM.replace("</equality>", f"{extra}</equality>"))
    given, q0 = problem()
    with pytest.raises(JaxikError, match=said) as refused:
        solve(Problem(robot, given.tasks), q0)
    assert "constraints={}" in str(refused.value)


def led(constant: float) -> jaxik.Robot:
    """Home has the follower outside its limits, as 0.1 + 0.5 * 0 is."""
    return jaxik.load_robot(f"""
        <mujoco><compiler angle="radian" autolimits="true"/><worldbody>
          <body><joint name="leader" range="-1 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
            <body pos="1 0 0"><joint name="follower" range="0.3 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
              <site name="tip" pos="1 0 0"/></body></body></worldbody>
        <equality><joint joint1="follower" joint2="leader" polycoef="{constant} 0.5 0 0 0"/></equality></mujoco>""")


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float32, np.float64], [np.float32]))
@exhaustive
def test_where_home_breaks_a_coupling_leaders_go_to_the_nearest_place_that_does_not(dtype: Any) -> None:
    robot = led(0.1)
    q = np.array([[0.8, 0.5], [0.4, 0.3]])
    goal = robot.frame_pose(q, robot.frame("tip")).translation()
    problem = Problem(robot, {"tip": FrameTask(robot.frame("tip"), goal, orientation_cost=None)})
    solution = jaxik.solve(problem, robot.q_home.astype(dtype))
    assert solution.q.dtype == dtype
    np.testing.assert_array_equal(solution.status, jaxik.Status.CONVERGED)
    np.testing.assert_allclose(solution.q, q, atol=2e-6 if dtype == np.float32 else 1e-9)
    assert jaxik.step(problem, robot.q_home.astype(dtype), 0.1).velocity.dtype == dtype


def test_a_coupling_that_no_place_of_its_leader_satisfies_is_infeasible() -> None:
    given, q0 = problem()
    found = solve(dataclasses.replace(given, robot=jaxik.load_robot(ARM.replace("0.05 0.7 0", "5 0.7 0"))), q0)
    np.testing.assert_array_equal(found.status, jaxik.Status.INFEASIBLE)


def test_couplings_are_solved_in_the_precision_of_the_start() -> None:
    given, q0 = problem()
    assert jax.eval_shape(lambda q: solve(given, q), q0.astype(np.float32)).q.dtype == np.float32
