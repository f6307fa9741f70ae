"""What of a robot is static: which bodies, joints and frames exist and how they hang together."""

import dataclasses
import enum
import functools
import weakref
from typing import Any

from jaxik.core.errors import JaxikError, UnknownNameError, unknown_name
from jaxik.kinematics.equality import EQUALITY_ROWS, Coupling, Equality, Tendon
from jaxik.kinematics.frames import Frame

# Stands for the world where a joint is meant.
WORLD = -1


class JointType(enum.IntEnum):
    """Joint types with MuJoCo's numbers."""

    FREE = 0
    BALL = 1
    SLIDE = 2
    HINGE = 3

    @property
    def nq(self) -> int:
        return (7, 4, 1, 1)[self]

    @property
    def nv(self) -> int:
        return (6, 3, 1, 1)[self]

    @property
    def q_units(self) -> tuple[str, ...]:
        """Unit of each coordinate; "1" of a quaternion, wxyz."""
        return (("m",) * 3 + ("1",) * 4, ("1",) * 4, ("m",), ("rad",))[self]


@dataclasses.dataclass(frozen=True)
class Joint:
    """One joint: its type, its body, and where its coordinates start in `q` and in the tangent."""

    name: str
    type: JointType
    body: int
    q_index: int
    v_index: int

    @property
    def q_indices(self) -> tuple[int, ...]:
        return tuple(range(self.q_index, self.q_index + self.type.nq))

    @property
    def v_indices(self) -> tuple[int, ...]:
        return tuple(range(self.v_index, self.v_index + self.type.nv))


