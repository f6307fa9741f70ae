"""What `track` does with targets over time: it follows them, keeps limits, and is the loop of steps that it says."""

import dataclasses
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    FrameTask,
    JointVelocityTask,
    ManipulabilityTask,
    PostureTask,
    Problem,
    Status,
    Track,
    TrackOptions,
    VelocityLimit,
    step,
    track,
    track_start,
    track_step,
)
from jaxik.robot.robot import Robot
from jaxik.solvers.tracking.targets import values_of

DT, STEPS, BATCH = 0.01, 60, 3
MAX_SPEED, MAX_ACCELERATION = 1.5, 12.0


@cache
def panda() -> Robot:
    return jaxik.load_robot("panda")


@cache
def home() -> jaxlie.SE3:
    return panda().frame_pose(panda().q_home, "tcp")


@partial(jax.jit, static_argnames="steps")
def path(speed: Any = 0.2, turning: float = 0.6, steps: int = STEPS) -> jaxlie.SE3:
    """Poses (T, *batch) that leave home at a speed [m/s], and turn about the vertical [rad/s]."""
    speed = jnp.asarray(speed)
    t = DT * jnp.arange(1, steps + 1).reshape(-1, *(1,) * speed.ndim) + 0 * speed
    zero = 0 * t
    shift = jaxlie.SE3.from_translation(jnp.stack([zero, speed * t, 0.5 * speed * t], -1))
    turn = jaxlie.SE3.from_rotation(jaxlie.SO3.from_z_radians(turning * t))
    return shift @ jaxlie.SE3(jnp.broadcast_to(home().wxyz_xyz, (*t.shape, 7))) @ turn


def problem(gain: Any = 1.0, fast: float = 10.0, hard: float = 1e6, rest: float = 1e-3) -> Problem:
    tasks = {
        "tip": FrameTask(panda().frame("tcp"), home(), gain=gain),
        "rest": PostureTask(panda().q_home, rest),
    }
    limits = (ConfigurationLimit(), VelocityLimit(fast), AccelerationLimit(hard))
    return Problem(panda(), tasks, limits)


def followed(speed: Any = (0.1, 0.2, 0.3), options: TrackOptions | None = None, **about: Any) -> Track:
    """A batch of three: one program for most tests."""
    return track(problem(**about), panda().q_home, DT, {"tip": path(jnp.asarray(speed))}, options=options)


def lag(found: Track) -> np.ndarray:
    """Distances [m] from the target at the end, in units of what the target goes in a step of the fastest element."""
    error = np.linalg.norm(found.residuals["tip"]["position"][-1], axis=-1)
    return error / (DT * np.array([0.1, 0.2, 0.3]) * np.sqrt(1.25))


@pytest.mark.parametrize("gain", [1.0, 0.5, 0.1])
def test_a_moving_target_is_followed_without_lag_whatever_the_gain(gain: float) -> None:
    # What a step leaves is of second order in it, and shrinks by the gain.
    assert lag(followed(gain=gain)).max() < 0.01 / gain
    filtered = lag(followed(gain=gain, options=TrackOptions(feed_forward=0.0)))
    # A first-order filter is (1 - gain) / gain steps behind, less what is not there yet.
    behind = (1 - gain) / gain * (1 - (1 - gain) ** STEPS)
    assert np.allclose(filtered, behind, rtol=0.02, atol=0.03)


@pytest.mark.parametrize("turning", [0.0, 2.0])
def test_a_target_that_turns_while_it_moves_is_followed_without_lag(turning: float) -> None:
    found = track(problem(gain=0.2), panda().q_home, DT, {"tip": path(jnp.full(3, 0.2), turning)})
    # Without feed-forward it would be four steps behind.
    assert np.linalg.norm(found.residuals["tip"]["position"][-1], axis=-1).max() < 0.1 * 0.2 * DT
    assert np.linalg.norm(found.residuals["tip"]["orientation"][-1], axis=-1).max() < 0.1 * 2 * DT


