"""`Mechanism`: links, joints and closures, written down in Python."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from jaxik.core.errors import JaxikError, unknown_name
from jaxik.kinematics.equality import CLOSURES
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot

# Degrees of freedom of a link in its parent, in the order in which they act: translation, then Rz Ry Rx.
AXES = {"X": (1, 0, 0), "Y": (0, 1, 0), "Z": (0, 0, 1), "EZ": (0, 0, 1), "EY": (0, 1, 0), "EX": (1, 0, 0)}
# Of the mechanism's size: how thick links are drawn.
THICKNESS = 0.02
# MuJoCo has no hinge between bodies of a loop: two points of its axis are held, so far apart [m].
APART = 0.1
WORLD = "world"
# The directions of a closure that holds a point.
POINT = {0, 1, 2}


@dataclasses.dataclass(frozen=True)
class _Closure:
    name: str
    first: str
    second: str
    kind: str | tuple[str, ...]
    axis: tuple[float, ...]


class Mechanism:
    """A mechanism in the making: a tree of links, and closures that make loops of it.

    >>> linkage = Mechanism("four_bar")
    >>> linkage.link("crank", joints="EZ")
    >>> linkage.link("coupler", "crank", position=(0.1, 0, 0), joints="EZ")
    >>> linkage.link("rocker", position=(0.3, 0, 0), joints="EZ", rest=2.0)
    >>> linkage.frame("pin", "coupler", position=(0.35, 0, 0))
    >>> linkage.frame("end", "rocker", position=(0.2, 0, 0))
    >>> linkage.closure("loop", "pin", "end", "hinge")
    >>> robot = linkage.build()

    Args:
      name: of the robot.
    """

    def __init__(self, name: str = "mechanism") -> None:
        """Start with the world alone."""
        self.name = name
        self._spec = mujoco.MjSpec()
        self._spec.modelname = name
        self._spec.compiler.degree = False
        self._bodies: dict[str, Any] = {WORLD: self._spec.worldbody}
        self._points: list[tuple[str, np.ndarray]] = []
        self._masses: dict[str, float] = {}
        self._rest: dict[str, float] = {}
        self._frames: dict[str, str] = {}
        self._closures: list[_Closure] = []
        self._couplings: set[str] = set()

    def link(
        self,
        name: str,
        parent: str = WORLD,
        *,
        position: Any = (0.0, 0.0, 0.0),
        quaternion: Any = (1.0, 0.0, 0.0, 0.0),
        joints: str | Sequence[str] | Mapping[str, Any] = (),
        rest: float | Mapping[str, float] = 0.0,
        mass: float = 1.0,
    ) -> None:
        """Add a link.

        Args:
          name: of the link, a body; and of its joint, where it has one; of several `NAME_x`, `NAME_ez` and so on.
          parent: the link that carries it.
          position (3,) [m], quaternion (4,) wxyz: where it is in the parent where its joints are at zero.
          joints: how it moves there: any of "X", "Y", "Z", translations, and "EX", "EY", "EZ", rotations, which act as
            T Rz Ry Rx; or "BALL", or "FREE", alone. A dict gives limits, `{"EZ": (-1.0, 1.0), "Z": None}` [rad, m]; a
            ball's is its largest angle. None, and a link without joints: no limits, and fixed.
          rest: value at home [rad, m], a number where there is one joint, or by joint as in `joints`.
          mass: [kg], of a ball at its origin.

        Raises:
          UnknownNameError: for an unknown parent or joint.
          JaxikError: for a name that is taken, limits that are no interval, and a rest of a joint that there is not.
        """
        self._check_name(name)
        if parent not in self._bodies:
            raise unknown_name("link", parent, tuple(self._bodies))
        limits = _limits(name, joints)
        rests = _rests(name, rest, limits)
        body = self._bodies[parent].add_body(name=name, pos=_numbers("position", position, 3))
        body.quat = _numbers("quaternion", quaternion, 4)
        self._masses[name] = _mass(name, mass)
        taken = {joint.name for joint in self._spec.joints}
        for kind in sorted(limits, key=[*AXES, "BALL", "FREE"].index):
            joint = name if len(limits) == 1 else f"{name}_{kind.lower()}"
            if joint in taken:
                raise JaxikError(f"{self.name} has a joint {joint!r} already: choose another name for link {name!r}")
            _add_joint(body, joint, kind, limits[kind])
            if kind in rests:
                self._rest[joint] = rests[kind]
        self._bodies[name] = body
        self._points.append((parent, np.array(body.pos)))

    def frame(
        self,
        name: str,
        link: str,
        *,
        position: Any = (0.0, 0.0, 0.0),
        quaternion: Any = (1.0, 0.0, 0.0, 0.0),
    ) -> None:
        """Add a frame, a site, to a link or to "world": where a closure holds, or a target is set.

        Args:
          name: of the frame.
          link: that carries it.
          position (3,) [m], quaternion (4,) wxyz: where it is on the link.

        Raises:
          UnknownNameError: for an unknown link.
          JaxikError: for a name that is taken.
        """
        self._check_name(name)
        if link not in self._bodies:
            raise unknown_name("link", link, tuple(self._bodies))
        site = self._bodies[link].add_site(name=name, pos=_numbers("position", position, 3))
        site.quat = _numbers("quaternion", quaternion, 4)
        self._frames[name] = link
        self._points.append((link, np.array(site.pos)))

    def closure(
        self, name: str, first: str, second: str, kind: str | Sequence[str] = "hinge", *, axis: Any = (0.0, 0.0, 1.0)
    ) -> None:
        """Hold two frames, or origins of links, together; arguments are those of `Robot.with_closure`."""
        for frame in (first, second):
            if frame not in self._frames and frame not in self._bodies:
                raise unknown_name("frame or link", frame, (*self._frames, *self._bodies))
        if name in self._couplings or name in {closure.name for closure in self._closures}:
            raise JaxikError(f"{self.name} has a closure or coupling {name!r} already: choose another name")
        kind = kind if isinstance(kind, str) else tuple(kind)
        self._closures.append(_Closure(name, first, second, kind, tuple(_numbers("axis", axis, 3))))

    def coupling(self, name: str, follower: str, leader: str, ratio: float = 1.0) -> None:
        """Let a joint follow another, as through gears or a differential: follower = ratio * leader [rad, m].

        Raises:
          UnknownNameError: for an unknown joint.
          JaxikError: for a name that is taken, and a ratio that is no number.
        """
        known = [joint.name for joint in self._spec.joints]
        for joint in (follower, leader):
            if joint not in known:
                raise unknown_name("joint", joint, known)
        if name in self._couplings or name in {closure.name for closure in self._closures}:
            raise JaxikError(f"{self.name} has a closure or coupling {name!r} already: choose another name")
        equality = self._spec.add_equality(name=name, name1=follower, name2=leader, type=mujoco.mjtEq.mjEQ_JOINT)
        equality.data[1] = _numbers("ratio", [ratio], 1)[0]
        self._couplings.add(name)

    def build(self) -> Robot:
        """The robot, with a closure for each that was added; `q_home` is the rest pose, which need not meet them.

        Raises:
          JaxikError: for a closure between frames of one rigid body, closures that hold one point at two places of a
            body, and for what MuJoCo refuses.
        """
        self._check_points()
        robot = load_robot(self._complete(), meshes=True)
        for closure in self._closures:
            robot = robot.with_closure(closure.name, closure.first, closure.second, closure.kind, axis=closure.axis)
        return robot

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write MJCF that MuJoCo loads and simulates: spherical closures and welds as they are, a hinge as two points.

        Raises:
          JaxikError: for another closure, which MuJoCo does not have, and a file that cannot be written.
        """
        spec = self._complete()
        for closure in self._closures:
            self._add_equality(spec, closure)
        path = Path(path)
        spec.compile()
        try:
            path.write_text(spec.to_xml())
        except OSError as error:
            raise JaxikError(f"the mechanism cannot be written to {path}: {error}") from None
        return path

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise JaxikError(f"a name is text, not {name!r}")
        if name in self._bodies or name in self._frames:
            raise JaxikError(f"{self.name} has a link or frame {name!r} already: choose another name")

    def _check_points(self) -> None:
        """Raise for closures that contradict each other: they hold one frame at two places of one link."""
        held: dict[tuple[str, str], tuple[str, np.ndarray]] = {}
        for closure in self._closures:
            if not isinstance(closure.kind, str) or not POINT.issubset(CLOSURES.get(closure.kind, ())):
                continue
            for frame, other in ((closure.first, closure.second), (closure.second, closure.first)):
                link = self._frames.get(other, other)
                site = self._spec.site(other) if other in self._frames else None
                place = np.zeros(3) if site is None else np.array(site.pos)
                name, before = held.setdefault((frame, link), (closure.name, place))
                if not np.allclose(before, place, atol=1e-12):
                    raise JaxikError(
                        f"closures {name!r} and {closure.name!r} hold {frame!r} at two places of link {link!r}: "
                        "drop one of them"
                    )

    def _complete(self) -> Any:
        """A copy of the model, with balls and capsules to look at and the rest pose as its keyframe "home"."""
        if len(self._bodies) == 1:
            raise JaxikError(f"{self.name} has no links: add one with link()")
        spec = self._spec.copy()
        size = max(float(np.abs(point).max()) for _, point in self._points) or 1.0
        seen = {"contype": 0, "conaffinity": 0}
        for name, mass in self._masses.items():
            ball = [2 * THICKNESS * size, 0, 0]
            spec.body(name).add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=ball, mass=mass, **seen)
        for carrier, point in self._points:
            if carrier != WORLD and np.any(point):
                ends, rod = [0, 0, 0, *point], [THICKNESS * size, 0, 0]
                spec.body(carrier).add_geom(type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=ends, size=rod, mass=0, **seen)
        model = spec.compile()
        home = model.qpos0.copy()
        for joint, value in self._rest.items():
            home[model.joint(joint).qposadr[0]] = value
        spec.add_key(name="home", qpos=home)
        return spec

    def _add_equality(self, spec: Any, closure: _Closure) -> None:
        if closure.kind not in ("spherical", "hinge", "weld"):
            raise JaxikError(
                f"closure {closure.name!r} of the kind {closure.kind!r}: MuJoCo has spherical, hinge and weld alone; "
                "jaxik.save(path, robot) keeps it"
            )
        axis = np.array(closure.axis) / np.linalg.norm(closure.axis)
        shifts = (np.zeros(3), APART * axis) if closure.kind == "hinge" else (np.zeros(3),)
        kind = mujoco.mjtEq.mjEQ_WELD if closure.kind == "weld" else mujoco.mjtEq.mjEQ_CONNECT
        for i, shift in enumerate(shifts):
            name = closure.name if i == 0 else f"{closure.name}_axis"
            ends = [
                _site(spec, frame, f"{name}_{end}", shift) for end, frame in ((1, closure.first), (2, closure.second))
            ]
            equality = spec.add_equality(name=name, name1=ends[0], name2=ends[1], type=kind)
            equality.objtype = mujoco.mjtObj.mjOBJ_SITE
            if closure.kind == "weld":
                equality.data[10] = 1.0


