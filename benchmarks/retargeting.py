"""Motion retargeting: recordings of a made-up person as motions of a humanoid, beside mink's loop.

The person has longer legs, bends its knees and moves both arms, at a pace of each recording. mink takes steps for one
pose after the other, as GMR does: until the error shrinks by less than 1e-3, at most 10, with its damping of 0.5 and a
Levenberg-Marquardt damping of 1 for each body; or one step without the latter, damped as `retarget` is. All have the
same targets, costs and limits. C MuJoCo judges positions of all bodies.

Gate: at least 10 times mink's poses a second at one step each, and errors no larger in the mean.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mink
import mujoco
import numpy as np

import jaxik
from benchmarks.timing import measured
from jaxik.retargeting import LinkMap, match, retarget
from jaxik.robot.loading.sources import read_source

RECORDINGS, POSES, DT = 64, 300, 1 / 30
FASTEST = 10.0  # [rad/s]
DAMPING = 6.5e-3  # what `retarget` has for this robot
TIMES_MINK = 10
FIRM = {f"{side}Foot": 10.0 for side in ("left", "right")}
LINKS = {"Arm": "upper_arm", "ForeArm": "forearm", "Hand": "palm", "Leg": "shank", "Foot": "foot"}
FOLLOW = {"Hips": "pelvis", "Chest": "torso_link", "Head": "head_link"} | {
    side + body: f"{side}_{link}_link" for side in ("left", "right") for body, link in LINKS.items()
}


def run() -> dict[str, Any]:
    """Compile and run times, poses a second, and errors of all bodies."""
    robot = jaxik.load_robot("humanoid")
    person = _person(robot)
    paces = jax.random.uniform(jax.random.key(0), (3, RECORDINGS), minval=0.3, maxval=1.0)
    t = DT * jnp.arange(POSES)[:, None]
    bend, lifts = 0.4 * jnp.sin(4 * paces[0] * t) ** 2, (1.5 * jnp.sin(4 * pace * t) ** 2 for pace in paces[1:])
    poses = _recorded(person, bend, *lifts)
    rest = _recorded(person, *(jnp.zeros(()),) * 3)
    links = match(robot, FOLLOW, robot.q_home, rest, root="Hips", feet=(*FIRM,))
    limits = (jaxik.ConfigurationLimit(), jaxik.VelocityLimit(FASTEST))

    def followed(poses: dict[str, jaxlie.SE3], q0: jax.Array | None) -> jaxik.Track:
        return retarget(robot, links, poses, DT, position_cost=FIRM, limits=limits, q0=q0)

    # Nobody's steps to the first pose are timed.
    first = followed({name: jaxlie.SE3(pose.wxyz_xyz[:1]) for name, pose in poses.items()}, None).q[0]
    motion, times = measured(followed, poses, first)
    alone = {name: jaxlie.SE3(pose.wxyz_xyz[:, 0]) for name, pose in poses.items()}
    _, one = measured(followed, alone, first[0])
    targets = links.targets(poses)
    ours = {**times, "poses_per_s": round(RECORDINGS * POSES / (1e-3 * times["run_ms"]))}
    ours |= _errors(np.asarray(motion.q[:, 0]), targets)
    ours["poses_per_s_alone"] = round(POSES / (1e-3 * one["run_ms"]))
    ours["peak_speed"] = float(motion.peak_speed.max())
    found: dict[str, Any] = {"jaxik": ours}
    for name, steps in (("mink, one step", 1), ("mink, as GMR", 10)):
        q, seconds = _by_mink(robot, links, targets, steps)
        found[name] = {"poses_per_s": round(len(q) / seconds), **_errors(q, targets)}
    peer = found["mink, one step"]
    faster = ours["poses_per_s"] >= TIMES_MINK * peer["poses_per_s"]
    return {**found, "passed": bool(faster and ours["mean_mm"] <= 1.01 * peer["mean_mm"])}


def _person(robot: jaxik.Robot) -> jaxik.Robot:
    names = robot.topology.body_names
    longer = jnp.array([1.2 if "shank" in name or "foot" in name else 1.05 for name in names])
    return dataclasses.replace(robot, body_position=longer[:, None] * robot.body_position)


def _recorded(person: jaxik.Robot, bend: jax.Array, left: jax.Array, right: jax.Array) -> dict[str, jaxlie.SE3]:
    joints = {"left_shoulder_roll": left, "right_shoulder_pitch": -0.3 - right}
    for side in ("left", "right"):
        joints |= {f"{side}_hip_pitch": -0.3 - bend, f"{side}_knee": 0.6 + 2 * bend, f"{side}_ankle_pitch": -0.3 - bend}
    q = person.configuration(joints)
    q = q.at[..., 2].add(-person.frame_pose(q, "left_foot").translation()[..., 2])
    return {body: person.frame_pose(q, frame) for body, frame in FOLLOW.items()}


def _by_mink(robot: jaxik.Robot, links: LinkMap, targets: dict[str, Any], most: int) -> tuple[np.ndarray, float]:
    """Configurations (T, nq) of the first recording, and how long they took [s]."""
    model = read_source("humanoid").model
    configuration, gentle = mink.Configuration(model), most > 1
    tasks = {
        body: mink.FrameTask(frame, "body", FIRM.get(body, 1.0), 0.3, lm_damping=1.0 if gentle else 0.0)
        for body, frame in FOLLOW.items()
    }
    posture = mink.PostureTask(model, 0.003)
    posture.set_target(np.asarray(links.rest))
    joints = {name: FASTEST for name in robot.joint_names[1:]}
    limits = [mink.ConfigurationLimit(model), mink.VelocityLimit(model, joints)]
    every = [*tasks.values(), posture]

    def steps(row: int, most: int) -> np.ndarray:
        for body, task in tasks.items():
            task.set_target(mink.SE3(np.asarray(wanted[body][row], float)))
        before = np.inf
        for _ in range(most):
            velocity = mink.solve_ik(
                configuration, every, DT, "daqp", damping=0.5 if gentle else DAMPING, limits=limits
            )
            configuration.integrate_inplace(velocity, DT)
            error = np.linalg.norm(np.concatenate([task.compute_error(configuration) for task in tasks.values()]))
            if before - error < 1e-3:
                break
            before = error
        return configuration.q.copy()

    wanted = {body: np.asarray(pose.wxyz_xyz[:, 0]) for body, pose in targets.items()}
    configuration.update(np.asarray(links.rest, float))
    steps(0, 60)
    begin = time.perf_counter()
    q = np.stack([steps(row, most) for row in range(POSES)])
    return q, time.perf_counter() - begin


def _errors(q: np.ndarray, targets: dict[str, Any]) -> dict[str, float]:
    """Distances of all bodies of the first recording from their targets, by C MuJoCo [mm]."""
    model = read_source("humanoid").model
    data, found = mujoco.MjData(model), []
    for row, configuration in enumerate(q):
        data.qpos[:] = configuration
        mujoco.mj_kinematics(model, data)
        found += [
            np.linalg.norm(data.body(frame).xpos - np.asarray(targets[body].translation()[row, 0]))
            for body, frame in FOLLOW.items()
        ]
    return {"mean_mm": round(1e3 * float(np.mean(found)), 2), "worst_mm": round(1e3 * float(np.max(found)), 1)}