def test_an_error_shrinks_by_the_gain_while_the_target_moves() -> None:
    off = jaxlie.SE3.from_translation(jnp.array([0.01, 0.0, 0.0]))
    found = track(problem(gain=0.1), panda().q_home, DT, {"tip": off @ path(jnp.full(3, 0.05), 0.0)})
    error = np.linalg.norm(found.residuals["tip"]["position"][:, 0], axis=-1)
    assert np.allclose(error[1:40] / error[:39], 0.9, atol=0.005)


def test_it_is_the_loop_of_steps() -> None:
    found, targets = followed(fast=MAX_SPEED, hard=MAX_ACCELERATION), path(jnp.array([0.1, 0.2, 0.3]))
    q, velocity, asked = (
        jnp.broadcast_to(panda().q_home, (3, 7)),
        jnp.zeros((3, 7)),
        problem(1.0, MAX_SPEED, MAX_ACCELERATION),
    )
    for k in range(STEPS):
        at = Problem(
            panda(),
            asked.tasks | {"tip": FrameTask(panda().frame("tcp"), jaxlie.SE3(targets.wxyz_xyz[k]))},
            asked.limits,
        )
        result = step(at, q, DT, previous_velocity=velocity)
        q, velocity = result.q, result.velocity
        assert np.allclose(found.q[k], q, atol=1e-9)
        assert np.allclose(found.velocity[k], velocity, atol=1e-7)
        assert np.all(found.status[k] == result.status)


@cache
def stepped_along() -> tuple[Any, Any]:
    """The same motion by `track` and by `track_step`."""
    targets, asked = path(jnp.array([0.1, 0.2, 0.3])), problem(0.3, MAX_SPEED, MAX_ACCELERATION)
    state = track_start(asked, panda().q_home, {"tip": jaxlie.SE3(targets.wxyz_xyz[0])})
    states = []
    for k in range(STEPS):
        state = track_step(asked, state, DT, {"tip": jaxlie.SE3(targets.wxyz_xyz[k])})
        states.append(state)
    whole = followed(gain=0.3, fast=MAX_SPEED, hard=MAX_ACCELERATION)
    return whole, jax.tree.map(lambda *xs: np.stack(xs), *states)


def test_one_step_at_a_time_is_the_same_motion() -> None:
    whole, states = stepped_along()
    for name in ("q", "velocity", "acceleration", "status", "derivative_status", "speed_share", "acceleration_share"):
        assert np.allclose(getattr(whole, name), getattr(states, name), atol=1e-9), name
    assert np.allclose(whole.residuals["tip"]["position"], states.residuals["tip"]["position"], atol=1e-10)


def test_the_state_before_the_first_step_is_where_it_starts() -> None:
    state = track_start(problem(), panda().q_home, {"tip": home()})
    assert np.allclose(state.q, panda().q_home) and not np.any(state.velocity)
    assert np.allclose(state.residuals["tip"]["position"], 0, atol=1e-12)
    assert state.status == Status.CONVERGED


def test_a_function_of_time_gives_the_same_motion_and_is_traced_once() -> None:
    calls = []

    def targets(t: jax.Array, q: jax.Array, v: jax.Array) -> dict[str, Any]:
        calls.append((q.shape, v.shape, t.shape))
        shift = jnp.stack([0 * t, 0.2 * t, 0.1 * t])
        turn = jaxlie.SE3.from_rotation(jaxlie.SO3.from_z_radians(0.6 * t))
        return {"tip": jaxlie.SE3.from_translation(shift) @ home() @ turn}

    start = jnp.broadcast_to(panda().q_home, (3, 7))
    found = track(problem(), start, DT, targets, num_steps=STEPS)
    again = track(problem(), start + 0.01, DT, targets, num_steps=STEPS)
    assert calls == [((3, 7), (3, 7), ())]
    assert np.allclose(found.q, followed((0.2, 0.2, 0.2)).q, atol=1e-9)
    assert np.abs(again.q[0] - found.q[0]).max() > 1e-4


