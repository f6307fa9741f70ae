"""One differential-IK step: `step` beside mink, pink and mjinx on the same robots, targets and limits.

Panda with one frame task and configuration and velocity limits, and a humanoid of 41 degrees of freedom with seven
tasks. Every library's velocities are compared with ours in float64; a library that is not installed is said to be
absent. Peers run one robot at a time on one core, as they do; ours in a batch, on one core inside a plain jit and
sharded over all of them, and one robot at a time as well, dispatch included, with an account of where that time goes.

Gates: Panda at least 50 times and the humanoid at least 10 times mink's steps per second in the same run, one robot at
a time within twice mink's time, and the same velocities.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mink
import mujoco
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import jaxik
from benchmarks.latency import account
from benchmarks.timing import measured
from jaxik.robot.loading.sources import read_source

DT, FAST, DAMPING = 0.01, 2.0, 1e-6
BATCH = {"panda": 4096, "humanoid": 1024}
TIMES_MINK = {"panda": 50.0, "humanoid": 10.0}
LATENCY_OF_MINK = 2.0
PEER_STEPS = 300  # of each peer, one after the other
MJINX_BATCH = 64
BUNDLED = Path(jaxik.__file__).parent / "robot" / "bundled"
AGREEMENT = 1e-4  # [rad/s], in float64: DAQP meets its constraints to 1e-6, which dt = 0.01 multiplies by 100
WAY = 0.05  # standard deviation of the way to the targets [rad or m]
EFFECTORS = ("left_foot", "right_foot", "left_hand", "right_hand")


def run() -> dict[str, Any]:
    """Steps per second, latency and agreement for each robot."""
    results = {"panda": _panda(), "humanoid": _humanoid()}
    return {**results, "passed": all(_good(name, result) for name, result in results.items())}


def _good(name: str, result: dict[str, Any]) -> bool:
    mink_time = result["mink"]["us_per_step"]
    return (
        result["jaxik"]["steps_per_s"] * mink_time * 1e-6 >= TIMES_MINK[name]
        and result["jaxik"]["us_alone"] <= LATENCY_OF_MINK * mink_time
        and all(peer.get("disagreement", 0.0) <= AGREEMENT for key, peer in result.items() if key != "jaxik")
    )


def _panda() -> dict[str, Any]:
    robot = jaxik.load_robot("panda")
    tip = robot.frame("tcp")
    q, goal = _starts(robot, BATCH["panda"])
    targets = robot.frame_pose(goal, tip)
    limits = (jaxik.ConfigurationLimit(), jaxik.VelocityLimit(FAST))

    def problem(target: jaxlie.SE3) -> jaxik.Problem:
        return jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)}, limits=limits)

    model = read_source("panda").model
    configuration, task = mink.Configuration(model), mink.FrameTask("tcp", "site", 1.0, 1.0)
    held = [mink.ConfigurationLimit(model), mink.VelocityLimit(model, dict.fromkeys(robot.joint_names, FAST))]

    def by_mink(q: np.ndarray, target: np.ndarray) -> np.ndarray:
        configuration.update(q)
        task.set_target(mink.SE3(target))
        return mink.solve_ik(configuration, [task], DT, "daqp", damping=DAMPING, limits=held)

    result = _compared(problem, q, targets, {"mink": by_mink, **_pink_panda()})
    return {**result, "mjinx": _mjinx_panda(q, targets)}


def _humanoid() -> dict[str, Any]:
    robot = jaxik.load_robot("humanoid")
    q, goal = _starts(robot, BATCH["humanoid"])
    frames = {name: robot.frame(name) for name in (*EFFECTORS, "head")}
    targets = {name: robot.frame_pose(goal, frame) for name, frame in frames.items()}
    com = robot.center_of_mass(goal)
    limits = (jaxik.ConfigurationLimit(),)

    def problem(given: Any) -> jaxik.Problem:
        targets, com = given
        tasks: dict[str, Any] = {name: jaxik.FrameTask(frames[name], targets[name]) for name in EFFECTORS}
        tasks["head"] = jaxik.FrameTask(frames["head"], targets["head"], position_cost=0.0)
        tasks["com"] = jaxik.ComTask(com)
        tasks["posture"] = jaxik.PostureTask(robot.q_home, cost=0.1)
        return jaxik.Problem(robot, tasks, limits=limits)

    model = read_source("humanoid").model
    configuration = mink.Configuration(model)
    reach = {name: mink.FrameTask(name, "site", 1.0, 1.0) for name in EFFECTORS}
    reach["head"] = mink.FrameTask("head", "site", 0.0, 1.0)
    balance, posture = mink.ComTask(1.0), mink.PostureTask(model, 0.1)
    posture.set_target(np.asarray(robot.q_home, float))
    held = [mink.ConfigurationLimit(model)]

    def by_mink(q: np.ndarray, given: Any) -> np.ndarray:
        targets, com = given
        configuration.update(q)
        for name, task in reach.items():
            task.set_target(mink.SE3(targets[name]))
        balance.set_target(com)
        tasks = [*reach.values(), balance, posture]
        return mink.solve_ik(configuration, tasks, DT, "daqp", damping=DAMPING, limits=held)

    return _compared(problem, q, (targets, com), {"mink": by_mink})


def _starts(robot: jaxik.Robot, count: int) -> tuple[jax.Array, jax.Array]:
    """Configurations about home, and where their targets come from."""
    shifts = jax.random.normal(jax.random.key(0), (2, count, robot.nv))
    q = robot.integrate(robot.q_home, 4 * WAY * shifts[0])
    return q, robot.integrate(q, WAY * shifts[1])


def _compared(
    problem: Callable[[Any], jaxik.Problem], q: jax.Array, given: Any, peers: dict[str, Any]
) -> dict[str, Any]:
    def velocity(q: jax.Array, given: Any) -> tuple[jax.Array, jax.Array]:
        result = jaxik.step(problem(given), q, DT, damping=DAMPING)
        return result.velocity, result.status

    (_, status), times = measured(velocity, q, given)
    count = q.shape[0]
    cores = jax.make_mesh((jax.device_count(),), ("batch",))
    part = PartitionSpec("batch")
    shared = jax.shard_map(velocity, mesh=cores, in_specs=(part, part), out_specs=part, check_vma=False)
    _, everywhere = measured(shared, *jax.device_put((q, given), NamedSharding(cores, part)))
    one = jax.tree.map(lambda x: x[0], (q, given))
    alone = jax.jit(velocity)
    result: dict[str, Any] = {
        "jaxik": {
            **times,
            "batch": count,
            "steps_per_s_one_core": round(1e3 * count / times["run_ms"]),
            "steps_per_s": round(1e3 * count / everywhere["run_ms"]),
            "cores": jax.device_count(),
            "converged": float(np.mean(np.asarray(status) == jaxik.Status.CONVERGED)),
            "us_alone": round(_microseconds(lambda: jax.block_until_ready(alone(*one)), 300), 1),
            "us_alone_up_to": account(problem, velocity, *one, DT),
        }
    }
    few = jax.tree.map(lambda x: np.asarray(x[:PEER_STEPS], float), (q, _plain(given)))
    with jax.enable_x64(True):
        exact = np.asarray(
            jax.jit(velocity)(*jax.tree.map(lambda x: jnp.asarray(x[:PEER_STEPS], float), (q, given)))[0]
        )
    for name, peer in peers.items():
        if peer is None:
            result[name] = {"absent": "not installed"}
            continue
        elements = [jax.tree.map(lambda x, i=i: x[i], few) for i in range(len(exact))]
        found = np.stack([peer(*element) for element in elements])
        begin = time.perf_counter()
        for element in elements:
            peer(*element)
        elapsed = time.perf_counter() - begin
        result[name] = {
            "us_per_step": round(1e6 * elapsed / len(elements), 1),
            "disagreement": float(np.abs(found - exact).max()),
        }
        if name == "mink":
            result["jaxik"]["times_mink"] = round(
                result["jaxik"]["steps_per_s"] * result[name]["us_per_step"] * 1e-6, 1
            )
    return result


def _plain(given: Any) -> Any:
    """Poses as arrays (*batch, 7), wxyz first."""
    is_pose = lambda x: isinstance(x, jaxlie.SE3)  # noqa: E731
    return jax.tree.map(lambda x: x.wxyz_xyz if is_pose(x) else x, given, is_leaf=is_pose)


def _microseconds(function: Callable[[], Any], repeats: int) -> float:
    """Mean time of a call."""
    function()
    begin = time.perf_counter()
    for _ in range(repeats):
        function()
    return 1e6 * (time.perf_counter() - begin) / repeats


def _pink_panda() -> dict[str, Any]:
    try:
        import pink
        import pinocchio
        from pink.limits import ConfigurationLimit, VelocityLimit
    except ImportError:
        return {"pink": None}
    model = pinocchio.buildModelFromMJCF(str(BUNDLED / "panda.xml"))
    model.velocityLimit = np.full(model.nv, FAST)
    data = model.createData()
    task = pink.tasks.FrameTask("tcp", 1.0, 1.0)
    held = [ConfigurationLimit(model, config_limit_gain=0.95), VelocityLimit(model)]

    def by_pink(q: np.ndarray, target: np.ndarray) -> np.ndarray:
        configuration = pink.Configuration(model, data, q)
        task.set_target(pinocchio.XYZQUATToSE3(np.concatenate([target[4:], target[1:4], target[:1]])))
        return pink.solve_ik(configuration, [task], DT, "daqp", damping=DAMPING, limits=held)

    return {"pink": by_pink}


def _mjinx_panda(q: jax.Array, targets: jaxlie.SE3) -> dict[str, Any]:
    """A batch of its own size: one of 4096 would take minutes. Its solver is set to 1e-3, its default."""
    try:
        from mjinx.components.barriers import JointBarrier
        from mjinx.components.tasks import FrameTask
        from mjinx.configuration import integrate  # noqa: F401
        from mjinx.problem import Problem
        from mjinx.solvers import LocalIKSolver
    except ImportError:
        return {"absent": "not installed"}
    from mujoco import mjx

    model = mjx.put_model(read_source("panda").model)
    problem = Problem(model, v_min=-FAST, v_max=FAST)
    task = FrameTask("tip", cost=1.0, gain=1 / DT, obj_name="tcp", obj_type=mujoco.mjtObj.mjOBJ_SITE)
    problem.add_component(task)
    problem.add_component(JointBarrier("limits", gain=0.95 / DT))
    solver = LocalIKSolver(model)
    few = jax.tree.map(lambda x: x[:MJINX_BATCH], (q, targets))

    def one(q: jax.Array, target: jax.Array) -> jax.Array:
        task.target_frame = jaxlie.SE3(target)
        found, _ = solver.solve(q, solver.init(), problem.compile())
        return found.v_opt

    _, times = measured(jax.vmap(one), few[0], few[1].wxyz_xyz)
    return {**times, "batch": MJINX_BATCH, "steps_per_s": round(1e3 * MJINX_BATCH / times["run_ms"], 1)}
