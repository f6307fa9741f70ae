"""Read arrays of a configuration: written out as nested lists, or in a file beside it."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.cli.section import ConfigError, Place, Section, preview, read_numbers
from jaxik.cli.target_files import read_table
from jaxik.cli.yaml_file import read_failure


def read_array(section: Section, key: str, axes: tuple[str, ...], folder: Path) -> np.ndarray:
    """Read numbers with these axes, each a letter or a length, as "n" and "3", under a key of a section.

    Args:
      folder: where a path starts: of an `.npy`, of an `.npz` that holds one array, or of a `.csv`, of two axes, whose
        first line may be a header; lines that begin with `#` are left out.

    Raises:
      ConfigError: names the place, and the file.
    """
    value, place = section.get(key), section.at(key)
    if isinstance(value, str):
        path = folder / Path(value).expanduser()
        place = Place(f"{place}: {path}")
        array = _of_file(path, place)
    elif isinstance(value, list) and value:
        array = read_numbers(value, _shape(value), place)
    else:
        place.fail(f"is a file (.npy, .npz, .csv) or a list of {' x '.join(axes)} numbers, not {preview(value)}")
    wanted = ", ".join(axes)
    if array.dtype.kind not in "fiub":
        place.fail(f"holds numbers ({wanted}), not {array.dtype}")
    if array.ndim != len(axes) or any(a.isdigit() and int(a) != n for a, n in zip(axes, array.shape, strict=True)):
        place.fail(f"has shape ({wanted}), not {array.shape}")
    return array.astype(float)


def _shape(value: Any) -> tuple[int, ...]:
    """The shape that nested lists have if all rows are as long as the first."""
    return (len(value), *_shape(value[0])) if isinstance(value, list) and value else ()


def _of_file(path: Path, place: Place) -> np.ndarray:
    try:
        if path.suffix == ".csv":
            return read_table(path, place)[1]
        if path.suffix not in (".npy", ".npz"):
            place.fail("is an .npy, an .npz or a .csv file")
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            if len(found.files) != 1:
                place.fail(f"holds {len(found.files)} arrays, and is read where it holds one")
            return found[found.files[0]]
    except ConfigError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        place.fail(read_failure(error))
