"""A picture that shows itself in a notebook and is saved from a script."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError

STILL, MOVING = (".png", ".jpg", ".jpeg", ".webp"), (".mp4", ".gif")
MISSING = 'pictures are written by Pillow: `pip install "jaxik[pictures]"`'


class Picture:
    """Pixels (height, width, 3), RGB; a notebook shows them where a cell ends with the picture.

    Attributes:
      pixels: uint8.
    """

    def __init__(self, pixels: np.ndarray) -> None:
        """Keep pixels (height, width, 3), uint8, RGB."""
        self.pixels = pixels

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a .png, .jpg or .webp, by the name's ending.

        Raises:
          JaxikError: for another ending, and where it cannot be written.
        """
        path = Path(path)
        if path.suffix.lower() not in STILL:
            raise JaxikError(f"a picture ends with {', '.join(STILL)}, not {path.name!r}")
        try:
            _image(self.pixels).save(path)
        except (ValueError, OSError) as error:
            raise JaxikError(f"the picture cannot be written to {path}: {error}") from None
        return path

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        _image(self.pixels).save(buffer, format="png")
        return buffer.getvalue()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The pixels, for `plt.imshow(picture)`."""
        return np.array(self.pixels, dtype=dtype)

    def __repr__(self) -> str:
        height, width, _ = self.pixels.shape
        return f"Picture of {width} x {height} pixels; .save('robot.png') writes it"


def check_picture(path: Path) -> None:
    """Raise a `JaxikError` if neither a picture nor a film can be written to a path."""
    if path.suffix.lower() not in (*STILL, *MOVING):
        raise JaxikError(f"a picture ends with {', '.join((*STILL, *MOVING))}, not {path.name!r}")
    if not path.parent.is_dir():
        raise JaxikError(f"the picture cannot be written to {path}: there is no folder {path.parent}")


def _image(pixels: np.ndarray) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise JaxikError(MISSING) from None
    return Image.fromarray(pixels)
