"""A robot without its dangling branches: what moves no frame of interest and closes no loop."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import core_ranks
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import Geometry
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import WORLD, Topology, changed, joint_parent, last_joint
from jaxik.kinematics.visual import UNSEEN, Visual

Model = TypeVar("Model", bound=RobotModel)


@dataclasses.dataclass(frozen=True)
class Kept:
    """What stays of a robot, by old indices in their old order; the parent of each body among them."""

    bodies: list[int]
    joints: list[int]
    sites: list[int]
    geoms: list[int]
    tendons: list[int]
    equalities: list[int]


def find_roots(topology: Topology, frames: Sequence[Frame]) -> tuple[str, ...]:
    """See `Robot.find_roots`."""
    moving = {_root(topology, joint.body) for joint in topology.joints}
    roots = {_root(topology, topology.frame_body(frame)) for frame in frames} - {0} if frames else moving
    return tuple(topology.body_names[root] for root in sorted(roots))


def _root(topology: Topology, body: int) -> int:
    """The body on the world that carries this one; the world's own is the world."""
    while topology.body_parents[body]:
        body = topology.body_parents[body]
    return body


def trimmed(robot: Model, frames: Sequence[Frame]) -> Model:
    """See `Robot.trimmed`."""
    topology = robot.topology
    kept = _kept(topology, frames, _bounded(robot))
    if not kept.joints:
        raise JaxikError(f"nothing of {topology.name} would move: name frames that its joints move")
    rows = {name: row for name, row in _rows(topology, kept).items() if getattr(robot, name) is not None}
    places = tuple((axis, tuple(indices)) for axis, indices in rows.values())
    leaves = dict(zip(rows, _taken([getattr(robot, name) for name in rows], places), strict=True))
    return dataclasses.replace(
        robot,
        topology=_topology(topology, kept),
        geometry=None if robot.geometry is None else _geometry(robot.geometry, kept.bodies),
        visual=_visual(robot.visual, kept.bodies),
        **leaves,
    )


@partial(jax.jit, static_argnums=1, inline=True)
def _taken(values: list[jax.Array], places: tuple[tuple[int, tuple[int, ...]], ...]) -> list[jax.Array]:
    """Entries of each value along an axis."""
    pairs = zip(values, places, strict=True)
    return [jnp.take(value, np.array(indices, int), axis=axis) for value, (axis, indices) in pairs]


def cut_out(robot: Model, each: Sequence[Kept]) -> Model:
    """What moves of a robot where no more than this is kept, without names, shapes and looks.

    Args:
      each: one, or several that differ in their indices alone: then a batch axis of theirs is the last of every leaf.
    """
    topology = robot.topology
    rows, own = [_rows(topology, kept) for kept in each], topology_of(topology, each[0])
    ranks = core_ranks(robot)
    leaves = {
        name: _cut(value, [of[name][1] for of in rows], axis, getattr(ranks, name))
        for name, (axis, _) in rows[0].items()
        if (value := getattr(robot, name)) is not None
    }
    return dataclasses.replace(robot, topology=own, geometry=None, visual=UNSEEN, **leaves)


def _cut(value: jax.Array, each: Sequence[list[int]], axis: int, rank: int) -> jax.Array:
    """Entries along an axis, counted from the last; of several in the place of a batch axis before the core's."""
    if len(each) == 1:
        return jnp.take(value, np.array(each[0], int), axis=axis)
    # By one axis of indices: with two, jnp.take gives none of an axis without entries.
    at = value.ndim + axis
    flat = jnp.take(value, np.array(each, int).reshape(-1), axis=at)
    apart = flat.reshape(*flat.shape[:at], len(each), len(each[0]), *flat.shape[at + 1 :])
    return jnp.moveaxis(apart, at, apart.ndim - 1 - rank)


def topology_of(topology: Topology, kept: Kept) -> Topology:
    """What `cut_out` leaves of a topology: the same of parts that are alike."""
    own = _topology(topology, kept)
    return changed(
        own,
        name="part",
        body_names=tuple(map(str, range(len(own.body_names)))),
        joints=tuple(dataclasses.replace(joint, name=str(i)) for i, joint in enumerate(own.joints)),
        sites=tuple(("", body) for _, body in own.sites),
        geoms=tuple(("", body) for _, body in own.geoms),
        equalities=tuple(map(_nameless, own.equalities)),
        tendons=tuple(dataclasses.replace(tendon, name="") for tendon in own.tendons),
    )


