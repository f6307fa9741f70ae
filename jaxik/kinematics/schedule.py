"""Which joints a set of frames depends on, and in what order their transforms are composed.

The joints between the world and the requested bodies form a forest. It is cut into chains, heaviest first, so that a
chain starts either at the world or at a joint of an earlier chain; chains of the same round and length are composed
side by side by one scan. A serial arm is one scan, a humanoid two or three. The scan is what keeps XLA from fusing,
and so recomputing, one joint's transform into all later ones.
"""

import dataclasses
import functools

from jaxik.kinematics.frames import Frame
from jaxik.kinematics.topology import WORLD, JointType, Topology, joint_parent, last_joint, subtree


@dataclasses.dataclass(frozen=True)
class Group:
    """Chains of equal length that are composed side by side.

    Attributes:
      start: position in the plan of the group's first segment.
      length: joints per chain.
      parents: for each chain, the position of the segment it hangs on, or WORLD.
    """

    start: int
    length: int
    parents: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The order of evaluation for some frames of a topology.

    A segment is a joint with the frame behind it: origin at the joint's anchor, axes of its body. Segments are stored
    group by group, and in a group by depth and then by chain.

    Attributes:
      joints: the joint of each segment.
      parents: position of each segment's parent segment, or WORLD.
      groups: how the segments are composed.
      frames: the frames asked for.
      frame_segments: for each, the segment that carries it, or WORLD.
      subtrees: root bodies of the subtrees whose centres of mass are asked for.
    """

    topology: Topology
    frames: tuple[Frame, ...]
    subtrees: tuple[int, ...]
    joints: tuple[int, ...]
    parents: tuple[int, ...]
    groups: tuple[Group, ...]
    frame_segments: tuple[int, ...]

    @functools.cached_property
    def position(self) -> dict[int, int]:
        """Joint -> segment."""
        return {joint: i for i, joint in enumerate(self.joints)}

    @functools.cached_property
    def ancestors(self) -> tuple[frozenset[int], ...]:
        """For each segment, itself and all segments that move it."""
        known: dict[int, frozenset[int]] = {WORLD: frozenset()}
        for i in sorted(range(len(self.joints)), key=lambda i: self.joints[i]):
            known[i] = known[self.parents[i]] | {i}
        return tuple(known[i] for i in range(len(self.joints)))

    def of_type(self, *types: JointType) -> tuple[int, ...]:
        """Segments whose joint has one of the types."""
        return tuple(i for i, j in enumerate(self.joints) if self.topology.joints[j].type in types)

    def segment_of_body(self, body: int) -> int:
        joint = last_joint(self.topology, body)
        return WORLD if joint == WORLD else self.position[joint]


@functools.lru_cache(maxsize=512)
def plan(topology: Topology, frames: tuple[Frame, ...], subtrees: tuple[int, ...] = ()) -> Plan:
    """The plan that evaluates the poses of `frames` and the centres of mass of `subtrees`."""
    carriers = [topology.frame_body(f) for f in frames]
    needed: set[int] = set()
    for body in (*carriers, *(body for root in subtrees for body in subtree(topology, root))):
        joint = last_joint(topology, body)
        while joint != WORLD and joint not in needed:
            needed.add(joint)
            joint = joint_parent(topology, joint)
    parent = {j: joint_parent(topology, j) for j in sorted(needed)}
    order, groups = _chains(parent)
    position = {joint: i for i, joint in enumerate(order)} | {WORLD: WORLD}
    return Plan(
        topology=topology,
        frames=frames,
        subtrees=subtrees,
        joints=tuple(order),
        parents=tuple(position[parent[j]] for j in order),
        groups=tuple(
            Group(start, length, tuple(position[parent[joint]] for joint in heads)) for start, length, heads in groups
        ),
        frame_segments=tuple(position[last_joint(topology, body)] for body in carriers),
    )


def _chains(parent: dict[int, int]) -> tuple[list[int], list[tuple[int, int, list[int]]]]:
    """Heavy-path decomposition: the joints in storage order, and (start, length, heads) of each group."""
    children: dict[int, list[int]] = {joint: [] for joint in (*parent, WORLD)}
    for joint, base in parent.items():
        children[base].append(joint)
    depth: dict[int, int] = {}
    for joint in sorted(parent, reverse=True):
        depth[joint] = 1 + max((depth[c] for c in children[joint]), default=0)
    heads = children[WORLD]
    order: list[int] = []
    groups: list[tuple[int, int, list[int]]] = []
    while heads:
        chains: dict[int, list[list[int]]] = {}
        branches: list[int] = []
        for head in heads:
            chain = [head]
            while children[chain[-1]]:
                heavy = max(children[chain[-1]], key=lambda c: depth[c])
                branches += [c for c in children[chain[-1]] if c != heavy]
                chain.append(heavy)
            chains.setdefault(len(chain), []).append(chain)
        for length, members in sorted(chains.items()):
            groups.append((len(order), length, [chain[0] for chain in members]))
            order += [chain[i] for i in range(length) for chain in members]
        heads = branches
    return order, groups