@exhaustive
def test_a_function_may_follow_the_robot_itself() -> None:
    ahead = lambda t, q, v: {"rest": q + 0.01}  # noqa: E731
    found = track(Problem(panda(), {"rest": PostureTask(panda().q_home)}), panda().q_home, DT, ahead, num_steps=3)
    assert np.allclose(np.diff(found.q, axis=0), 0.01, atol=1e-6)


def test_new_numbers_recompile_nothing() -> None:
    from jaxik.solvers.tracking.track import _tracked

    followed()
    before = _tracked._cache_size()  # type: ignore[attr-defined]
    followed((0.3, 0.2, 0.1), TrackOptions(damping=1e-3, feed_forward=0.5), gain=0.7, fast=2.0, hard=9.0, rest=0.1)
    track(problem(), panda().q_home + 0.1, 0.02, {"tip": path(jnp.full(3, 0.3))}, velocity=np.full(7, 0.1))
    assert _tracked._cache_size() == before  # type: ignore[attr-defined]


def test_limits_hold_at_every_step_and_peaks_say_how_near() -> None:
    far = jaxlie.SE3.from_translation(jnp.array([0.0, 0.8, 0.0])) @ home()
    targets = jaxlie.SE3(jnp.broadcast_to(far.wxyz_xyz, (STEPS, 3, 7)))
    found = track(problem(1.0, MAX_SPEED, MAX_ACCELERATION), panda().q_home, DT, {"tip": targets})
    velocity, acceleration = np.asarray(found.velocity), np.asarray(found.acceleration)
    assert np.abs(velocity).max() <= MAX_SPEED * (1 + 1e-12)
    assert np.allclose(found.peak_speed, np.abs(velocity).max(axis=(0, 2)) / MAX_SPEED)
    assert np.allclose(found.peak_acceleration, np.abs(acceleration).max(axis=(0, 2)) / MAX_ACCELERATION)
    assert np.allclose(acceleration, np.diff(velocity, axis=0, prepend=0 * velocity[:1]) / DT)
    assert np.all(panda().check_limits(found.q))
    assert 0.99 < found.peak_speed[0] <= 1 + 1e-9


def test_start_velocity_is_what_the_first_step_goes_on_from() -> None:
    still = track(problem(), panda().q_home, DT, {"tip": path(jnp.zeros(3), 0.0)})
    moving = track(problem(hard=1.0), panda().q_home, DT, {"tip": path(jnp.zeros(3), 0.0)}, velocity=np.full(7, 0.5))
    assert np.abs(still.velocity[0]).max() < 1e-3
    assert np.allclose(moving.velocity[0], 0.5, atol=DT * 1.0 + 1e-9)


def test_an_arm_that_is_stuck_at_its_limit_is_stalled_and_check_says_so() -> None:
    pendulum = jaxik.load_robot(PENDULUM)
    up = jaxlie.SE3.from_translation(jnp.array([0.0, 0.0, 1.0]))
    task = FrameTask(pendulum.frame("tip"), up, orientation_cost=None)
    found = track(Problem(pendulum, {"tip": task}), jnp.full(1, 0.1), DT, {}, num_steps=30)
    assert found.q[-1, 0] == pendulum.limit_upper[0]
    assert found.status[-1] == Status.STALLED
    assert found.status[0] == Status.CONVERGED  # on its way
    with pytest.raises(jaxik.JaxikError, match="STALLED"):
        found.check()


PENDULUM = """
<mujoco><compiler angle="radian"/><worldbody><body><joint name="swing" axis="0 -1 0" range="-1 1"/>
<inertial pos="0 0 -.5" mass="1" diaginertia="1 1 1"/><site name="tip" pos="0 0 -1"/></body></worldbody></mujoco>
"""


