"""What is no FrameTask is refused on the host, with the valid choices."""

from typing import Any

import jaxlie
import numpy as np
import pytest

from jaxik import Frame, FrameTask, JaxikError

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a name as the frame", {"frame": "tcp"}, r"frame is a Frame, from robot\.frame\(name\); not 'tcp'"),
    ("unknown axes", {"axes": "base"}, r"axes is one of frame, target, world, not 'base'"),
    ("no rows", {"position_cost": None, "orientation_cost": None}, "both None: the task has no rows"),
    ("no target", {"target": None}, r"target is a jaxlie\.SE3, .* not NoneType"),
    (
        "a position as a pose",
        {"target": np.zeros(3)},
        r"position \(\*batch, 3\) where orientation_cost=None, or .* not an array of shape \(3,\)",
    ),
    ("a matrix as a pose", {"target": np.eye(4)}, r"not an array of shape \(4, 4\)\. From arrays: jaxlie\.SE3"),
    ("a rotation as a pose", {"target": jaxlie.SO3.identity()}, r"not jaxlie\.SO3"),
    ("a negative cost", {"position_cost": -1.0}, "position_cost must not be negative"),
    ("a negative entry", {"orientation_cost": np.array([1, -1, 1])}, "orientation_cost must not be negative"),
    ("a batch of costs without their axis", {"position_cost": np.ones(5)}, r"position_cost is a number, .* not \(5,\)"),
    (
        "a word as a cost",
        {"orientation_cost": "high"},
        "orientation_cost is a number or an array of numbers, not 'high'",
    ),
    ("a negative gain", {"gain": -0.5}, "gain must not be negative"),
    ("a negative tolerance", {"position_tolerance": -1e-4}, "position_tolerance must not be negative"),
    ("a word as a tolerance", {"orientation_tolerance": "fine"}, "orientation_tolerance is a number"),
    ("negative damping", {"lm_damping": -1}, "lm_damping must not be negative"),
    (
        "a mask of the wrong length",
        {"mask": np.ones(3)},
        r"mask has shape \(\*batch, 6\), linear rows first; not \(3,\)",
    ),
    ("a mask of one number", {"mask": True}, r"mask has shape .* not \(\)"),
    ("a word as a mask", {"mask": "xyz"}, "mask is a number or an array of numbers, not 'xyz'"),
    ("a negative mask", {"mask": np.array([1, 1, 1, 1, 1, -1])}, "mask must not be negative"),
]


@pytest.mark.parametrize(("change", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_no_task_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(JaxikError, match=message):
        FrameTask(**({"frame": Frame("site", 0, "tcp"), "target": jaxlie.SE3.identity()} | change))