def _site(spec: Any, frame: str, name: str, shift: np.ndarray) -> str:
    """A site at a shift (3,) from a frame, in its axes; the frame's own where there is none."""
    own = spec.site(frame)
    if own is not None and not np.any(shift):
        return frame
    body = spec.body(frame) if own is None else own.parent
    position, quaternion = (np.zeros(3), np.array([1.0, 0, 0, 0])) if own is None else (own.pos, own.quat)
    moved = np.empty(3)
    mujoco.mju_rotVecQuat(moved, shift, quaternion / np.linalg.norm(quaternion))
    added = body.add_site(name=name, pos=position + moved)
    added.quat = quaternion
    return name


def _limits(name: str, joints: Any) -> dict[str, Any]:
    """Joints and their limits; None where there is none."""
    given = dict.fromkeys((joints,) if isinstance(joints, str) else joints)
    given |= dict(joints) if isinstance(joints, Mapping) else {}
    for kind in given:
        if kind not in (*AXES, "BALL", "FREE"):
            raise unknown_name("joint", str(kind), (*AXES, "BALL", "FREE"))
    if len(given) > 1 and {"BALL", "FREE"} & {*given}:
        raise JaxikError(f"link {name!r}: a ball or free joint is its only one, not {', '.join(given)}")
    return given


