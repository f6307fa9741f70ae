"""Switch equality constraints on and off, by masks and indices that may be traced."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError, unknown_name
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import Topology, changed

Model = TypeVar("Model", bound=RobotModel)


def candidate(name: str, frame: str) -> str:
    """The name of a closure that is one of several candidates."""
    return f"{name}/{frame}"


def with_active(robot: Model, active: Mapping[str, Any]) -> Model:
    """See `Robot.with_active`."""
    if not isinstance(active, Mapping):
        raise JaxikError(f'active is a dict such as {{"loop": False}}, not {type(active).__name__}')
    if not active:
        return robot
    topology = robot.topology
    flags = active_of(robot)
    switched: list[int] = []
    for name, value in active.items():
        found = _named(topology, name)
        for equality in found:
            _check(topology, equality)
        grouped = found[0].name != name
        columns = (
            _chosen(name, value, len(found))
            if grouped
            else validation.flags(f"active[{name!r}] is True or False, (*batch) of them", value)[..., None]
        )
        batch = np.broadcast_shapes(flags.shape[:-1], columns.shape[:-1])
        places = np.array([equality.index for equality in found])
        flags = jnp.broadcast_to(flags, (*batch, flags.shape[-1])).at[..., places].set(columns.astype(flags.dtype))
        switched += places.tolist()
    equalities = tuple(dataclasses.replace(e, active=True) if e.index in switched else e for e in topology.equalities)
    return dataclasses.replace(robot, topology=changed(topology, equalities=equalities), equality_active=flags)


def active_of(robot: RobotModel) -> jax.Array:
    """1 for each equality constraint (*batch, nequality) that holds, 0 for the others."""
    if robot.equality_active is not None:
        return robot.equality_active
    return jnp.asarray([float(e.active) for e in robot.topology.equalities], robot.equality_data.dtype)


def _named(topology: Topology, name: str) -> list[Equality]:
    """The constraint of a name, or all candidates of it."""
    known = {e.name: e for e in topology.equalities if e.name}
    if name in known:
        return [known[name]]
    found = [e for known_as, e in known.items() if known_as.startswith(candidate(str(name), ""))]
    if not found:
        raise unknown_name("equality constraint", str(name), tuple(known))
    return found


def _check(topology: Topology, equality: Equality) -> None:
    if equality.kind == "joint":
        raise JaxikError(
            f"the joint coupling {equality.label!r} of {topology.name} is part of its coordinates and cannot be "
            "switched; a constraint of the problem can: EqualityConstraintTask(robot.equalities(...), cost=0 or 1)"
        )
    if not topology.can_evaluate(equality):
        raise JaxikError(f"the equality constraint {equality.label!r} of {topology.name} cannot be evaluated")


def _chosen(name: str, value: Any, count: int) -> jax.Array:
    """(*batch, count) of bool from the indices (*batch) of candidates."""
    given = None if isinstance(value, Tracer) else np.asarray(value)
    index = jnp.asarray(value)
    outside = given is not None and not ((given >= -1) & (given < count)).all()
    if not jnp.issubdtype(index.dtype, jnp.integer) or outside:
        raise JaxikError(
            f"active[{name!r}] is the index of a candidate, 0 to {count - 1}, or -1 for none, (*batch) of them, not "
            f"{value!r}"
        )
    return index[..., None] == jnp.arange(count)
