"""Places where arms work: bookshelf, table, cage, box, kitchen. Sizes are shares of the arm's reach.

All of them have the same number of obstacles, some masked, so that one program serves them all.
"""

from typing import NamedTuple

import mujoco
import numpy as np

import jaxik
from jaxik.robot.loading.catalog import find_by_name

NAMES = ("bookshelf", "table", "cage", "box", "kitchen")
# Enough for each.
BOXES, CAPSULES = 14, 12
# Thickness of boards and walls [m].
BOARD = 0.02


class Scene(NamedTuple):
    """Obstacles.

    Attributes:
      boxes (n, 6): centre and half sizes [m].
      capsules (m, 7): ends and radius [m].
    """

    boxes: np.ndarray
    capsules: np.ndarray

    def world(self) -> jaxik.World:
        """The obstacles, padded to the same number of each kind."""
        boxes, capsules = _padded(self.boxes, BOXES), _padded(self.capsules, CAPSULES)
        return jaxik.World(
            boxes=jaxik.Boxes(boxes[:, :3], boxes[:, 3:], mask=np.arange(BOXES) < len(self.boxes)),
            capsules=jaxik.Capsules(
                capsules[:, :3], capsules[:, 3:6], capsules[:, 6], mask=np.arange(CAPSULES) < len(self.capsules)
            ),
        )

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Put the obstacles into a model, by the names that jaxik gives them."""
        kinds = mujoco.mjtGeom
        for i, row in enumerate(self.boxes):
            spec.worldbody.add_geom(name=f"boxes/{i}", type=kinds.mjGEOM_BOX, pos=row[:3], size=row[3:])
        for i, row in enumerate(self.capsules):
            geom = spec.worldbody.add_geom(name=f"capsules/{i}", type=kinds.mjGEOM_CAPSULE, fromto=row[:6])
            geom.size = [row[6], 0, 0]


def scene(name: str, reach: float, height: float) -> Scene:
    """A scene around an arm that stands at the origin, so high [m] above the ground, and looks along x."""
    boxes, capsules = _SCENES[name](reach)
    up = np.array([0, 0, height])
    return Scene(
        np.array(boxes, float).reshape(-1, 6) + np.concatenate([up, 0 * up]),
        np.array(capsules, float).reshape(-1, 7) + np.concatenate([up, up, [0]]),
    )


def arm_among_boxes() -> tuple[jaxik.Robot, jaxik.World, mujoco.MjModel]:
    """A Panda, 20 random boxes around it, and both as one model."""
    random = np.random.default_rng(0)
    angle, away = random.uniform(0, 2 * np.pi, 20), random.uniform(0.5, 0.8, 20)
    centers = np.stack([away * np.cos(angle), away * np.sin(angle), random.uniform(0.05, 1.1, 20)], axis=1)
    half = random.uniform(0.03, 0.1, (20, 3))
    spec = mujoco.MjSpec.from_file(str(find_by_name("panda")))
    for i, (center, size) in enumerate(zip(centers, half, strict=True)):
        spec.worldbody.add_geom(name=f"boxes/{i}", type=mujoco.mjtGeom.mjGEOM_BOX, pos=center, size=size)
    world = jaxik.World(boxes=jaxik.Boxes(centers, half))
    return jaxik.load_robot("panda", geometry="model"), world, spec.compile()


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([rows, np.ones((count - len(rows), rows.shape[1]))])


def _box(low: tuple[float, ...], high: tuple[float, ...]) -> np.ndarray:
    """A box from its two corners."""
    below, above = np.array(low), np.array(high)
    return np.concatenate([(below + above) / 2, (above - below) / 2])


def _bar(start: tuple[float, ...], end: tuple[float, ...], radius: float) -> np.ndarray:
    return np.array([*start, *end, radius])


def _bookshelf(r: float) -> tuple[list, list]:
    near, far, wide, high = 0.5 * r, 0.8 * r, 0.45 * r, 1.05 * r
    boards = [_box((near, -wide, z), (far, wide, z + BOARD)) for z in np.array([0.1, 0.41, 0.72, 1.03]) * r]
    sides = [_box((near, y, 0), (far, y + BOARD, high)) for y in (-wide, 0.0, wide)]
    back = [_box((far, -wide, 0), (far + BOARD, wide, high))]
    # Rows of books, which leave half of each compartment, and of its depth a third.
    books = [
        _box((far - 0.2 * r, y * r, z * r + BOARD), (far, (y + 0.2) * r, (z + 0.22) * r))
        for y, z in ((-0.43, 0.1), (0.23, 0.1), (-0.22, 0.41), (0.04, 0.41), (-0.43, 0.72), (0.23, 0.72))
    ]
    bottles = [_bar((0.65 * r, 0.34 * r, 0.47 * r), (0.65 * r, 0.34 * r, 0.6 * r), 0.04 * r)]
    return boards + sides + back + books, bottles


def _table(r: float) -> tuple[list, list]:
    top = [_box((-r, -r, -0.06), (r, r, -0.01))]
    things = [
        _box((x - 0.06 * r, y - 0.08 * r, -0.01), (x + 0.06 * r, y + 0.08 * r, z))
        for x, y, z in r
        * np.array([(0.45, 0.3, 0.25), (0.6, 0, 0.12), (0.5, -0.3, 0.4), (0.15, 0.5, 0.3), (0.2, -0.5, 0.2)])
    ]
    bottles = [
        _bar((x, y, 0.03 * r), (x, y, 0.25 * r), 0.035 * r)
        for x, y in np.array([(0.35, 0.1), (0.4, -0.12), (0.7, 0.2), (0.7, -0.2)]) * r
    ]
    lamp = [_bar((0.3 * r, 0.6 * r, 0), (0.3 * r, 0.6 * r, 0.8 * r), 0.02 * r)]
    arm = [_bar((0.3 * r, 0.6 * r, 0.8 * r), (0.45 * r, 0.1 * r, 0.75 * r), 0.02 * r)]
    return top + things, bottles + lamp + arm


def _cage(r: float) -> tuple[list, list]:
    floor = [_box((-r, -r, -0.06), (r, r, -0.01))]
    angles = np.linspace(0, 2 * np.pi, CAPSULES, endpoint=False)
    x, y = 0.55 * r * np.cos(angles), 0.55 * r * np.sin(angles)
    return floor, [_bar((a, b, 0), (a, b, 1.1 * r), 0.015 * r) for a, b in zip(x, y, strict=True)]


def _open_box(r: float) -> tuple[list, list]:
    floor = [_box((-r, -r, -0.06), (r, r, -0.01))]
    low, high, wide, top = 0.35 * r, 0.75 * r, 0.22 * r, 0.28 * r
    walls = [
        _box((low, -wide, 0), (low + BOARD, wide, top)),
        _box((high, -wide, 0), (high + BOARD, wide, top)),
        _box((low, -wide, 0), (high, -wide + BOARD, top)),
        _box((low, wide, 0), (high, wide + BOARD, top)),
        _box((low, -wide, 0), (high, wide, BOARD)),
    ]
    inside = [_box((0.5 * r, -0.03 * r, BOARD), (0.56 * r, 0.05 * r, 0.1 * r))]
    return floor + walls + inside, []


def _kitchen(r: float) -> tuple[list, list]:
    wide = 0.7 * r
    fixed = [
        _box((-r, -r, -0.06), (r, r, -0.01)),
        _box((0.4 * r, -wide, 0), (0.85 * r, wide, 0.12 * r)),
        _box((0.85 * r, -wide, 0), (0.85 * r + BOARD, wide, 1.1 * r)),
        _box((0.62 * r, -wide, 0.62 * r), (0.85 * r, -0.2 * r, 1.05 * r)),
        _box((0.62 * r, 0.2 * r, 0.62 * r), (0.85 * r, wide, 1.05 * r)),
        _box((0.55 * r, -0.18 * r, 0.75 * r), (0.85 * r, 0.18 * r, 0.8 * r)),
    ]
    pots = [
        _box((x - 0.08 * r, y - 0.08 * r, 0.12 * r), (x + 0.08 * r, y + 0.08 * r, 0.25 * r))
        for x, y in np.array([(0.6, 0.12), (0.6, -0.12), (0.55, 0.5)]) * r
    ]
    tap = [
        _bar((0.8 * r, -0.4 * r, 0.12 * r), (0.8 * r, -0.4 * r, 0.4 * r), 0.02 * r),
        _bar((0.8 * r, -0.4 * r, 0.4 * r), (0.65 * r, -0.4 * r, 0.4 * r), 0.02 * r),
    ]
    bottles = [_bar((0.7 * r, y * r, 0.16 * r), (0.7 * r, y * r, 0.35 * r), 0.035 * r) for y in (-0.6, 0.35, 0.6)]
    return fixed + pots, tap + bottles


_SCENES = {"bookshelf": _bookshelf, "table": _table, "cage": _cage, "box": _open_box, "kitchen": _kitchen}