def frame_of(kept: Kept, frame: Frame) -> Frame:
    """A frame of what stays, where `cut_out` has it."""
    return Frame(
        frame.kind, {"body": kept.bodies, "site": kept.sites, "geom": kept.geoms}[frame.kind].index(frame.index)
    )


def _nameless(equality: Equality) -> Equality:
    frames = tuple(dataclasses.replace(frame, name="") for frame in equality.frames)
    return dataclasses.replace(equality, name="", frames=frames)


def _rows(topology: Topology, kept: Kept) -> dict[str, tuple[int, list[int]]]:
    """Of each leaf the axis, from the last, along which it is cut, and what stays."""
    joints = [topology.joints[j] for j in kept.joints]
    q, v = ([i for joint in joints for i in getattr(joint, name)] for name in ("q_indices", "v_indices"))
    tendons = [topology.tendons[t] for t in kept.tendons]
    weights = [t.start + i for t in tendons for i in range(len(t.joints) + len(t.spans))]
    rows = {
        -1: {
            "body_mass": kept.bodies,
            "limit_lower": kept.joints,
            "limit_upper": kept.joints,
            "velocity_limit": v,
            "armature": v,
            "qpos0": q,
            "q_home": q,
            "keyframes": q,
            "tendon_coefficients": weights,
            "tendon_reference": kept.tendons,
            "equality_active": kept.equalities,
        },
        -2: {
            "body_position": kept.bodies,
            "body_quaternion": kept.bodies,
            "body_center": kept.bodies,
            "joint_anchor": kept.joints,
            "joint_axis": kept.joints,
            "site_position": kept.sites,
            "site_quaternion": kept.sites,
            "geom_position": kept.geoms,
            "geom_quaternion": kept.geoms,
            "equality_data": kept.equalities,
        },
        -3: {"body_inertia": kept.bodies},
    }
    return {name: (axis, indices) for axis, fields in rows.items() for name, indices in fields.items()}


def _bounded(robot: RobotModel) -> set[int]:
    """Joints that have a limit in any element, as far as that is known."""
    limits = robot.limit_lower, robot.limit_upper
    if any(isinstance(x, Tracer) for x in limits):
        return set(range(len(robot.topology.joints)))
    finite = np.isfinite(limits[0]) | np.isfinite(limits[1])
    return set(np.flatnonzero(finite.reshape(-1, finite.shape[-1]).any(axis=0)).tolist())


def _kept(topology: Topology, frames: Sequence[Frame], bounded: Collection[int]) -> Kept:
    interest = [topology.frame_body(frame) for frame in frames]
    mocap = set(topology.mocap_bodies)
    for closure in topology.closures:
        if topology.can_evaluate(closure) and not mocap & set(closure.bodies):
            interest += closure.bodies
    joints = _with_coupled(topology, {last_joint(topology, body) for body in interest}, bounded)
    bodies = [b for b in range(len(topology.body_names)) if last_joint(topology, b) in joints | {WORLD}]
    inside = set(bodies)
    sites, geoms = ([i for i, (_, body) in enumerate(x) if body in inside] for x in (topology.sites, topology.geoms))
    tendons = [
        i
        for i, tendon in enumerate(topology.tendons)
        if joints.issuperset(tendon.joints) and set(sites).issuperset(s for span in tendon.spans for s in span)
    ]
    members = {"joint": joints, "tendon": set(tendons)}
    equalities = [
        e.index
        for e in topology.equalities
        if members.get(e.kind, set(e.members)).issuperset(e.members) and inside.issuperset(e.bodies)
    ]
    return Kept(bodies, sorted(joints), sites, geoms, tendons, equalities)


def _with_coupled(topology: Topology, joints: Iterable[int], bounded: Collection[int]) -> set[int]:
    """Joints with those that carry them, those that drive them, and those that bound them, by a coupling."""
    found, waiting = set[int](), set(joints) - {WORLD}
    while waiting:
        joint = waiting.pop()
        found.add(joint)
        leaders = {c.leader for c in topology.couplings if c.follower == joint and c.leader is not None}
        followers = {c.follower for c in topology.couplings if c.leader == joint and c.follower in bounded}
        waiting |= ({joint_parent(topology, joint)} | leaders | followers) - found - {WORLD}
    return found


