"""Joint values of a `mujoco.MjData`, by name; those without one have that of `load_robot`."""

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


def own_names(names: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """The names, with one of its own for each thing that has none."""
    found = []
    for i, name in enumerate(names):
        own = name or f"{kind}{i}"
        while not name and own in names:
            own += "_"
        found.append(own)
    return tuple(found)


def _joint(data: Any, name: str) -> Any:
    try:
        return data.joint(name)
    except KeyError:
        # Not for every name: of each there would be a list of all.
        model = data.model
        known = own_names(tuple(model.joint(i).name for i in range(model.njnt)), "joint")
        if name not in known:
            raise unknown_name("joint", name, known) from None
        return data.joint(known.index(name))
