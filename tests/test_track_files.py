"""A `Track` at another rate, in files, and in words."""

import csv
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import AccelerationLimit, ConfigurationLimit, PostureTask, Problem, Track, VelocityLimit, track

DT, STEPS = 0.02, 50
SPEED, ACCELERATION = 1.0, 5.0


@cache
def moved() -> Track:
    """Two elements of a robot with every kind of joint, which go to random postures as fast as they may."""
    robot = jaxik.load_robot(own_tasks.MIXED)
    limits = (ConfigurationLimit(), VelocityLimit(SPEED), AccelerationLimit(ACCELERATION))
    posture = robot.sample(jax.random.key(4), (2,))
    return track(Problem(robot, {"rest": PostureTask(posture)}, limits), robot.q_home, DT, {}, num_steps=STEPS)


@pytest.mark.parametrize("dt", mostly_exhaustive([0.003, 0.02, 0.05], [0.05]))
@exhaustive
def test_another_rate_keeps_the_motion_and_its_limits(dt: float) -> None:
    found, robot = moved().resample(dt), jaxik.load_robot(own_tasks.MIXED)
    assert found.q.shape[0] == int(np.ceil((STEPS + 0.5) * DT / dt - 1e-9))
    assert float(found.dt) == dt and found.status.shape == found.q.shape[:2] and found.residuals == {}
    assert np.abs(found.velocity).max() <= np.abs(moved().velocity).max()
    assert np.abs(found.acceleration).max() <= np.abs(moved().acceleration).max() * (1 + 1e-9)
    assert np.all(found.peak_speed <= moved().peak_speed)
    assert np.all(np.abs(found.velocity).max(axis=-1) / SPEED <= found.speed_share + 1e-12)
    assert np.allclose(np.abs(found.acceleration).max(axis=-1) / ACCELERATION, found.acceleration_share)
    # At the times that both have, the spline is off by an eighth of what the change of velocity moves in a step.
    place = np.minimum(np.arange(1, len(found.q) + 1) * dt / DT - 0.5, STEPS)
    common = np.flatnonzero((np.abs(place - np.round(place)) < 1e-9) & (place > 0.5))
    off = robot.difference(moved().q[np.round(place[common]).astype(int) - 1], found.q[common])
    largest = np.abs(moved().acceleration).max(axis=(0, 1)) * DT**2 / 8
    assert np.all(np.abs(off).max(axis=(0, 1)) <= largest * 1.01 + 1e-12)
    # The same rate has the end alone in common.
    assert np.abs(off).max() > 1e-5 or dt == DT


def test_velocity_at_another_rate_is_the_derivative_of_the_configurations() -> None:
    found, robot = moved().resample(1e-4), jaxik.load_robot(own_tasks.MIXED)
    rate = robot.difference(found.q[:-1], found.q[1:]) / 1e-4
    middle = (found.velocity[:-1] + found.velocity[1:]) / 2
    assert np.abs(rate - middle).max() < 2e-3
    assert np.allclose(found.q[-1], moved().q[-1], atol=1e-12)


@pytest.mark.parametrize("velocity", [0.0, 0.2], ids=["from rest", "from motion"])
def test_a_higher_rate_starts_as_gently_as_it_goes_on(velocity: float) -> None:
    """By differences of the configurations, from the start on; one in motion has the velocity of the first step."""
    robot = jaxik.load_robot(own_tasks.PLANAR)
    limits = (ConfigurationLimit(), AccelerationLimit(ACCELERATION))
    problem = Problem(robot, {"rest": PostureTask(robot.q_home + 0.2)}, limits)
    motion = track(problem, robot.q_home, DT, {}, velocity=velocity * jnp.ones(2), num_steps=20)
    found = motion.resample(0.001)
    q = np.concatenate([np.tile(robot.q_home, (2, 1)) - [[0.001 * velocity], [0]], found.q])
    hard = np.abs(np.diff(q, 2, axis=0)).max(axis=1) / 0.001**2
    assert hard[2:].max() < ACCELERATION * (1 + 1e-6) and found.peak_acceleration == pytest.approx(1)
    if not velocity:
        assert 0.9 * ACCELERATION < hard.max() < ACCELERATION * (1 + 1e-6)
        np.testing.assert_allclose(found.velocity[0], motion.velocity[0] * 0.001 / DT)


@exhaustive
def test_another_rate_never_leaves_the_joint_limits() -> None:
    robot = jaxik.load_robot("panda")
    up = jnp.where(jnp.arange(7) % 2, robot.limit_lower, robot.limit_upper)
    found = track(Problem(robot, {"rest": PostureTask(up)}), robot.q_home, 0.1, {}, num_steps=20).resample(0.0013)
    assert np.all((found.q >= robot.limit_lower) & (found.q <= robot.limit_upper))
    assert np.any(found.q == robot.limit_upper)


def test_a_motion_at_another_rate_ends_where_it_did() -> None:
    found = moved().resample(0.3)
    assert np.allclose(found.time, [0.3, 0.6, 0.9, 1.2]), "the motion takes 1 s"
    np.testing.assert_allclose(found.q[-1], moved().q[-1], atol=1e-12)


def test_what_cannot_be_resampled_is_said() -> None:
    with pytest.raises(jaxik.JaxikError, match="longer than the whole motion of 1 s"):
        moved().resample(2.0)
    with pytest.raises(jaxik.JaxikError, match="dt is above zero"):
        moved().resample(-1.0)
    with pytest.raises(jaxik.JaxikError, match="longer than the whole motion of 0 s"):
        jax.tree.map(lambda x: x[:0] if jnp.ndim(x) > 1 else x, moved()).resample(0.1)


