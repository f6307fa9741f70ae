"""`track` with targets that jump, are out of reach, or are not finite: limits hold, and statuses are honest."""

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import mostly_exhaustive

import jaxik
from jaxik import AccelerationLimit, ConfigurationLimit, FrameTask, Problem, Status, VelocityLimit, track

ROBOTS = {"double_pendulum": "tcp", "panda": "tcp", "ur5e": "tcp", "iiwa14": "tcp", "gen3": "tcp"}
STEPS, BATCH, DT = 100, 32, 0.01


@pytest.mark.parametrize("name", mostly_exhaustive(ROBOTS, ("double_pendulum",)))
def test_targets_of_any_kind_pass_no_limit(name: str) -> None:
    robot, keys = jaxik.load_robot(name), jax.random.split(jax.random.key(0), 3)
    frame = robot.frame(ROBOTS[name])
    shape = STEPS, BATCH
    wanted = robot.frame_pose(robot.sample(keys[0], shape), frame).wxyz_xyz
    far = jax.random.uniform(keys[1], (*shape, 1)) < 0.3
    wanted = jnp.where(far & (jnp.arange(7) > 3), 3 * wanted, wanted)
    lost = jax.random.uniform(keys[2], shape) < 0.02
    wanted = jnp.where(lost[..., None], jnp.nan, wanted)
    tip = FrameTask(frame, jaxlie.SE3.identity())
    limits = (ConfigurationLimit(), VelocityLimit(2.0), AccelerationLimit(20.0))
    start = jnp.broadcast_to(robot.q_home, (BATCH, robot.nq))
    motion = track(Problem(robot, {"tip": tip}, limits), start, DT, {"tip": jaxlie.SE3(wanted)})
    assert np.isfinite(motion.q).all() and np.all(robot.check_limits(motion.q))
    assert np.array_equal(motion.status == Status.NONFINITE, lost)
    assert np.isin(motion.status, (Status.CONVERGED, Status.STALLED, Status.NONFINITE)).all()
    assert motion.peak_speed.max() <= 1 + 1e-9
    # A target that is not finite stops the robot at once, whatever that takes.
    braked = lost | np.roll(lost, 1, axis=0)
    assert np.where(braked, 0, motion.acceleration_share).max() <= 1 + 1e-6
