"""A million random pose actions from random states on each robot, and constant ones of 100 steps, judged by C MuJoCo.

Gates: no joint target outside joint limits (float64, by C MuJoCo's model) or speed limits, none NaN; a constant action
moves the frame by what it asks within 1 % in each step, and by less than 1 mm and 1 % of a radian across.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

import jaxik
from benchmarks.timing import Clock
from jaxik.rl import PoseAction
from jaxik.robot.loading.reference import Reference

ROBOTS = ("panda", "ur5e", "dual_arm", "panda, base turned by 90 degrees")
FRAMES = {"dual_arm": {"left": "left_tcp", "right": "right_tcp"}}
STEPS, ENVIRONMENTS, NAN_SHARE = 50, 2000, 0.02
# A constant action for 100 steps: 0.1 m or 0.3 rad in all, within reach of all arms from home.
DELTA_STEPS, TRANSLATION, ROTATION = 100, 0.001, 0.003


def run(actions: int = 1_000_000) -> dict[str, Any]:
    """All robots, in float32."""
    results = {name: {"random": random_actions(name, actions), "constant": constant_actions(name)} for name in ROBOTS}
    return {**results, "passed": all(_passes(found) for found in results.values())}


def _passes(found: dict[str, Any]) -> bool:
    random, constant = found["random"], found["constant"]
    none = not (random["outside_joint_limits"] or random["above_speed_limits"] or random["nan"])
    return none and constant["twist_error"] < 0.01 and constant["drift_mm"] < 1 and constant["drift_rad"] < 0.01


def robot_of(name: str) -> jaxik.Robot:
    robot = jaxik.load_robot(name.split(",")[0])
    if "," in name:
        robot = robot.with_base(jaxlie.SE3.from_rotation(jaxlie.SO3.from_y_radians(jnp.pi / 2)))
    return robot


def random_actions(name: str, actions: int) -> dict[str, Any]:
    """Actions beyond [-1, 1], some held for all steps, which drives arms to where they end, some NaN."""
    robot = robot_of(name)
    act = PoseAction(robot, FRAMES.get(name, {"tip": "tcp"}), translation=0.05, rotation=0.3, lead=(0.5, 2.0))

    @jax.jit
    def episode(key: jax.Array) -> Any:
        keys = jax.random.split(key, 4)
        q0 = robot.sample(keys[0], (ENVIRONMENTS,))
        drawn = 2 * jax.random.normal(keys[1], (STEPS, ENVIRONMENTS, act.size))
        drawn = drawn.at[:, ::2].set(drawn[:1, ::2])
        bad = jax.random.uniform(keys[2], (STEPS, ENVIRONMENTS, 1)) < NAN_SHARE

        def one(carry: Any, action: jax.Array) -> Any:
            q, state, info = act(*carry, action)
            return (state, q), (q, info.limited)

        return q0, *jax.lax.scan(one, (act.reset(q0), q0), jnp.where(bad, jnp.nan, drawn))[1]

    episodes = -(-actions // (STEPS * ENVIRONMENTS))
    jax.block_until_ready(episode(jax.random.key(0)))
    reference, speed_limit = Reference(name.split(",")[0]), np.asarray(robot.velocity_limit, float)
    found = {"actions": 0, "outside_joint_limits": 0, "above_speed_limits": 0, "nan": 0, "limited": 0}
    seconds, peak = 0.0, 0.0
    for number in range(episodes):
        clock = Clock()
        q0, q, limited = jax.device_get(jax.block_until_ready(episode(jax.random.key(number))))
        seconds += clock.read()[0]
        way = np.diff(np.concatenate([q0[None], q]).astype(float), axis=0)
        # Both ends of a way are rounded to float32.
        rounding = np.spacing(np.abs(q)).astype(float)
        share = (np.abs(way) - rounding) / (float(act.dt) * speed_limit)
        found["actions"] += STEPS * ENVIRONMENTS
        found["outside_joint_limits"] += int(reference.outside(q.reshape(-1, robot.nq).astype(float)).sum())
        found["above_speed_limits"] += int((share > 1 + 1e-6).any(axis=-1).sum())
        found["nan"] += int(np.isnan(q).any(axis=-1).sum())
        found["limited"] += int(limited.sum())
        peak = max(peak, float(np.nanmax(np.abs(way) / (float(act.dt) * speed_limit))))
    return found | {"largest_speed_share": round(peak, 7), "us_per_action": round(1e6 * seconds / found["actions"], 2)}


def constant_actions(name: str) -> dict[str, Any]:
    """Along and about each axis of the world in turn, of each frame, from home."""
    robot = robot_of(name)
    frames = FRAMES.get(name, {"tip": "tcp"})
    act = PoseAction(robot, frames, translation=TRANSLATION, rotation=ROTATION)

    @jax.jit
    def episode(actions: jax.Array) -> Any:
        q0 = jnp.tile(robot.q_home, (act.size, 1))

        def one(carry: Any, _: None) -> Any:
            q, state, info = act(*carry, actions)
            return (state, q), (q, info.limited)

        return jax.lax.scan(one, (act.reset(q0), q0), length=DELTA_STEPS)[1]

    q, limited = jax.device_get(episode(jnp.eye(act.size)))
    q = np.concatenate([np.tile(robot.q_home, (1, act.size, 1)), q]).astype(float)
    reference = Reference(name.split(",")[0])
    turned = np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]) if "," in name else np.eye(3)
    errors, shifts, turns = [], [], []
    for place, frame in enumerate(frames.values()):
        own = q[:, 6 * place : 6 * place + 6].reshape(-1, robot.nq)
        poses = reference.poses(own, "site", frame).reshape(DELTA_STEPS + 1, 6, 7)
        twists = _twists(turned, poses[:-1], poses[1:])
        unit = np.repeat([TRANSLATION, ROTATION], 3)
        moved = np.stack([twists[:, i, i] / unit[i] for i in range(6)])
        errors.append(np.abs(moved.mean(axis=1) - 1).max())
        across = np.abs(np.cumsum(twists, axis=0) * (1 - np.eye(6))[None]).max(axis=(0, 1))
        shifts.append(across[:3].max())
        turns.append(across[3:].max())
    return {
        "twist_error": float(f"{max(errors):.2g}"),
        "drift_mm": float(f"{1e3 * max(shifts):.2g}"),
        "drift_rad": float(f"{max(turns):.2g}"),
        "limited": int(limited.sum()),
    }


def _twists(turned: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """From poses (..., 7) wxyz, xyz to near ones: shift and turn (..., 6), in axes of a base that is turned."""
    (w0, *v0), (w1, *v1) = (np.moveaxis(pose[..., :4], -1, 0) for pose in (before, after))
    v0, v1 = np.stack(v0, axis=-1), np.stack(v1, axis=-1)
    # The vector part of after * conj(before): half of a small turn.
    turn = 2 * (w0[..., None] * v1 - w1[..., None] * v0 - np.cross(v1, v0))
    turn *= np.sign((before[..., :4] * after[..., :4]).sum(axis=-1, keepdims=True))
    return np.concatenate([(after - before)[..., 4:] @ turned.T, turn @ turned.T], axis=-1)