@dataclasses.dataclass(frozen=True, eq=False)
class Topology:
    """The static part of a robot. Equal topologies are the same object, so comparing and hashing are O(1).

    Attributes:
      body_names, body_parents: body 0 is the world, its own parent; parents precede children.
      joints: in MuJoCo's order, which is the order of evaluation on a body.
      sites, geoms: for each, its name ("" where it has none) and its body.
      mocap_bodies: bodies whose pose is set from outside, as the leaves body_position and body_quaternion.
      equalities: the model's equality constraints, in its order, active or not.
    """

    name: str
    body_names: tuple[str, ...]
    body_parents: tuple[int, ...]
    joints: tuple[Joint, ...]
    sites: tuple[tuple[str, int], ...]
    geoms: tuple[tuple[str, int], ...]
    mocap_bodies: tuple[int, ...] = ()
    keyframes: tuple[str, ...] = ()
    equalities: tuple[Equality, ...] = ()
    tendons: tuple[Tendon, ...] = ()

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Topology) and self._hash == other._hash and self._key == other._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return intern, self._key

    @functools.cached_property
    def nq(self) -> int:
        return sum(j.type.nq for j in self.joints)

    @functools.cached_property
    def nv(self) -> int:
        return sum(j.type.nv for j in self.joints)

    @functools.cached_property
    def body_joints(self) -> tuple[tuple[int, ...], ...]:
        """For each body, its joints in order."""
        return tuple(
            tuple(i for i, j in enumerate(self.joints) if j.body == body) for body in range(len(self.body_names))
        )

    @functools.cached_property
    def joint_names(self) -> tuple[str, ...]:
        return tuple(j.name for j in self.joints)

    @functools.cached_property
    def has_home(self) -> bool:
        """Whether the model names a home, as the keyframe "home"."""
        return "home" in self.keyframes

    @functools.cached_property
    def q_columns(self) -> tuple[tuple[str, str], ...]:
        """For each coordinate of a configuration, its joint and its unit: "rad", "m", or "1" of a quaternion wxyz."""
        return tuple((joint.name, unit) for joint in self.joints for unit in joint.type.q_units)

    @functools.cached_property
    def scalar_joints(self) -> tuple[int, ...]:
        """Hinges and slides."""
        return tuple(i for i, j in enumerate(self.joints) if j.type in (JointType.HINGE, JointType.SLIDE))

    @functools.cached_property
    def ball_joints(self) -> tuple[int, ...]:
        return tuple(i for i, j in enumerate(self.joints) if j.type is JointType.BALL)

    @functools.cached_property
    def free_joints(self) -> tuple[int, ...]:
        return tuple(i for i, j in enumerate(self.joints) if j.type is JointType.FREE)

    @functools.cached_property
    def couplings(self) -> tuple[Coupling, ...]:
        """The active equality constraints between joints."""
        active = [e for e in self.equalities if e.active and e.kind == "joint"]
        return tuple(Coupling(e.name, e.members[0], e.members[1] if len(e.members) > 1 else None) for e in active)

    @functools.cached_property
    def closures(self) -> tuple[Equality, ...]:
        """The active equality constraints that are no joint couplings."""
        return tuple(e for e in self.equalities if e.active and e.kind != "joint")

    def can_evaluate(self, equality: Equality) -> bool:
        """Whether kinematics know its residual: not for kinds such as "flex", nor for tendons that go round a geom."""
        wraps = equality.kind == "tendon" and any(self.tendons[t].wraps for t in equality.members)
        return equality.kind in (*EQUALITY_ROWS, "closure") and not wraps

    def body_index(self, name: str) -> int:
        if name not in self.body_names:
            raise unknown_name("body", name, self.body_names)
        return self.body_names.index(name)

    def joint_index(self, name: str) -> int:
        if name not in self.joint_names:
            raise unknown_name("joint", name, self.joint_names)
        return self.joint_names.index(name)

    @functools.cached_property
    def carriers(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """For each kind of frame, name and body of every frame."""
        return {
            "site": self.sites,
            "body": tuple((name, body) for body, name in enumerate(self.body_names)),
            "geom": self.geoms,
        }

    def frame_body(self, frame: Frame) -> int:
        """The body that carries `frame`."""
        return self._carrier(frame)[1]

    def check_frame(self, frame: Frame) -> None:
        """Raise a JaxikError if `frame` is not one of this topology, but of another robot."""
        here, _ = self._carrier(frame)
        if frame.name and frame.name != here:
            raise JaxikError(
                f"frame {frame.name!r} is of another robot: {frame.kind} {frame.index} of {self.name} is {here!r}; "
                f"take robot.frame({frame.name!r}) of this one"
            )

    def _carrier(self, frame: Frame) -> tuple[str, int]:
        frames = self._of_kind(frame.kind)
        if not 0 <= frame.index < len(frames):
            raise JaxikError(f"{frame.kind} index {frame.index} is out of range: {self.name} has {len(frames)}")
        return frames[frame.index]

    def _of_kind(self, kind: str) -> tuple[tuple[str, int], ...]:
        if kind not in self.carriers:
            raise JaxikError(f"a frame's kind is 'body', 'site' or 'geom', not {kind!r}")
        return self.carriers[kind]

    def frame(self, name: str, kind: str | None = None) -> Frame:
        """The frame of that name; sites are meant before bodies and bodies before geoms only where `kind` says so.

        Raises:
          UnknownNameError: if there is none; lists the near names.
          JaxikError: if the name is ambiguous and `kind` is not given.
        """
        kinds = list(self.carriers) if kind is None else [kind]
        names = {k: [n for n, _ in self._of_kind(k)] for k in kinds}
        found = [Frame(k, names[k].index(name), name) for k in kinds if name and name in names[k]]
        if not found:
            if name in self.joint_names:
                moved = self.body_names[self.joints[self.joint_index(name)].body]
                raise UnknownNameError(f"{name!r} is a joint, and no {kind or 'frame'}: it moves the body {moved!r}")
            raise unknown_name(kind or "frame", name, [n for k in kinds for n in names[k] if n])
        if len(found) > 1:
            which = " or ".join(f'kind="{f.kind}"' for f in found)
            such = f'robot.frame({name!r}, kind="{found[0].kind}")'
            raise JaxikError(f"frame {name!r} is ambiguous in {self.name}: say {which}, as {such} does")
        return found[0]


_interned: "weakref.WeakValueDictionary[int, Topology]" = weakref.WeakValueDictionary()


def intern(*key: Any) -> Topology:
    """The one `Topology` of these fields."""
    topology = Topology(*key)
    known = _interned.get(topology._hash)
    if known is not None and known == topology:
        return known
    _interned[topology._hash] = topology
    return topology


def changed(topology: Topology, **fields: Any) -> Topology:
    """The topology with some of its fields changed."""
    return intern(*({f.name: getattr(topology, f.name) for f in dataclasses.fields(Topology)} | fields).values())


def last_joint(topology: Topology, body: int) -> int:
    """The nearest joint that moves `body`, or WORLD."""
    while body:
        if topology.body_joints[body]:
            return topology.body_joints[body][-1]
        body = topology.body_parents[body]
    return WORLD


def joint_parent(topology: Topology, joint: int) -> int:
    """The joint that moves the base of `joint`, or WORLD."""
    body = topology.joints[joint].body
    siblings = topology.body_joints[body]
    place = siblings.index(joint)
    return siblings[place - 1] if place else last_joint(topology, topology.body_parents[body])


def subtree(topology: Topology, root: int) -> tuple[int, ...]:
    """The bodies of the subtree that starts at `root`, itself included."""
    inside = {root}
    for body in range(root + 1, len(topology.body_names)):
        if topology.body_parents[body] in inside:
            inside.add(body)
    return tuple(sorted(inside))


def dofs_of_entries(topology: Topology) -> list[int]:
    """A degree of freedom for each entry of a configuration."""
    dofs: list[int] = []
    for joint in topology.joints:
        start = joint.v_index
        if joint.type is JointType.FREE:
            dofs += [*range(start, start + 3), *[start + 3] * 4]
        else:
            dofs += [start] * (4 if joint.type is JointType.BALL else 1)
    return dofs
