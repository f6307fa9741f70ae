"""Files of named arrays: an `.npz` that says what it is, in which version, and in which units its numbers are.

Nothing in it is pickled. Beside the arrays stand `format`, `format_version`, `jaxik_version` and `units` (JSON: array
to unit). What a file holds besides is nobody's error, so that others may add to it.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError, LoadError

FORMAT_VERSION = 1
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that becomes `path` at the end, if nothing failed; until then `path` stays as it is.

    A path without an ending gets ".npz".

    Raises:
      JaxikError: if it cannot be written, before anything is.
    """
    path = path if path.suffix else path.with_suffix(".npz")
    if path.suffix != ".npz":
        raise JaxikError(f"output {path}: is an .npz file, not {path.suffix}")
    if path.is_dir():
        raise JaxikError(f"output {path}: is a folder")
    target = Path(os.path.realpath(path))  # a link stays one
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        file = temporary.open("xb")
    except OSError as error:
        raise JaxikError(f"output {path}: {error.strerror}") from None
    try:
        with file:
            yield file
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write(file: IO[bytes], kind: str, version: str, arrays: Mapping[str, Any], units: Mapping[str, str]) -> None:
    """Write an `.npz`.

    Args:
      file: as `replacing` gives it.
      kind: what the file is, such as "jaxik robot".
      version: of jaxik.
      arrays: by name; numbers, texts and arrays of either.
      units: array to unit; left out where it is "".

    Raises:
      JaxikError: for what is no array of numbers or texts, with its name; under `jit` among it.
    """
    facts = {
        "units": json.dumps({name: unit for name, unit in units.items() if unit}),
        "format": kind,
        "format_version": FORMAT_VERSION,
        "jaxik_version": version,
    }
    kept: dict[str, Any] = {name: _plain(name, value) for name, value in (dict(arrays) | facts).items()}
    np.savez(file, **kept)  # none holds objects, so nothing is pickled


def _plain(name: str, value: Any) -> np.ndarray:
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(value)):
        raise JaxikError(f"{name} is being traced: return it from jit first, and save on the host")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.array(None)
    if array.dtype.kind not in "biufcU":
        raise JaxikError(
            f"{name} cannot be saved: it is an array of numbers or texts, not {type(value).__name__} of {array.dtype}"
        )
    return array


@dataclasses.dataclass(frozen=True)
class Archive:
    """What a file holds; errors name the file.

    Attributes:
      kind: what the file is, such as "jaxik robot".
      arrays: everything in it by name, the facts as arrays without axes.
      written_by: the version of jaxik that wrote it.
    """

    path: Path
    kind: str
    arrays: dict[str, np.ndarray]
    written_by: str

    def array(self, name: str) -> np.ndarray:
        """The array of that name.

        Raises:
          LoadError: if the file has none.
        """
        if name not in self.arrays:
            raise self.wrong(f"has no {name!r}, which every {self.kind} of version {FORMAT_VERSION} has")
        return self.arrays[name]

    def json(self, name: str) -> Any:
        """What the JSON text of that name says."""
        try:
            return json.loads(str(self.array(name)))
        except json.JSONDecodeError as error:
            raise self.wrong(f"{name!r} is no JSON: {error}") from None

    def numbers(self, name: str, core: tuple[int, ...]) -> np.ndarray:
        """The array of that name, of numbers, with `core` as its last axes.

        Raises:
          LoadError: if it is of another shape or kind.
        """
        array = self.array(name)
        if array.dtype.kind not in "biuf" or array.shape[max(array.ndim - len(core), 0) :] != core:
            shape = "(" + ", ".join(["*batch", *map(str, core)]) + ")"
            raise self.wrong(f"{name!r} is an array of numbers of shape {shape}, not {array.dtype} of {array.shape}")
        return array

    def wrong(self, what: str) -> LoadError:
        return LoadError(
            f"{self.path}: {what}; it was written by jaxik {self.written_by} and changed or damaged since: "
            "write it again with jaxik.save"
        )


def read(path: Path, kinds: tuple[str, ...]) -> Archive:
    """Read a file that `write` wrote.

    Raises:
      LoadError: if there is none, or it is damaged, or of none of these kinds, or of another version.
    """
    path = path.expanduser()
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is no .npz archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise LoadError(f"{path}: no such file" + ("" if path.is_absolute() else f" in {Path.cwd()}")) from None
    except _UNREADABLE as error:
        raise LoadError(f"{path}: cannot be read as an .npz file of numbers and texts: {error}") from None
    if "format" not in arrays:
        shown = ", ".join(list(arrays)[:8]) or "nothing"
        raise LoadError(f"{path}: was not written by jaxik, it has no 'format' and holds {shown}; use numpy.load")
    kind, by = str(arrays["format"]), str(arrays.get("jaxik_version", "of unknown version"))
    if kind not in kinds:
        raise LoadError(f"{path}: is a {kind!r}, not a {' or a '.join(map(repr, kinds))}")
    version = arrays.get("format_version", np.array("missing"))
    if str(version) != str(FORMAT_VERSION):
        raise LoadError(
            f"{path}: its format_version is {version}, written by jaxik {by}, and this jaxik reads {FORMAT_VERSION}: "
            "read it with the jaxik that wrote it"
        )
    return Archive(path, kind, arrays, by)
