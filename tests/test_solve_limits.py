"""Whatever is asked, the answer is finite and inside the limits: every joint type, odd starts, odd targets."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import ConfigurationLimit, FrameTask, Problem, Status, solve
from jaxik.robot.robot import Robot

COUNT = 240
MARGIN = 0.03
KINDS = ("reachable", "far away", "NaN target", "infinite target", "NaN start", "infinite start")


@cache
def robot(dtype: Any = np.float64) -> Robot:
    """The mixed robot, with one joint of no range at all."""
    mixed = jaxik.load_robot(own_tasks.MIXED)
    still = mixed.topology.joint_index("still")
    upper = mixed.limit_upper.at[still].set(mixed.limit_lower[still])
    return dataclasses.replace(mixed, limit_upper=upper).astype(dtype)


def of_kind(kind: str) -> slice:
    return slice(KINDS.index(kind), None, len(KINDS))


def asked(dtype: Any) -> dict[str, Any]:
    """Targets, starts far outside the limits, margins, and for every other six a frozen base."""
    rng = np.random.default_rng(0)
    arm = robot()
    inside = arm.sample(jax.random.key(1), (COUNT,))
    target = np.array(arm.frame_pose(inside, "tip").wxyz_xyz)
    target[of_kind("far away"), 4:] += rng.standard_normal((COUNT // 6, 3)) * 1e3
    target[of_kind("NaN target"), rng.integers(7)] = np.nan
    target[of_kind("infinite target"), 5] = np.inf
    q0 = np.array(arm.sample(jax.random.key(2), (COUNT,))) * rng.uniform(-4, 4, (COUNT, arm.nq))
    q0[of_kind("NaN start"), rng.integers(arm.nq, size=COUNT // 6)] = np.nan
    q0[of_kind("infinite start"), 3] = -np.inf
    mask = np.ones((COUNT, arm.nv), bool)
    mask[np.arange(COUNT) // len(KINDS) % 2 == 0, :6] = False
    mask[:, arm.v_indices("endless")] = np.arange(COUNT)[:, None] % 5 > 0
    return {
        "target": target.astype(dtype),
        "q0": q0.astype(dtype),
        "margin": np.where(np.arange(COUNT) % 4 < 2, 0.0, MARGIN),
        "mask": mask,
    }


@cache
def solved(dtype: Any) -> jaxik.Solution:
    given = asked(dtype)
    task = FrameTask(robot().frame("tip"), jaxlie.SE3(jnp.asarray(given["target"])))
    limits = (ConfigurationLimit(margin=given["margin"]),)
    problem = Problem(robot(), {"tip": task}, limits=limits, dof_mask=given["mask"])
    return jax.device_get(solve(problem, given["q0"]))


DTYPES = pytest.mark.parametrize("dtype", mostly_exhaustive([np.float64, np.float32], [np.float32]))


@DTYPES
def test_limits_hold_for_every_element(dtype: Any) -> None:
    q, margin = np.asarray(solved(dtype).q, np.float64), asked(dtype)["margin"]
    arm = robot()
    assert np.isfinite(q).all()
    limits = zip(arm.joint_names, np.asarray(arm.limit_lower), np.asarray(arm.limit_upper), strict=True)
    for name, lower, upper in limits:
        at = list(arm.q_indices(name))
        if len(at) == 1:
            coordinate = q[:, at[0]]
            kept = margin - 1e-7 * (dtype == np.float32) * (margin > 0)  # the margin is added in the precision of q
            if name == "still":
                low = high = np.full(COUNT, lower if dtype == np.float64 else np.float32(lower))
            else:
                low, high = lower + kept, upper - kept
            assert (coordinate >= low).all() and (coordinate <= high).all(), name
        elif name == "ball":
            angle = 2 * np.arctan2(np.linalg.norm(q[:, at[1:]], axis=1), np.abs(q[:, at[0]]))
            assert (angle <= upper - margin + 1e-6).all()
            assert (np.abs(angle - upper + margin) < 1e-5).sum() > 5  # and it is needed: some are at the limit
        else:
            norm = np.linalg.norm(q[:, at[-4:]], axis=1)
            np.testing.assert_allclose(norm, 1, atol=4 * np.finfo(dtype).eps, err_msg=name)


@DTYPES
def test_what_is_not_finite_is_said_and_nothing_else(dtype: Any) -> None:
    found = solved(dtype)
    for kind in KINDS:
        bad = found.status[of_kind(kind)] == Status.NONFINITE
        assert bad.all() if "NaN" in kind or "infinite" in kind else not bad.any(), kind
    for finite in ("reachable", "far away"):
        assert all(np.isfinite(x[of_kind(finite)]).all() for x in jax.tree.leaves(found))
    assert (found.stationarity[of_kind("NaN target")] > 0).all()


@DTYPES
def test_masked_degrees_of_freedom_stay_as_they_are(dtype: Any) -> None:
    q, given = solved(dtype).q, asked(dtype)
    arm = robot()
    start = np.asarray(arm.clamp(np.where(np.isfinite(given["q0"]), given["q0"], np.asarray(arm.q_home, dtype))))
    (endless,) = arm.q_indices("endless")
    still = ~given["mask"][:, arm.v_indices("endless")[0]]
    np.testing.assert_array_equal(q[still, endless], start[still, endless])
    base, frozen = list(arm.q_indices("free")), ~given["mask"][:, 0]
    np.testing.assert_array_equal(q[frozen][:, base[:3]], start[frozen][:, base[:3]])
    np.testing.assert_allclose(q[frozen][:, base[3:]], start[frozen][:, base[3:]], atol=4 * np.finfo(dtype).eps)
    assert np.abs(q[~still, endless] - start[~still, endless]).max() > 0.1
    lone = arm.q_indices("lone")  # on no way to the tip
    np.testing.assert_array_equal(q[:, lone], start[:, lone])


@DTYPES
def test_a_free_base_reaches_what_is_asked_and_a_frozen_one_says_that_it_does_not(dtype: Any) -> None:
    found, free = solved(dtype), asked(dtype)["mask"][:, 0]
    reachable = np.zeros(COUNT, bool)
    reachable[of_kind("reachable")] = True
    np.testing.assert_array_equal(found.status[reachable & free], Status.CONVERGED)
    assert set(found.status[reachable & ~free].tolist()) <= {Status.STALLED, Status.TIMEOUT, Status.CONVERGED}
    away = ~free
    away[np.arange(COUNT) % len(KINDS) != KINDS.index("far away")] = False
    assert away.sum() > 10 and not (found.status[away] == Status.CONVERGED).any()


@exhaustive
def test_without_limits_nothing_holds_a_joint() -> None:
    arm = jaxik.load_robot(own_tasks.PLANAR)
    q = np.array([1.3, 0.4])  # the first joint's limit is 0.3
    target = arm.frame_pose(q, "tip").translation()
    task = FrameTask(arm.frame("tip"), target, orientation_cost=None)
    free = solve(Problem(arm, {"tip": task}, limits=()), np.array([1.0, 0.8]))
    assert free.status == Status.CONVERGED
    np.testing.assert_allclose(free.q, q, atol=1e-8)
    held = solve(Problem(arm, {"tip": task}), np.array([1.0, 0.8]))
    assert held.status == Status.STALLED and held.q[0] == arm.limit_upper[0]
