"""Two slides along one line, both of which move the tip: paths are linear, and motions are minima of programs."""

from functools import cache
from typing import Any

import daqp
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np

import jaxik

# By how far "far" and "near" may go.
RANGE = np.array([9.0, 8.85])
SLIDES = """<mujoco><worldbody><body>
  <joint name="far" type="slide" axis="1 0 0" range="-9 9"/><geom size=".05"/><site name="mid"/>
  <body><joint name="near" type="slide" axis="1 0 0" range="-8.85 8.85"/><geom size=".05"/>
    <site name="tip"/></body></body></worldbody></mujoco>"""
STEPS, DT = 18, 0.1
TIMES = np.linspace(0, 1, STEPS + 1)[1:]
START, VELOCITY = np.array([0.3, -0.3]), np.array([0.2, 0.3])
# Of squared displacements, and their first and second differences.
WEIGHTS = 1.0, 64.0, 4096.0


@cache
def slides() -> jaxik.Robot:
    return jaxik.load_robot(mujoco.MjModel.from_xml_string(SLIDES))


def places() -> np.ndarray:
    """Of the tip (STEPS,) [m]."""
    return 0.9 * TIMES - 0.04 * np.sin(2 * np.pi * TIMES)


def along(x: Any) -> jaxlie.SE3:
    """Poses at places (...) of the line."""
    x = jnp.asarray(x)
    return jaxlie.SE3.from_translation(jnp.stack([x, 0 * x, 0 * x], axis=-1))


def differences() -> list[np.ndarray]:
    """Matrices of displacements, and their first and second differences, from three stages before the first on."""
    found = [np.diff(np.eye(STEPS + 3), axis=0)]
    for _ in WEIGHTS[1:]:
        found.append(np.diff(found[-1], axis=0))
    return found


def of_joint(rows: np.ndarray, joint: int) -> np.ndarray:
    """Rows over stages as rows over both joints at all stages."""
    return np.kron(rows, np.eye(2)[joint])


def movement() -> np.ndarray:
    """The Hessian of what a motion moves."""
    blocks = [of_joint(rows, joint) for rows in differences() for joint in range(2)]
    return sum(w * x.T @ x for w, x in zip(np.repeat(WEIGHTS, 2), blocks, strict=True))


def known() -> tuple[np.ndarray, np.ndarray]:
    """Rows that are given, and their values: the start and two stages before it, and the tip's places."""
    rows = np.concatenate([np.eye(2 * (STEPS + 3))[:6], np.kron(np.eye(STEPS + 3), np.ones((1, 2)))[3:]])
    return rows, np.concatenate([*(START - k * DT * VELOCITY for k in (2, 1, 0)), places()])


def minimum(program: tuple[np.ndarray, ...]) -> np.ndarray:
    """The motion (3 + STEPS, 2) of a program of H, c, rows, and their lower and upper bounds, by DAQP."""
    bent, price, matrix, lower, upper = program
    sense = np.where(lower == upper, 5, 0).astype(np.int32)
    x, _, flag, _ = daqp.solve(bent, price, matrix, upper, lower, sense, primal_tol=1e-11, dual_tol=1e-11)
    assert flag == 1
    return x[: 2 * (STEPS + 3)].reshape(-1, 2)