def _topology(topology: Topology, kept: Kept) -> Topology:
    bodies, joints, sites, geoms, tendons = (
        {old: new for new, old in enumerate(x)}
        for x in (kept.bodies, kept.joints, kept.sites, kept.geoms, kept.tendons)
    )
    places = {"body": bodies, "site": sites, "geom": geoms}
    moved, q, v, start = [], 0, 0, 0
    for j in kept.joints:
        joint = topology.joints[j]
        moved.append(dataclasses.replace(joint, body=bodies[joint.body], q_index=q, v_index=v))
        q, v = q + joint.type.nq, v + joint.type.nv
    lengths = []
    for t in kept.tendons:
        tendon = topology.tendons[t]
        spans = tuple((sites[a], sites[b]) for a, b in tendon.spans)
        own = tuple(joints[j] for j in tendon.joints)
        lengths.append(dataclasses.replace(tendon, start=start, joints=own, spans=spans))
        start += len(own) + len(spans)

    def equality(index: int, old: Equality) -> Equality:
        by_kind = {"joint": joints, "tendon": tendons}.get(old.kind)
        return dataclasses.replace(
            old,
            index=index,
            frames=tuple(dataclasses.replace(f, index=places[f.kind][f.index]) for f in old.frames),
            members=old.members if by_kind is None else tuple(by_kind[m] for m in old.members),
            bodies=tuple(bodies[b] for b in old.bodies),
        )

    return changed(
        topology,
        body_names=tuple(topology.body_names[b] for b in kept.bodies),
        body_parents=tuple(bodies[topology.body_parents[b]] for b in kept.bodies),
        joints=tuple(moved),
        sites=tuple((topology.sites[i][0], bodies[topology.sites[i][1]]) for i in kept.sites),
        geoms=tuple((topology.geoms[i][0], bodies[topology.geoms[i][1]]) for i in kept.geoms),
        mocap_bodies=tuple(bodies[b] for b in topology.mocap_bodies if b in bodies),
        equalities=tuple(equality(new, topology.equalities[old]) for new, old in enumerate(kept.equalities)),
        tendons=tuple(lengths),
    )


def _geometry(shapes: Geometry, bodies: list[int]) -> Geometry:
    place = {old: new for new, old in enumerate(bodies)}
    own = [i for i, body in enumerate(shapes.bodies) if body in place]
    at, names = {old: new for new, old in enumerate(own)}, {shapes.names[i] for i in own}
    hulls = [i for i, kind in enumerate(shapes.kinds) if kind == "hull"]
    rows, corners = np.array(own, int), np.array([n for n, i in enumerate(hulls) if i in at], int)
    return dataclasses.replace(
        shapes,
        names=tuple(shapes.names[i] for i in own),
        bodies=tuple(place[shapes.bodies[i]] for i in own),
        kinds=tuple(shapes.kinds[i] for i in own),
        pairs=tuple((at[a], at[b]) for a, b in shapes.pairs if a in at and b in at),
        home=tuple((at[a], at[b], distance) for a, b, distance in shapes.home if a in at and b in at),
        dropped=tuple(pair for pair in shapes.dropped if {pair.first, pair.second} <= names),
        position=jnp.take(shapes.position, rows, axis=-2),
        quaternion=jnp.take(shapes.quaternion, rows, axis=-2),
        size=jnp.take(shapes.size, rows, axis=-2),
        corners=jnp.take(shapes.corners, corners, axis=-3),
    )


def _visual(visual: Visual, bodies: list[int]) -> Visual:
    if not visual.body.size and not visual.bare:
        return visual
    place = {old: new for new, old in enumerate(bodies)}
    own = np.array([i for i, body in enumerate(visual.body) if int(body) in place], int)
    return Visual(
        body=np.array([place[int(visual.body[i])] for i in own], int),
        kind=visual.kind[own],
        size=visual.size[own],
        position=visual.position[own],
        quaternion=visual.quaternion[own],
        color=visual.color[own],
        meshes=tuple(visual.meshes[i] for i in own),
        bare=tuple(place[body] for body in visual.bare if body in place),
    )
