"""Random kinematic trees with everything that MuJoCo's kinematics can do, as MJCF."""

import functools
import xml.etree.ElementTree as ET

import mujoco
import numpy as np

# Joints on one body, in order. MuJoCo forbids a rotation after a ball joint, and anything beside a free joint.
STACKS: tuple[tuple[str, ...], ...] = (
    ("hinge",),
    ("slide",),
    ("ball",),
    (),
    ("hinge", "hinge"),
    ("slide", "hinge"),
    ("hinge", "slide"),
    ("slide", "slide"),
    ("ball", "slide"),
    ("slide", "ball"),
    ("hinge", "ball"),
    ("hinge", "hinge", "hinge"),
    ("slide", "slide", "hinge"),
)
UNLIMITED_SLIDE = 1.0  # metres either way, in `random_qpos`


def random_tree(
    seed: int,
    *,
    n_bodies: int = 12,
    stacks: tuple[tuple[str, ...], ...] = STACKS,
    free_bodies: int = 1,
    limited: float = 0.7,
) -> str:
    """MJCF of a random tree: ``free_bodies`` free bodies, one mocap body and ``n_bodies`` others.

    The others take the joint stacks of ``stacks`` in shuffled order, each stack once before any comes twice, and hang
    on the world, a free body, the mocap body or one another. Joints have anchors off the body's origin, axes that are
    not of unit length, ``ref`` values, and with probability ``limited`` a range, which may leave out zero, leave out
    ``ref`` or be only 1e-9 wide (MuJoCo refuses a limited joint of zero width, and without ``limited`` reads
    equal bounds as no limit). Bodies have quaternions that are not normalised, inertias off centre and
    rotated, a geom and sometimes sites. The key "bent" is in every tree, "home" only in those of even seed.
    """
    rng = np.random.default_rng(seed)
    root = ET.Element("mujoco", model=f"tree{seed}")
    ET.SubElement(root, "compiler", angle="radian", autolimits="true")
    world = ET.SubElement(root, "worldbody")
    ET.SubElement(world, "site", name="world_site", pos=_vector(rng), quat=_quaternion(rng))

    parents = [world]
    for i in range(free_bodies):
        body = _body(rng, world, f"free{i}")
        ET.SubElement(body, "freejoint", name=f"free{i}_joint")
        parents.append(body)
    mocap = _body(rng, world, "mocap")
    mocap.set("mocap", "true")
    ET.SubElement(mocap, "site", name="mocap_site", pos=_vector(rng), quat=_quaternion(rng))
    parents.append(mocap)

    for i, stack in enumerate(_deal(rng, stacks, n_bodies)):
        # Half of the bodies continue the newest branch: uniform choice alone gives depth log(n).
        parent = parents[-1] if rng.random() < 0.5 else parents[rng.integers(len(parents))]
        body = _body(rng, parent, f"body{i}")
        for k, kind in enumerate(stack):
            _joint(rng, body, f"body{i}_{kind}{k}", kind, limited)
        parents.append(body)

    return _with_keyframes(root, rng, ("bent", "home") if seed % 2 == 0 else ("bent",))


def deep_chain(n: int) -> str:
    """MJCF of ``n`` hinges in a row, axes x, y, z in turn, links 0.1 m apart, with the site "tip" at the end."""
    root = ET.Element("mujoco", model=f"chain{n}")
    ET.SubElement(root, "compiler", angle="radian", autolimits="true")
    body = ET.SubElement(root, "worldbody")
    for i in range(n):
        body = ET.SubElement(body, "body", name=f"link{i}", pos="0 0 0.1")
        axis = ("1 0 0", "0 1 0", "0 0 1")[i % 3]
        ET.SubElement(body, "joint", name=f"joint{i}", type="hinge", axis=axis, range="-2.9 2.9")
        ET.SubElement(body, "inertial", pos="0 0 0.05", mass="0.1", diaginertia="1e-3 1e-3 1e-3")
    ET.SubElement(body, "site", name="tip", pos="0.02 0 0.1", quat="1 0 1 0")
    return ET.tostring(root, encoding="unicode")


@functools.cache
def compiled(seed: int) -> mujoco.MjModel:
    """`random_tree` of the seed, compiled once a process; not to be written to."""
    return mujoco.MjModel.from_xml_string(random_tree(seed))


