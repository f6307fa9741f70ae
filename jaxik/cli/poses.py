"""Read poses in any of the usual forms and units, as positions [m] and unit quaternions wxyz."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxik.cli.section import Place, Section, read_numbers

LENGTHS = {"m": 1.0, "mm": 1e-3}
ANGLES = {"rad": 1.0, "deg": np.pi / 180}
ROTATIONS = {"quaternion": (4,), "rotation_vector": (3,), "rpy": (3,), "matrix": (3, 3)}
POSE_KEYS = ("position", *ROTATIONS)
_ORTHONORMAL = 1e-3  # rotation matrices written with four digits pass; a scaled, sheared or mirrored one does not


class Units(NamedTuple):
    """Factors to metres and radians."""

    length: float = 1.0
    angle: float = 1.0


SI = Units()


class Needs(NamedTuple):
    """Which parts of a pose are required; the others may be given, and are ignored."""

    position: bool = True
    rotation: bool = True


def read_units(section: Section, default: Units = SI) -> Units:
    """Read the units of a section, under its key `units`."""
    if "units" not in section:
        return default
    units = section.section("units")
    units.allow("length", "angle")
    length, angle = units.choice("length", tuple(LENGTHS), None), units.choice("angle", tuple(ANGLES), None)
    return Units(LENGTHS.get(length, default.length), ANGLES.get(angle, default.angle))


def read_pose(section: Section, units: Units, needs: Needs) -> np.ndarray:
    """Read one pose (7,), quaternion wxyz, then position [m], from the keys of a section."""
    given = {}
    for key in POSE_KEYS:
        if key in section:
            value = section.get(key)
            whole = key == "matrix" and isinstance(value, list) and len(value) == 4
            given[key] = read_numbers(value, (4, 4) if whole else part_shape(key), section.at(key))[None]
    return to_poses(given, units, needs, section.place)[0]


def part_shape(key: str) -> tuple[int, ...]:
    return ROTATIONS.get(key, (3,))


def to_poses(given: Mapping[str, np.ndarray], units: Units, needs: Needs, place: Place) -> np.ndarray:
    """Convert to poses (n, 7), quaternion wxyz, then position [m]; NaN and infinity pass through.

    Args:
      given: "position" (n, 3) and one of the rotations: "quaternion" (n, 4) wxyz of any length, "rotation_vector"
        (n, 3), "rpy" (n, 3), about the fixed axes x, then y, then z, "matrix" (n, 3, 3), or (n, 4, 4) for both parts.
      units: of positions, rotation vectors and rpy.
      needs: what has to be given.
      place: what errors are about.
    """
    rotations = [key for key in ROTATIONS if key in given]
    if len(rotations) > 1:
        place.fail(f"gives the rotation twice, as {' and '.join(rotations)}")
    kind = rotations[0] if rotations else None
    parts = dict(given)
    if kind == "matrix" and parts["matrix"].shape[1:] == (4, 4):
        if "position" in parts:
            place.fail("gives the position twice, in a matrix of 4 x 4 and as position")
        parts["position"], parts["matrix"] = parts["matrix"][:, :3, 3], parts["matrix"][:, :3, :3]
    if needs.position and "position" not in parts:
        place.fail("has no 'position', and needs one (or position_cost: null)")
    if needs.rotation and kind is None:
        place.fail(f"has no rotation: give one of {', '.join(ROTATIONS)} (or orientation_cost: null)")
    count = len(next(iter(parts.values()))) if parts else 1
    position = parts.get("position", np.zeros((count, 3))) * units.length
    quaternion = np.tile([1.0, 0, 0, 0], (count, 1)) if kind is None else _quaternion(kind, parts[kind], units, place)
    return np.concatenate([quaternion, position], axis=1)


def _quaternion(kind: str, value: np.ndarray, units: Units, place: Place) -> np.ndarray:
    if kind == "quaternion":
        _all_rows(np.any(value != 0, axis=1), place, "has a quaternion of length 0")
        largest = np.abs(value).max(1, keepdims=True)
        return _unit(value / np.where(np.isfinite(largest), largest, 1))  # squares of tiny ones would vanish
    if kind == "rotation_vector":
        return _from_rotation_vector(value * units.angle)
    if kind == "rpy":
        return _from_rpy(value * units.angle)
    return _from_matrix(value, place)


def _unit(q: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # infinity over infinity: NaN, which is data
        return q / np.linalg.norm(q, axis=1, keepdims=True)


def _from_rotation_vector(vector: np.ndarray) -> np.ndarray:
    angle = np.linalg.norm(vector, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        # sinc(x) is sin(pi x) / (pi x): the factor sin(angle / 2) / angle has no gap at zero.
        return np.concatenate([np.cos(angle / 2), 0.5 * np.sinc(angle / (2 * np.pi)) * vector], axis=1)


def _from_rpy(rpy: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        (cr, cp, cy), (sr, sp, sy) = np.cos(rpy.T / 2), np.sin(rpy.T / 2)
    w, x = cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy
    y, z = cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy
    return np.stack([w, x, y, z], axis=1)


def _from_matrix(matrix: np.ndarray, place: Place) -> np.ndarray:
    """The quaternion of the nearest rotation, by the eigenvector of Bar-Itzhack (2000), which has no special case."""
    finite = np.all(np.isfinite(matrix), axis=(1, 2))
    r = np.where(finite[:, None, None], matrix, np.eye(3))
    off = np.abs(r @ r.transpose(0, 2, 1) - np.eye(3)).max((1, 2))
    _all_rows((off < _ORTHONORMAL) & (np.linalg.det(r) > 0), place, "has a matrix that is no rotation")
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = r.transpose(1, 2, 0)
    rows = [
        [xx + yy + zz, zy - yz, xz - zx, yx - xy],
        [zy - yz, xx - yy - zz, xy + yx, xz + zx],
        [xz - zx, xy + yx, yy - xx - zz, yz + zy],
        [yx - xy, xz + zx, yz + zy, zz - xx - yy],
    ]
    quaternion = np.linalg.eigh(np.array(rows).transpose(2, 0, 1))[1][:, :, -1]
    return np.where(finite[:, None], quaternion, np.nan)


def _all_rows(good: np.ndarray, place: Place, message: str) -> None:
    if not good.all():
        place.fail(message if good.size == 1 else f"row {np.flatnonzero(~good)[0]} (from 0) {message}")
