"""Whether derivatives in float32 say of themselves what those in float64 say, and how far apart they are.

Random configurations and random reachable targets, the same numbers of float32 in both precisions, robots' limits as
well. Of `step`, with joint limits alone, with velocity limits as well, and with a posture at cost 0.1 beside the pose;
of `solve`, whose derivative in float64 is taken where a solve ends that starts at the solution of float32. The
derivative is that along one random direction of the targets; its error is relative to its largest entry, of all joints.

Gates: what says EXACT in float32 alone has the derivative of float64 to 1e-3, but for a thousandth; and where limits or
a posture make the result one of a kind, statuses agree for 99 % of the elements. With joint limits alone rounding moves
a redundant arm: there it is told how many agree.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

import jaxik
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds

BATCH = 2048
AGREE, FALSELY_EXACT = 0.99, 0.001
ELSEWHERE = 1e-3  # [rad or m]: a solve in float64 that goes so far has left the solution of float32
DT = 0.01
FRAMES = {
    "panda": ("tcp",),
    "ur5e": ("tcp",),
    "gen3": ("tcp",),
    "xarm7": ("tcp",),
    "hand": ("index_tip", "middle_tip", "ring_tip", "thumb_tip"),
    "humanoid": ("left_foot", "right_foot", "left_hand", "right_hand"),
}
# Of a hand's fingertips positions alone: a finger has no more than that to give.
POSITIONS = ("hand",)
# Velocity limits [rad/s, m/s], where all that can be far is far, and costs of a posture.
FAR = 1e6
STEPS = {"joint limits": (FAR, 0.0), "velocity limits": (2.0, 0.0), "posture": (FAR, 0.1)}
SOLVES = {"joint limits": (FAR, 0.0), "posture": (FAR, 0.1)}
# Joint limits alone leave what the pose does not say to damping and rounding.
FREE = "joint limits"
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Side(NamedTuple):
    """What one precision finds, for each element: q or velocity, its tangent, status, trust and active bounds."""

    value: Any
    tangent: Any
    status: Any
    trust: Any
    active: Any


def run(robots: Sequence[str] | None = None, batch: int = BATCH) -> dict[str, Any]:
    """Agreement and errors by robot, verb and case, with the statuses of float32 beside those of float64."""
    results: dict[str, Any] = {}
    with jax.enable_x64(True):
        for name in robots or FRAMES:
            for verb, cases in (("step", STEPS), ("solve", SOLVES)):
                narrow, wide = both(jaxik.load_robot(name), FRAMES[name], verb, cases, batch, name in POSITIONS)
                for i, case in enumerate(cases):
                    results.setdefault(name, {})[f"{verb}, {case}"] = compared(
                        *(Side(*(x[i] for x in side)) for side in (narrow, wide)), same_point=verb == "solve"
                    )
    passed = all(good(case, found) for cases in results.values() for case, found in cases.items())
    return {"batch": batch, **results, "passed": passed}


def good(case: str, found: dict[str, Any]) -> bool:
    """Whether a case meets its gate."""
    return found["EXACT in float32 alone, off by 1e-3"] <= FALSELY_EXACT and (FREE in case or found["agree"] >= AGREE)


def both(
    robot: jaxik.Robot,
    frames: Sequence[str],
    verb: str,
    cases: dict[str, tuple[float, float]],
    batch: int,
    positions: bool = False,
) -> tuple[Side, Side]:
    """What float32 and float64 find of the same numbers, with axes (cases, batch); all cases are one program."""
    robot = _cast(_cast(robot, jnp.float32), jnp.float64)
    keys = jax.random.split(jax.random.key(0), 3)
    q, goal = (robot.sample(key, (batch,)) for key in keys[:2])
    q = jnp.broadcast_to(q, (len(cases), *q.shape))
    targets = {frame: robot.frame_pose(goal, frame) for frame in frames}
    along = jax.random.normal(keys[2], (len(frames), batch, 6))
    one = jnp.ones(robot.nv)
    speeds, costs = (jnp.asarray(column)[:, None, None] * one for column in zip(*cases.values(), strict=True))
    half: dict[str, Any] = {"orientation_cost": None} if positions else {}

    @functools.partial(jax.jit, compiler_options=QUICK)
    def side(given: Any) -> Side:
        robot, q, targets, along, speeds, costs = given

        def found(motions: jax.Array) -> Any:
            tasks: dict[str, Any] = {"rest": jaxik.PostureTask(robot.q_home, cost=costs)}
            for (frame, pose), motion in zip(targets.items(), motions, strict=True):
                tasks[frame] = jaxik.FrameTask(robot.frame(frame), pose @ jaxlie.SE3.exp(motion), **half)
            limits = (jaxik.ConfigurationLimit(), *([jaxik.VelocityLimit(speeds)] if verb == "step" else []))
            problem = jaxik.Problem(robot, tasks, limits=limits)
            if verb == "step":
                stepped = jaxik.step(problem, q, DT)
                return stepped.velocity, stepped
            solution = jaxik.solve(problem, q)
            return solution.q, solution

        value, tangent, result = jax.jvp(found, (jnp.zeros_like(along),), (along,), has_aux=True)
        if verb == "step":
            active = result.qp.active.bounds != 0
        else:
            coordinates = jax.vmap(jax.vmap(lambda q: scalar_coordinates(robot.topology, q)))(value)
            lower, upper = tangent_bounds(robot)
            active = (coordinates <= lower) | (coordinates >= upper)
        return Side(value, tangent, result.status, result.derivative_status, active)

    narrow = side(_cast((robot, q, targets, along, speeds, costs), jnp.float32))
    start = q if verb == "step" else narrow.value
    wide = side(_cast(_cast((robot, start, targets, along, speeds, costs), jnp.float32), jnp.float64))
    return jax.tree.map(np.asarray, narrow), jax.tree.map(np.asarray, wide)


def _cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(
        lambda x: x.astype(dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x,
        jax.tree.map(jnp.asarray, tree),
    )


def compared(narrow: Side, wide: Side, *, same_point: bool = False) -> dict[str, Any]:
    """How many elements agree, and by pair of statuses how many, their errors, and how many hold the same bounds.

    Args:
      same_point: leave out what is elsewhere in float64, and say how many these are.
    """
    elsewhere = np.abs(narrow.value - wide.value).max(-1) > ELSEWHERE if same_point else np.zeros_like(narrow.status)
    narrow, wide = (Side(*(x[elsewhere == 0] for x in side)) for side in (narrow, wide))
    size = np.abs(wide.tangent).max(-1)
    error = np.abs(narrow.tangent - wide.tangent).max(-1) / np.where(size > 0, size, 1)
    same, exact = (narrow.active == wide.active).all(-1), jaxik.DerivativeStatus.EXACT
    alone = (narrow.trust == exact) & (wide.trust != exact)
    table = {}
    for pair in sorted(set(zip(narrow.trust.tolist(), wide.trust.tolist(), strict=True))):
        where = (narrow.trust == pair[0]) & (wide.trust == pair[1])
        table[" / ".join(jaxik.DerivativeStatus(x).name for x in pair)] = {
            "elements": int(where.sum()),
            "same bounds": int(same[where].sum()),
            **{f"within {bound:g}": int((error[where] <= bound).sum()) for bound in (1e-3, 1e-2, 0.1)},
            "median error": float(f"{np.median(error[where]):.1e}"),
            "largest error": float(f"{error[where].max():.1e}"),
        }
    return {
        "agree": round(float(np.mean(narrow.trust == wide.trust)), 4),
        "EXACT in float32 alone": round(float(np.mean(alone)), 4),
        "EXACT in float32 alone, off by 1e-3": round(float(np.mean(alone & (error > 1e-3))), 4),
        "ended elsewhere": int(elsewhere.sum()),
        "float32 / float64": table,
    }