def random_qpos(model: mujoco.MjModel, rng: np.random.Generator) -> np.ndarray:
    """A configuration, shape (nq,), inside every limit, with unit quaternions wxyz.

    Hinges without limits in (-pi, pi), slides without limits and free positions within `UNLIMITED_SLIDE`; a limited
    ball turns by at most its limit about a random axis.
    """
    qpos = np.empty(model.nq)
    for kind, at, limited, (low, high) in zip(
        model.jnt_type, model.jnt_qposadr, model.jnt_limited, model.jnt_range, strict=True
    ):
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            qpos[at : at + 3] = rng.uniform(-UNLIMITED_SLIDE, UNLIMITED_SLIDE, 3)
            qpos[at + 3 : at + 7] = _unit(rng, 4)
        elif kind == mujoco.mjtJoint.mjJNT_BALL and limited:
            half = rng.uniform(0.0, min(high, np.pi)) / 2
            qpos[at : at + 4] = np.append(np.cos(half), np.sin(half) * _unit(rng, 3))
        elif kind == mujoco.mjtJoint.mjJNT_BALL:
            qpos[at : at + 4] = _unit(rng, 4)
        elif limited:
            qpos[at] = rng.uniform(low, high)
        else:
            reach = np.pi if kind == mujoco.mjtJoint.mjJNT_HINGE else UNLIMITED_SLIDE
            qpos[at] = rng.uniform(-reach, reach)
    return qpos


def _deal(rng: np.random.Generator, stacks: tuple[tuple[str, ...], ...], n: int) -> list[tuple[str, ...]]:
    """``n`` stacks, each of ``stacks`` once before any comes twice."""
    decks = -(-n // len(stacks))
    return [stacks[i] for _ in range(decks) for i in rng.permutation(len(stacks))][:n]


def _body(rng: np.random.Generator, parent: ET.Element, name: str) -> ET.Element:
    body = ET.SubElement(parent, "body", name=name, pos=_vector(rng), quat=_quaternion(rng))
    moments = rng.uniform(1.0, 1.9, 3) * 1e-2  # the triangle inequality holds for any three of these
    ET.SubElement(
        body,
        "inertial",
        pos=_vector(rng),
        quat=_quaternion(rng),
        mass=_text(rng.uniform(0.2, 2.0)),
        diaginertia=_text(*moments),
    )
    ET.SubElement(
        body,
        "geom",
        name=f"{name}_geom",
        type=str(rng.choice(["sphere", "capsule", "box"])),
        size="0.03 0.04 0.05",
        pos=_vector(rng),
        quat=_quaternion(rng),
        contype="0",
        conaffinity="0",
    )
    for i in range(rng.integers(0, 3)):
        ET.SubElement(body, "site", name=f"{name}_site{i}", pos=_vector(rng), quat=_quaternion(rng))
    return body


def _joint(rng: np.random.Generator, body: ET.Element, name: str, kind: str, limited: float) -> None:
    joint = ET.SubElement(body, "joint", name=name, type=kind, pos=_vector(rng))
    has_range = rng.random() < limited
    if kind == "ball":
        if has_range:
            joint.set("range", _text(0.0, rng.uniform(0.3, 3.0)))
        return
    joint.set("axis", _text(*(_unit(rng, 3) * rng.uniform(0.1, 5.0))))
    joint.set("ref", _text(rng.uniform(-0.5, 0.5)))
    if has_range:
        low = rng.uniform(-1.5, 1.0)
        width = 1e-9 if rng.random() < 0.1 else rng.uniform(0.1, 2.0)
        joint.set("range", _text(low, low + width))


def _with_keyframes(root: ET.Element, rng: np.random.Generator, names: tuple[str, ...]) -> str:
    # A key lists qpos in MuJoCo's depth-first order of bodies, which the compiled model knows.
    model = mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))
    keyframe = ET.SubElement(root, "keyframe")
    for name in names:
        ET.SubElement(keyframe, "key", name=name, qpos=_text(*random_qpos(model, rng)))
    return ET.tostring(root, encoding="unicode")


def _unit(rng: np.random.Generator, n: int) -> np.ndarray:
    vector = rng.standard_normal(n)
    return vector / np.linalg.norm(vector)


def _vector(rng: np.random.Generator) -> str:
    return _text(*rng.uniform(-0.3, 0.3, 3))


def _quaternion(rng: np.random.Generator) -> str:
    return _text(*(_unit(rng, 4) * rng.uniform(0.5, 2.0)))


def _text(*numbers: float) -> str:
    return " ".join(f"{number:.17g}" for number in numbers)
