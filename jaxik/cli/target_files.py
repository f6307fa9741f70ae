"""Targets from files: arrays of an `.npz`, columns of a `.csv`."""

import contextlib
import csv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jaxik.cli.poses import POSE_KEYS, ROTATIONS, Needs, Units, part_shape, read_units, to_poses
from jaxik.cli.section import Place, Section
from jaxik.cli.yaml_file import read_failure
from jaxik.core.errors import JaxikError, unknown_name

# Columns that need not be named in the configuration.
COLUMNS = {
    "position": ("x", "y", "z"),
    "quaternion": ("qw", "qx", "qy", "qz"),
    "rotation_vector": ("rx", "ry", "rz"),
    "rpy": ("roll", "pitch", "yaw"),
}
WITHOUT_HEADER = {7: ("position", "quaternion"), 3: ("position",), 4: ("quaternion",)}


def read_target_file(section: Section, folder: Path, units: Units, needs: Needs) -> np.ndarray:
    """Poses (n, 7), quaternion wxyz and then position [m], from the file that a section names.

    Args:
      section: `file`, and which of its arrays or columns are meant; `units` of the file, where they differ.
      folder: where paths of the configuration start.
      units: of the configuration.
      needs: which parts of a pose have to be there.
    """
    section.allow("file", "units", *POSE_KEYS)
    path = folder / Path(section.text("file")).expanduser()
    place = Place(f"{section.at('file')}: {path}")
    if path.suffix == ".npz":
        parts = _from_npz(path, section, place)
    elif path.suffix == ".csv":
        parts = _from_csv(path, section, place)
    else:
        section.at("file").fail(f"is an .npz or a .csv file, not {path.name!r}")
    lengths = {key: len(part) for key, part in parts.items()}
    if len(set(lengths.values())) > 1:
        place.fail("parts differ in length: " + ", ".join(f"{key} {n}" for key, n in lengths.items()))
    if 0 in lengths.values():
        place.fail("holds no targets")
    return to_poses(parts, read_units(section, units), needs, place)


def _meant(section: Section, present: set[str]) -> list[str]:
    """The parts that are read: those named in the section, and those of the usual names that are in the file."""
    named = [key for key in POSE_KEYS if key in section]
    position = ["position"] if "position" in named or "position" in present else []
    rotations = [key for key in ROTATIONS if key in named] or [key for key in ROTATIONS if key in present]
    return position + rotations


def _from_npz(path: Path, section: Section, place: Place) -> dict[str, np.ndarray]:
    with _reading(place), np.load(path, allow_pickle=False) as file:
        if not isinstance(file, np.lib.npyio.NpzFile):
            place.fail("is a single array, no .npz file")
        meant = {key: section.text(key, key) for key in _meant(section, set(file.files))}
        for key, name in meant.items():
            if name not in file.files:
                with section.at(key).blamed():
                    raise unknown_name("array", name, file.files)
        if not meant:
            place.fail(f"has none of the arrays {', '.join(POSE_KEYS)}; it has {', '.join(file.files) or 'none'}")
        arrays = {key: file[name] for key, name in meant.items()}
    for key, array in arrays.items():
        shapes = [part_shape(key), *([(4, 4)] if key == "matrix" else [])]
        if array.ndim == 0 or array.shape[1:] not in shapes:
            wanted = " or ".join(f"(n, {', '.join(map(str, shape))})" for shape in shapes)
            place.fail(f"{meant[key]} has shape {wanted}, not {array.shape}")
        if array.dtype.kind not in "fiu":
            place.fail(f"{meant[key]} holds numbers, not {array.dtype}")
    return {key: array.astype(float) for key, array in arrays.items()}


def _from_csv(path: Path, section: Section, place: Place) -> dict[str, np.ndarray]:
    header, table = read_table(path, place)
    if header is None:
        if table.shape[1] not in WITHOUT_HEADER:
            place.fail(f"has {table.shape[1]} columns and no header; give it one, or the 7 columns x,y,z,qw,qx,qy,qz")
        header = [name for key in WITHOUT_HEADER[table.shape[1]] for name in COLUMNS[key]]
    present = {key for key, names in COLUMNS.items() if set(names) <= set(header)}
    parts = {}
    for key in _meant(section, present):
        names = section.get(key, list(COLUMNS.get(key, ())))
        if key == "matrix":
            section.at(key).fail("is for .npz files; in a .csv give quaternion, rotation_vector or rpy")
        count = part_shape(key)[0]
        if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
            section.at(key).fail(f"is a list of {count} column names")
        for name in names:
            if name not in header:
                with section.at(key).blamed():
                    raise unknown_name("column", name, header)
        parts[key] = table[:, [header.index(name) for name in names]]
    if not parts:
        place.fail(f"has none of the columns x,y,z,qw,qx,qy,qz; it has {', '.join(header)}")
    return parts


def read_table(path: Path, place: Place) -> tuple[list[str] | None, np.ndarray]:
    """Column names, None where the first row is numbers, and the numbers (rows, columns); an empty cell is NaN."""
    header, rows, count = None, [], 0
    with _reading(place), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True)
        for cells in reader:
            empty = not any(cell.strip() for cell in cells)
            if (empty and (len(cells) < 2 or (header is None and not rows))) or cells[0].startswith("#"):
                continue
            if header is None and not rows and not all(_is_number(cell) for cell in cells):
                header = [cell.strip() for cell in cells]
                continue
            width = len(header or (rows[0] if rows else cells))
            if empty:
                cells = [""] * width
            if len(cells) != width:
                place.fail(f"line {reader.line_num}: has {len(cells)} columns, not {width}")
            wrong = [cell for cell in cells if not _is_number(cell)]
            if wrong:
                place.fail(f"line {reader.line_num}: {wrong[0]!r} is no number")
            rows.append([float(cell) if cell.strip() else np.nan for cell in cells])
            count = count if empty else len(rows)
    # Spreadsheets write rows of empty cells behind the last one; between others such a row is of a target.
    rows = rows[:count]
    if not rows:
        place.fail("holds no rows of numbers")
    return header, np.array(rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell.strip()
    return True


@contextlib.contextmanager
def _reading(place: Place) -> Iterator[None]:
    try:
        yield
    except JaxikError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, csv.Error) as error:  # numpy's and Unicode's: ValueError
        place.fail(read_failure(error))
