"""Derivatives through closed chains, far from zero: several turns of hinges, metres of slides, all closures."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik import DerivativeStatus, PostureTask, Problem
from jaxik.robot.robot import Robot

# A link of each chain for each row, and its joints; the two chains end at the frames that a closure holds.
CHAINS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "hinges": (("EZ", "EY", "EX", "EZ"), ("EX", "EZ", "EY", "EX")),
    "slides": (("X", "EZ", "EY", "Y"), ("Z", "EX", "EY", "X")),
    "balls": (("EZ", "BALL", "X"), ("BALL", "EY", "Z", "EX")),
    "free": (("EZ", "EX", "Y"), ("FREE",)),
}
CLOSURES = ("spherical", "universal", "hinge", "cylinder", "slide", "weld")
# Several turns, and metres.
TURNS, METRES = 4.0 * np.pi, 3.0
DIRECTIONS, STEP, WORST = 3, 1e-3, 1e-6


@cache
def robot(joints: str) -> Robot:
    made = jaxik.Mechanism(joints)
    for side, chain in zip("ab", CHAINS[joints], strict=True):
        parent = "world"
        for i, kind in enumerate(chain):
            place = np.array([0.2, 0.1 * i - 0.05, 0.15 if side == "a" else -0.1])
            made.link(f"{side}{i}", *([] if parent == "world" else [parent]), position=place, joints=kind)
            parent = f"{side}{i}"
        made.frame(f"end_{side}", parent, position=(0.1, 0.05, 0.2))
    return made.build().astype(np.float64)


def far(tree: Robot) -> np.ndarray:
    """A configuration (nq,) with hinges beyond two turns and slides metres away."""
    q = np.array(tree.integrate(tree.qpos0, jnp.asarray(np.random.default_rng(1).uniform(-0.6, 0.6, tree.nv))))
    for joint in tree.topology.joints:
        kind = joint.type.name
        if kind in ("HINGE", "SLIDE"):
            q[joint.q_index] += (TURNS if kind == "HINGE" else METRES) * (1 if joint.q_index % 2 else -1)
        elif kind == "FREE":
            q[joint.q_index : joint.q_index + 3] += METRES
    return q


@exhaustive
@pytest.mark.parametrize("kind", CLOSURES)
@pytest.mark.parametrize("joints", CHAINS)
def test_derivatives_by_targets_and_geometry_are_central_differences(joints: str, kind: str) -> None:
    tree = robot(joints)
    q = jnp.asarray(far(tree))
    closed = tree.with_closure("loop", "end_a", "end_b", kind, axis=(0.2, -0.4, 1.0), q=q)
    shape = closed.body_position.shape

    def nearest(change: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
        """The closed configuration nearest to a posture, of links and an end that are elsewhere."""
        aim, bodies, site = change
        other = dataclasses.replace(
            closed,
            body_position=closed.body_position + bodies,
            site_position=closed.site_position.at[closed.frame("end_a").index].add(site),
        )
        task = PostureTask(closed.integrate(q, 0.05 + aim), free_joints=True)
        found = jaxik.solve(Problem(other, {"near": task}), q)
        return found.q, found

    @jax.jit
    def along(change: Any, direction: Any) -> tuple[jax.Array, jax.Array, Any]:
        value, slope, found = jax.jvp(nearest, (change,), (direction,), has_aux=True)
        return value, slope, found

    none = jnp.zeros(tree.nv), jnp.zeros(shape), jnp.zeros(3)
    rng = np.random.default_rng(0)
    for _ in range(DIRECTIONS):
        direction = jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape)), none)
        _, slope, found = along(none, direction)
        assert found.converged and float(jnp.linalg.norm(found.residuals["model"])) < 1e-9
        assert found.derivative_status == DerivativeStatus.EXACT

        def at(h: float, direction: Any = direction) -> np.ndarray:
            return np.asarray(along(jax.tree.map(lambda d: h * d, direction), direction)[0])

        # Of fourth order: h^4 = 1e-12, and the solution's 1e-11 over h.
        near, wide = at(STEP) - at(-STEP), at(2 * STEP) - at(-2 * STEP)
        np.testing.assert_allclose(slope, (8 * near - wide) / (12 * STEP), atol=WORST * max(1, np.abs(slope).max()))
