"""Joint values of a `mujoco.MjData`, by name."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxik.core.errors import unknown_name


def read_joints(data: Any, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The coordinates of each joint, a copy."""
    return {name: np.array(_joint(data, name).qpos) for name in names}


def write_joints(data: Any, values: Mapping[str, Any]) -> None:
    """Write coordinates into `data.qpos`."""
    for name, value in values.items():
        _joint(data, name).qpos[:] = np.asarray(value)


def _joint(data: Any, name: str) -> Any:
    try:
        return data.joint(name)
    except KeyError:
        model = data.model
        raise unknown_name("joint", name, [model.joint(i).name for i in range(model.njnt)]) from None