def test_it_comes_back_from_a_file_as_it_was(tmp_path: Path) -> None:
    jaxik.save(tmp_path / "motion", moved())
    found: Any = jaxik.load(tmp_path / "motion.npz")
    assert isinstance(found, Track) and repr(found) == repr(moved())
    for name in ("q", "velocity", "acceleration", "status", "dt", "speed_share", "acceleration_share"):
        assert np.array_equal(getattr(found, name), getattr(moved(), name)), name
    assert np.array_equal(found.residuals["rest"], moved().residuals["rest"])
    assert found.residual_units == moved().residual_units
    with np.load(tmp_path / "motion.npz") as arrays:
        assert np.allclose(arrays["time"], DT * np.arange(1, STEPS + 1))


def test_a_file_whose_arrays_do_not_fit_is_refused(tmp_path: Path) -> None:
    jaxik.save(tmp_path / "motion.npz", moved())
    with np.load(tmp_path / "motion.npz") as found:
        arrays = dict(found) | {"velocity": found["velocity"][:, :, :-1]}
    np.savez(tmp_path / "cut.npz", **arrays)
    with pytest.raises(jaxik.LoadError, match="'velocity' has shape"):
        jaxik.load(tmp_path / "cut.npz")


def test_csv_has_a_line_a_step_with_names_and_units(tmp_path: Path) -> None:
    moved().to_csv(tmp_path / "motion.csv", element=1)
    with (tmp_path / "motion.csv").open() as file:
        head, *rows = csv.reader(file)
    assert len(rows) == STEPS and head[0] == "time [s]" and head[-1] == "status"
    topology = moved().topology
    assert len(head) == 2 + topology.nq + 2 * topology.nv
    for joint in topology.joints:
        name = joint.name if joint.type.nv == 1 else f"{joint.name}.0"
        assert any(h.startswith(f"{name} velocity [") for h in head), name
    numbers = np.array([row[:-1] for row in rows], float)
    assert np.array_equal(numbers[:, 1 : 1 + topology.nq], moved().q[:, 1])
    assert np.array_equal(numbers[:, 1 + topology.nq : 1 + topology.nq + topology.nv], moved().velocity[:, 1])
    assert np.allclose(numbers[:, 0], moved().time) and {row[-1] for row in rows} <= {"CONVERGED", "STALLED"}


def test_csv_has_the_digits_of_the_precision(tmp_path: Path) -> None:
    single = jax.tree.map(lambda x: np.asarray(x, np.float32) if np.asarray(x).dtype == float else x, moved())
    single.to_csv(tmp_path / "motion.csv", element=1)
    with (tmp_path / "motion.csv").open() as file:
        _, *rows = csv.reader(file)
    assert rows[0][0] == "0.02"
    assert np.array_equal(np.array([row[1 : 1 + single.topology.nq] for row in rows], np.float32), single.q[:, 1])


@pytest.mark.parametrize(("element", "said"), [((), "say which"), (5, "index into the batch"), ("a", "index")])
def test_csv_of_no_single_element_is_refused(element: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(jaxik.JaxikError, match=said):
        moved().to_csv(tmp_path / "motion.csv", element)
    with pytest.raises(jaxik.JaxikError, match="No such file"):
        moved().to_csv(tmp_path / "nowhere" / "motion.csv", 0)


def test_its_text_says_how_it_went() -> None:
    said = repr(moved())
    assert "50 steps of 0.02 s, batch (2,)" in said and "peaks: speed 1, acceleration 1.0" in said
    assert "residuals (median, 90 %, max, at the end): rest" in said


@exhaustive
def test_poses_and_points_between_waypoints_are_targets() -> None:
    robot = jaxik.load_robot("panda")
    home = robot.frame_pose(robot.q_home, "tcp")
    waypoints = jaxlie.SE3(jnp.stack([home.wxyz_xyz, home.wxyz_xyz + jnp.array([0, 0, 0, 0, 0.1, 0.1, 0])]))
    targets = jaxik.interpolate(waypoints, [0.0, 1.0], 0.02 * jnp.arange(1, 51))
    tip = jaxik.FrameTask(robot.frame("tcp"), home)
    found = track(Problem(robot, {"tip": tip}), robot.q_home, 0.02, {"tip": targets})
    assert np.linalg.norm(found.residuals["tip"]["position"], axis=-1).max() < 1e-4
    assert np.abs(found.velocity[-1]).max() < 0.03


def test_a_plot_is_drawn_of_one_motion(tmp_path: Path) -> None:
    robot = jaxik.load_robot(own_tasks.MIXED)
    figure = jaxik.plot_track(moved(), robot, tmp_path / "motion.png", element=1)
    assert (tmp_path / "motion.png").stat().st_size > 10_000
    joints, speeds, shares, errors = figure.axes
    assert len(speeds.lines) == robot.nv and len(errors.lines) == 1
    assert np.array_equal(shares.lines[0].get_ydata(), moved().speed_share[:, 1])
    limited = [j for j in robot.topology.scalar_joints if np.isfinite(robot.limit_upper[j] - robot.limit_lower[j])]
    assert len(joints.lines) == len(limited)
    for wrong, said in (((), "say which"), (7, "index into the batch")):
        with pytest.raises(jaxik.JaxikError, match=said):
            jaxik.plot_track(moved(), robot, element=wrong)
    with pytest.raises(jaxik.JaxikError, match="the robot is panda"):
        jaxik.plot_track(moved(), jaxik.load_robot("panda"), element=0)
    with pytest.raises(jaxik.JaxikError, match="no steps"):
        jaxik.plot_track(jax.tree.map(lambda x: x[:0] if jnp.ndim(x) > 1 else x, moved()), robot, element=0)
