"""Other libraries' global inverse kinematics of Panda: Newton's seeds; mink, pink and mjinx restarted until solved.

Each gets the same targets as ours, the first of them where it is slow, and is asked for the same tolerances and limits.
What they return is clipped to the limits before it is judged, since none of them holds limits exactly. Their settings
are those that did best of the ones tried: README.md of this folder. All run on one core of the processor, as they do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlie
import mink
import mujoco
import numpy as np

import jaxik
from benchmarks.judge import judged
from benchmarks.searching import verified
from benchmarks.solve import ORIENTATION, POSITION
from benchmarks.timing import Clock

BUNDLED = Path(jaxik.__file__).parent / "robot" / "bundled"
NEWTON_TARGETS, RESTARTED_TARGETS = 512, 256
NEWTON_SEEDS, NEWTON_STEPS = (2, 4, 8, 16, 64), 16
ATTEMPTS, STEPS = 64, 12  # of those that are restarted; of 8 to 30 steps, 12 cost mink the fewest a target
DAMPING, LM_DAMPING = 1e-6, 3e-2  # the latter of 0 to 1, likewise
# It takes 50 steps/s. Smaller speeds and longer attempts reach a few targets more, at a third of the rate.
MJINX_TARGETS, MJINX_ATTEMPTS = 16, 4
MJINX_DT, MJINX_SPEED = 0.01, 100.0
INSIDE = 0.9  # of the tolerances: where they stop, so that it holds for the judge as well


class Point(NamedTuple):
    """What a library returned with some setting: configurations (n, nq), and the time of all of them [s]."""

    setting: str
    q: np.ndarray
    seconds: float
    processor: float


def measured(model: Any, targets: np.ndarray, home: np.ndarray) -> dict[str, Any]:
    """A table for each library, its most thorough setting last; targets (n, 7), wxyz_xyz."""
    peers: dict[str, Callable[..., list[Point]]] = {"newton": _newton, "mink": _mink, "pink": _pink, "mjinx": _mjinx}
    counts = {"newton": NEWTON_TARGETS, "mjinx": MJINX_TARGETS}
    results: dict[str, Any] = {}
    for name, peer in peers.items():
        few = targets[: counts.get(name, RESTARTED_TARGETS)]
        try:
            points = peer(model, few, home)
        except ImportError:
            results[name] = {"absent": "not installed"}
            continue
        results[name] = []
        for setting, q, seconds, processor in points:
            verdict = judged(model, np.clip(q, *model.jnt_range.T), {"tcp": few})
            results[name].append(figures(setting, verified(verdict), seconds, processor))
    return results


def figures(setting: str, good: np.ndarray, seconds: float, processor: float) -> dict[str, Any]:
    """Of a setting: the share that is verified, and verified targets per second, by the wall and by the processor."""
    return {
        "setting": setting,
        "targets": len(good),
        "success": round(float(good.mean()), 5),
        "us_per_target": round(1e6 * seconds / len(good), 2),
        "targets_per_s": float(f"{int(good.sum()) / seconds:.4g}"),
        "targets_per_processor_s": float(f"{int(good.sum()) / processor:.4g}"),
    }


def _newton(model: Any, targets: np.ndarray, home: np.ndarray) -> list[Point]:
    """Its own batched solver, sampler and choice of the best seed by cost, with analytic Jacobians."""
    import warp

    warp.config.log_level = warp.LOG_WARNING  # what it says of itself would stand among the results
    import newton
    from newton import ik

    builder = newton.ModelBuilder()
    builder.add_mjcf(str(BUNDLED / "panda.xml"), floating=False)
    robot = builder.finalize(device="cpu")
    hand = next(i for i, label in enumerate(robot.body_label) if label.endswith("/hand"))
    offset = warp.vec3(*model.site("tcp").pos)
    points = []
    with warp.ScopedDevice("cpu"):
        objectives = [
            ik.IKObjectivePosition(hand, offset, warp.array(targets[:, 4:], dtype=warp.vec3)),
            ik.IKObjectiveRotation(hand, warp.quat_identity(), warp.array(targets[:, [1, 2, 3, 0]], dtype=warp.vec4)),
            ik.IKObjectiveJointLimit(robot.joint_limit_lower, robot.joint_limit_upper, weight=1.0),
        ]
        q0 = warp.array(np.tile(home, (len(targets), 1)), dtype=warp.float32)
        for seeds in NEWTON_SEEDS:
            solver = ik.IKSolver(
                robot,
                len(targets),
                objectives,
                sampler=ik.IKSampler.ROBERTS,
                n_seeds=seeds,
                jacobian_mode=ik.IKJacobianType.ANALYTIC,
            )
            q = warp.zeros_like(q0)
            solver.step(q0, q, iterations=1)  # compiles its kernels
            solver.reset()
            clock = Clock()
            solver.step(q0, q, iterations=NEWTON_STEPS)
            warp.synchronize()
            points.append(Point(f"{seeds} seeds", q.numpy().astype(float), *clock.read()))
    return points


def _mink(model: Any, targets: np.ndarray, home: np.ndarray) -> list[Point]:
    configuration = mink.Configuration(model)
    task = mink.FrameTask("tcp", "site", 1.0, 1.0, lm_damping=LM_DAMPING)
    limits = [mink.ConfigurationLimit(model)]

    def attempt(target: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, bool]:
        configuration.update(q)
        task.set_target(mink.SE3(target))
        for _ in range(STEPS):
            velocity = mink.solve_ik(configuration, [task], 1.0, "daqp", damping=DAMPING, limits=limits)
            configuration.integrate_inplace(velocity, 1.0)
            if _met(task.compute_error(configuration)):
                return configuration.q.copy(), True
        return configuration.q.copy(), False

    return _restarted(attempt, model, targets, home)


def _pink(model: Any, targets: np.ndarray, home: np.ndarray) -> list[Point]:
    import pink
    import pinocchio
    from pink.limits import ConfigurationLimit

    robot = pinocchio.buildModelFromMJCF(str(BUNDLED / "panda.xml"))
    data = robot.createData()
    task = pink.tasks.FrameTask("tcp", 1.0, 1.0, lm_damping=LM_DAMPING)
    limits = [ConfigurationLimit(robot, config_limit_gain=0.95)]

    def attempt(target: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, bool]:
        configuration = pink.Configuration(robot, data, q)
        task.set_target(pinocchio.XYZQUATToSE3(np.concatenate([target[4:], target[1:4], target[:1]])))
        for _ in range(STEPS):
            velocity = pink.solve_ik(
                configuration, [task], 1.0, "daqp", damping=DAMPING, limits=limits, safety_break=False
            )
            configuration.integrate_inplace(velocity, 1.0)
            if _met(task.compute_error(configuration)):
                return configuration.q.copy(), True
        return configuration.q.copy(), False

    return _restarted(attempt, model, targets, home)


def _mjinx(model: Any, targets: np.ndarray, home: np.ndarray) -> list[Point]:
    """All targets side by side, in one program; those that are met stay where they are."""
    from mjinx.components.barriers import JointBarrier
    from mjinx.components.tasks import FrameTask
    from mjinx.problem import Problem
    from mjinx.solvers import LocalIKSolver
    from mujoco import mjx

    on_device = mjx.put_model(model)
    problem = Problem(on_device, v_min=-MJINX_SPEED, v_max=MJINX_SPEED)
    task = FrameTask("tip", cost=1.0, gain=1 / MJINX_DT, obj_name="tcp", obj_type=mujoco.mjtObj.mjOBJ_SITE)
    problem.add_component(task)
    problem.add_component(JointBarrier("limits", gain=0.95 / MJINX_DT))
    solver = LocalIKSolver(on_device)

    @jax.jit
    @jax.vmap
    def step(q: jax.Array, target: jax.Array) -> jax.Array:
        task.target_frame = jaxlie.SE3(target)
        found, _ = solver.solve(q, solver.init(), problem.compile())
        return q + MJINX_DT * found.v_opt

    def met(q: np.ndarray) -> np.ndarray:
        verdict = judged(model, q, {"tcp": targets})
        return (verdict.position < INSIDE * POSITION) & (verdict.angle < INSIDE * ORIENTATION)

    random = np.random.default_rng(0)
    q, points, seconds, processor = np.tile(home, (len(targets), 1)), [], 0.0, 0.0
    jax.block_until_ready(step(q, targets))
    for attempt in range(MJINX_ATTEMPTS):
        for _ in range(STEPS):
            clock = Clock()
            moved = np.asarray(step(q, targets), float)
            spent = clock.read()
            seconds, processor = seconds + spent[0], processor + spent[1]
            q = np.where(met(q)[:, None], q, moved)
        points.append(Point(f"{attempt + 1} attempt{'s' * (attempt > 0)}", q.copy(), seconds, processor))
        q = np.where(met(q)[:, None], q, random.uniform(*model.jnt_range.T, q.shape))
    return points


def _met(error: np.ndarray) -> bool:
    return bool(np.linalg.norm(error[:3]) < INSIDE * POSITION and np.linalg.norm(error[3:]) < INSIDE * ORIENTATION)


def _restarted(
    attempt: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, bool]],
    model: Any,
    targets: np.ndarray,
    home: np.ndarray,
) -> list[Point]:
    """From home, then from random configurations until solved: what at most so many attempts give."""
    random = np.random.default_rng(0)
    starts = random.uniform(*model.jnt_range.T, (len(targets), ATTEMPTS, model.nq))
    starts[:, 0] = home
    found, elapsed = np.zeros_like(starts), np.zeros((*starts.shape[:2], 2))
    attempt(targets[0], home)
    for i, target in enumerate(targets):
        for k in range(ATTEMPTS):
            clock = Clock()
            q, solved = attempt(target, starts[i, k])
            elapsed[i, k] = clock.read()
            found[i, k:] = q
            if solved:
                break
    budgets = [k for k in (1, 2, 3, 4, 6, 8, 16, 32, 64) if k <= ATTEMPTS]
    return [
        Point(f"{k} attempt{'s' * (k > 1)}", found[:, k - 1], *elapsed[:, :k].sum(axis=(0, 1)).tolist())
        for k in budgets
    ]