def test_a_joint_that_turns_round_is_not_stuck_and_starts_that_are_nan_are_nonfinite_to_the_end() -> None:
    pendulum = jaxik.load_robot(PENDULUM)
    limits = ConfigurationLimit(), AccelerationLimit(10.0)
    asked = Problem(pendulum, {"rest": PostureTask(jnp.zeros(1), tolerance=1e-3)}, limits)
    goals = jnp.where(jnp.arange(40)[:, None] < 10, 0.9, -0.9)
    found = track(asked, jnp.array([[0.0], [jnp.nan]]), DT, {"rest": goals})
    assert (np.abs(found.velocity[:, 0]) < 1e-9).any() and (found.status[:, 0] == Status.CONVERGED).all()
    assert (found.status[:, 1] == Status.NONFINITE).all() and np.isfinite(found.q).all()


def test_a_state_has_the_types_of_the_one_after_it() -> None:
    state = track_start(problem(), panda().q_home, {"tip": home()})
    after = jax.eval_shape(lambda state: track_step(problem(), state, DT, {"tip": home()}), state)
    types = (jax.tree.map(lambda x: (x.dtype, x.weak_type), jax.tree.leaves(x)) for x in (state, after))
    assert next(types) == next(types)


def test_an_element_whose_target_is_nan_stands_still_and_its_neighbours_do_not() -> None:
    targets = np.array(path(jnp.full(3, 0.2)).wxyz_xyz)
    targets[20, 1] = np.nan
    found = track(problem(gain=0.5), panda().q_home, DT, {"tip": jaxlie.SE3(jnp.asarray(targets))})
    bad = np.asarray(found.status) == Status.NONFINITE
    assert np.argwhere(bad).tolist() == [[20, 1]]
    assert not np.any(found.velocity[20, 1]) and np.all(np.isfinite(found.q))
    assert "1 NONFINITE" in repr(found) and "of their limits, in 1 abrupt stop;" in repr(found)
    assert np.linalg.norm(found.residuals["tip"]["position"][-1], axis=-1).max() < 0.2 * DT


def test_a_track_that_overlaps_says_what_to_do_about_a_motion() -> None:
    found = dataclasses.replace(followed(), status=jnp.full(followed().status.shape, Status.COLLIDES))
    looks = r"COLLIDES.*See robot.distances\(track.q, world\), robot.in_collision\(.*\), and start from"
    with pytest.raises(jaxik.JaxikError, match=looks):
        found.check()


def test_any_field_of_a_task_may_change_and_so_may_velocity_tasks() -> None:
    slow = jnp.linspace(0, 1, 7)[:, None] * jnp.ones(7)
    tasks: dict[str, Any] = {"drive": JointVelocityTask(jnp.zeros(7)), "rest": PostureTask(panda().q_home, 0.0)}
    asked = Problem(panda(), tasks, limits=())
    found = track(asked, panda().q_home, DT, {"drive": {"velocity": slow}, "rest": {"cost": jnp.zeros((7, 1))}})
    assert np.allclose(found.velocity, slow, atol=1e-4)
    # One number a step is the cost of all rows, also where there are as many steps as rows.
    costs = jnp.linspace(0, 0.1, 7)
    one, all_rows = (
        track(asked, panda().q_home + 0.1, DT, {"drive": {"velocity": slow}, "rest": {"cost": given}}).q
        for given in (costs, costs[:, None])
    )
    assert np.array_equal(one, all_rows)
    single = Problem(panda(), {"room": ManipulabilityTask(panda().frame("tcp"), 0.1)})
    assert values_of(single, {"room": {"cost": costs}})["room"]["cost"].shape == (7,)


def test_quaternions_are_followed_on_their_manifold() -> None:
    robot = jaxik.load_robot(BALL)
    t = jnp.arange(1, STEPS + 1) * DT
    q = jax.vmap(lambda t: jaxlie.SO3.exp(t * jnp.array([1.0, 0.5, -0.8])).wxyz)(t)
    asked = Problem(robot, {"rest": PostureTask(robot.q_home, gain=0.1)}, limits=())
    found = track(asked, robot.q_home, DT, {"rest": q})
    assert np.linalg.norm(found.residuals["rest"][-1]) < 1e-2 * DT
    assert np.allclose(np.linalg.norm(found.q, axis=-1), 1)


