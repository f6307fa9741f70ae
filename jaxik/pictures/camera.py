"""Where a picture is taken from."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.pictures.drawing import Drawing, bounding_balls

# Space around what is in view, as a share of the picture.
MARGIN = 1.12


@dataclasses.dataclass(frozen=True)
class Camera:
    """A camera that looks at a point, with the z axis of the world up.

    Attributes:
      lookat (3,) [m]: the point in the middle of the picture.
      distance [m]: from there.
      azimuth, elevation [degrees]: MuJoCo's: the direction of view, about z from the x axis and upward from the floor;
        below 0 it looks down.
      field_of_view [degrees]: from the lower to the upper edge.
    """

    lookat: Sequence[float]
    distance: float
    azimuth: float = 135.0
    elevation: float = -20.0
    field_of_view: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what no picture can be taken with."""
        lookat = np.asarray(self.lookat, float)
        if lookat.shape != (3,) or not np.isfinite(lookat).all():
            raise JaxikError(f"lookat is a point, three numbers, not {self.lookat!r}")
        if not (np.isfinite(self.distance) and self.distance > 0):
            raise JaxikError(f"distance is above 0, not {self.distance!r}")
        if not 0 < self.field_of_view < 180:
            raise JaxikError(f"field_of_view is between 0 and 180 degrees, not {self.field_of_view!r}")

    def axes(self) -> np.ndarray:
        """Right, up and towards the camera (3, 3), by columns, in world axes."""
        turn, lift = np.radians(self.azimuth), np.radians(self.elevation)
        ahead = np.array([np.cos(lift) * np.cos(turn), np.cos(lift) * np.sin(turn), np.sin(lift)])
        right = np.array([np.sin(turn), -np.cos(turn), 0.0])
        return np.stack([right, np.cross(right, ahead), -ahead], axis=1)


def framing(drawing: Drawing, aspect: float, azimuth: float = 135.0, elevation: float = -20.0) -> Camera:
    """A camera that has everything in view; aspect: width over height of the picture."""
    camera = Camera((0.0, 0.0, 0.0), 1.0, azimuth, elevation)
    axes = camera.axes()
    centers, radii = bounding_balls(drawing)
    seen = centers @ axes
    low, high = (seen - radii[:, None]).min(axis=0), (seen + radii[:, None]).max(axis=0)
    middle = (low + high) / 2
    half = np.tan(np.radians(camera.field_of_view / 2)) / MARGIN
    # A ball is in view if it is within the pyramid whose tip is the camera, at `distance` in front of the middle.
    right, up, near = (seen - middle).T
    distance = np.max(near + radii + np.maximum((np.abs(right) + radii) / (half * aspect), (np.abs(up) + radii) / half))
    return dataclasses.replace(camera, lookat=tuple(axes @ middle), distance=float(max(distance, 1e-3)))