def _rests(name: str, rest: Any, limits: Mapping[str, Any]) -> dict[str, float]:
    if not isinstance(rest, Mapping):
        rest = dict.fromkeys(limits, float(rest)) if rest else {}
        if len(rest) > 1:
            raise JaxikError(f"link {name!r} has several joints: give rest by joint, {{{next(iter(rest))!r}: ...}}")
    for kind in rest:
        if kind not in limits or kind not in AXES:
            raise JaxikError(
                f"link {name!r} has no joint {kind!r} with a rest value; it has {', '.join(limits) or 'none'}"
            )
    return dict(rest)


def _add_joint(body: Any, name: str, kind: str, limits: Any) -> None:
    types = mujoco.mjtJoint
    if kind == "FREE":
        if limits is not None:
            raise JaxikError(f"joint {name!r}: a free joint has no limits")
        body.add_freejoint(name=name)
        return
    if kind == "BALL":
        joint = body.add_joint(name=name, type=types.mjJNT_BALL)
        limits = None if limits is None else (0.0, limits)
    else:
        slide = len(kind) == 1
        joint = body.add_joint(name=name, type=types.mjJNT_SLIDE if slide else types.mjJNT_HINGE, axis=AXES[kind])
    if limits is not None:
        lower, upper = _numbers(f"limits of joint {name!r}", limits, 2)
        if not lower < upper:
            raise JaxikError(f"limits of joint {name!r} are (lower, upper), not ({lower:g}, {upper:g})")
        joint.range, joint.limited = (lower, upper), mujoco.mjtLimited.mjLIMITED_TRUE


def _mass(name: str, mass: float) -> float:
    if not (np.isfinite(mass) and mass > 0):
        raise JaxikError(f"link {name!r}: mass is above 0 kg, not {mass!r}")
    return float(mass)


def _numbers(what: str, values: Any, count: int) -> list[float]:
    numbers = np.asarray(values, float)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise JaxikError(f"{what} is {count} finite numbers, not {values!r}")
    return numbers.tolist()