BALL = """
<mujoco><worldbody><body><joint name="ball" type="ball"/>
<inertial pos="0 0 -.5" mass="1" diaginertia="1 1 1"/><site name="tip" pos="0 0 -1"/></body></worldbody></mujoco>
"""


def test_no_steps_are_no_motion() -> None:
    found = track(problem(), panda().q_home, DT, {"tip": path(jnp.full(3, 0.2), steps=0)})
    assert found.q.shape == (0, 3, 7) and found.peak_speed.shape == (3,)
    assert "0 steps" in repr(found)


@pytest.mark.parametrize(
    ("targets", "options", "said"),
    [
        ({"tipp": 1}, {}, "unknown task 'tipp'; did you mean 'tip'"),
        ({"tip": {"target": 1, "costs": 2}}, {}, "unknown field of FrameTask that may change over time 'costs'"),
        ({"tip": jnp.zeros((5, 3))}, {}, r"targets\['tip'\]: target is a jaxlie.SE3"),
        ({"tip": jaxlie.SE3.identity()}, {}, r"tip.target has shape \(7,\): its first axis is to be time"),
        ({"tip": jaxlie.SE3.identity((5,)), "rest": jnp.zeros((4, 7))}, {}, "of one length for all, not"),
        ({"rest": jnp.zeros((4, 6))}, {}, "nq = 7"),
        ({"tip": jaxlie.SE3.identity((5, 2)), "rest": jnp.zeros((5, 3, 7))}, {}, "do not broadcast"),
        ({}, {}, "no target changes over time: say how long to go on with num_steps"),
        (lambda t, q, v: {}, {}, "targets are a function: say how long"),
        (lambda t, q, v: {"tip": t}, {"num_steps": 2}, r"targets\['tip'\]: target is a jaxlie.SE3"),
        (lambda t, q, v: {"tip": jaxlie.SE3.identity((2,))}, {"num_steps": 2}, "broadcast q0"),
        ({"tip": jaxlie.SE3.identity((5,))}, {"num_steps": 4}, "the targets have 5 steps, num_steps is 4"),
        ([], {}, "targets is a dict from task name"),
        ({}, {"num_steps": -1}, "num_steps is a number of steps"),
        ({}, {"num_steps": 3, "velocity": jnp.zeros(6)}, r"velocity has shape \(\*batch, 7\)"),
        ({}, {"num_steps": 3, "options": {}}, "options is a jaxik.TrackOptions"),
    ],
)
def test_a_mistake_is_told_in_one_line(targets: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=said) as raised:
        track(problem(), panda().q_home, DT, targets, **options)
    assert "\n" not in str(raised.value)


def test_mistakes_of_single_steps_and_options_are_told() -> None:
    state = track_start(problem(), panda().q_home, {"tip": home()})
    with pytest.raises(jaxik.JaxikError, match="set at the start, tip.target; not nothing"):
        track_step(problem(), state, DT)
    with pytest.raises(jaxik.JaxikError, match="batch axes"):
        track_step(problem(), state, np.full(4, DT), {"tip": home()})
    with pytest.raises(jaxik.JaxikError, match="what track_start or track_step returned"):
        track_step(problem(), panda().q_home, DT)  # type: ignore[arg-type]
    with pytest.raises(jaxik.JaxikError, match="feed_forward is in"):
        TrackOptions(feed_forward=1.5)
    with pytest.raises(jaxik.JaxikError, match="qp_options"):
        TrackOptions(qp_options=3)  # type: ignore[arg-type]
    with pytest.raises(jaxik.JaxikError, match="name what changes"):
        drive = Problem(panda(), {"drive": JointVelocityTask(jnp.zeros(7))})
        track(drive, panda().q_home, DT, {"drive": jnp.zeros((3, 7))})
