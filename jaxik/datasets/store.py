"""The files of a dataset: Zarr arrays, a plan, and a record for each shard that is complete.

| file | |
|---|---|
| `zarr.json`, `q/`, `status/`, `targets/TASK/PART/`, `residuals/TASK/PART/` | Zarr v3, sharded, uncompressed |
| `plan.json` | what the rows follow from |
| `commits/00000017.json` | SHA-256 of each array's rows of shard 17, statuses, device; written last |
| `README.md` | what is inside and how to read it; written when the dataset is complete |

A shard of the plan is a shard of Zarr, so each file has one writer: two writers in one Zarr shard lose data. It counts
when its record is there; files are flushed to disk before, and the record comes into being by a rename. A shard that
was interrupted has no record and is written again, with the same bytes, as rows follow from their index.
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError, LoadError
from jaxik.core.status import Status
from jaxik.datasets.arrays import LOCK, read_rows, write_rows
from jaxik.datasets.plan import Plan, completed, defaults_of_options, differences
from jaxik.datasets.rows import Column, solved

PLAN, COMMITS = "plan.json", "commits"
# What may differ between the run that began a dataset and one that goes on with it.
_MAY_DIFFER = ("model",)


def zarr_package() -> Any:
    """The package zarr, or one line that says how to get it."""
    try:
        import zarr
    except ImportError:
        raise JaxikError('datasets need zarr: pip install "jaxik[data]"') from None
    return zarr


class Store:
    """A folder with the files of a dataset."""

    def __init__(self, path: Path) -> None:
        """Open a folder that holds a dataset.

        Raises:
          LoadError: where there is none.
        """
        self.path = path
        try:
            self.plan = json.loads((path / PLAN).read_text())
        except FileNotFoundError:
            raise LoadError(f"{path}: is no dataset of jaxik: it has no {PLAN}") from None
        except (OSError, ValueError) as error:
            raise LoadError(f"{path / PLAN}: cannot be read: {error}") from None
        if self.plan.get("format") != "jaxik dataset":
            raise LoadError(f"{path / PLAN}: is not of a dataset of jaxik")
        self.group = zarr_package().open_group(str(path), mode="r+" if os.access(path, os.W_OK) else "r")

    @property
    def count(self) -> int:
        return self.plan["count"]

    @property
    def shards(self) -> int:
        return -(-self.count // self.plan["shard"])

    def rows_of(self, shard: int) -> tuple[int, int]:
        size = self.plan["shard"]
        return shard * size, min((shard + 1) * size, self.count)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays."""
        return tuple(self.plan["arrays"])

    def committed(self) -> dict[int, dict[str, Any]]:
        """The records of shards that are complete, by shard."""
        found = {}
        for file in sorted((self.path / COMMITS).glob("*.json")):
            with contextlib.suppress(ValueError, KeyError):
                record = json.loads(file.read_text())
                found[int(record["shard"])] = record
        return found

    def check_rows(self, rows: Any) -> None:
        """Raise an error where rows (n,) are in shards that are missing: what is read of these are no solutions."""
        for shard in np.unique(np.asarray(rows, np.int64) // self.plan["shard"]):
            if not (self.path / COMMITS / f"{shard:08d}.json").exists():
                first, last = self.rows_of(int(shard))
                raise JaxikError(
                    f"{self.path}: rows {first} to {last - 1} are missing, which shard {shard} is to hold: finish the "
                    "dataset by generate with resume, or read other rows"
                )

    def read(self, shard: int) -> dict[str, np.ndarray]:
        """All arrays of a shard.

        Raises:
          LoadError: for files that are damaged or missing.
        """
        first, last = self.rows_of(shard)
        found = {}
        for name in self.names:
            try:
                found[name] = read_rows(self.group[name], self.path / name, first, last)
            except Exception as error:  # zarr raises what its codecs and the file system raise
                raise LoadError(f"shard {shard}: {name} cannot be read: {error}") from None
        return found

    def write(self, shard: int, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Write a shard, flush it to disk, and record it."""
        first, last = self.rows_of(shard)
        with said(self.path):
            for name, values in arrays.items():
                # Zarr reads what is there before it writes, and what is there may be damaged.
                shutil.rmtree(self.path / name / "c" / str(shard), ignore_errors=True)
                for file in (str(shard), f"{shard}{LOCK}"):
                    (self.path / name / "c" / file).unlink(missing_ok=True)
                write_rows(self.group[name], self.path / name, first, last, values)
                _flush_shard(self.path / name, shard)
            record = {
                "shard": shard,
                "rows": [first, last],
                "sha256": digests(arrays),
                "status": counts(arrays["status"]),
                "solved": int(solved(arrays).sum()),
                **facts,
            }
            _replace(self.path / COMMITS / f"{shard:08d}.json", json.dumps(record, indent=1))

    def forget(self, shard: int) -> None:
        """Make a shard count as missing."""
        (self.path / COMMITS / f"{shard:08d}.json").unlink(missing_ok=True)

    def write_text(self, name: str, text: str) -> None:
        with said(self.path):
            _replace(self.path / name, text)


def open_or_create(path: Path, plan: Plan, columns: Mapping[str, Column], joints: Any, resume: bool) -> Store:
    """The store of a plan.

    Raises:
      JaxikError: if it exists and `resume` is not given, or is of another plan, with what differs.
    """
    if not (path / PLAN).exists():
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise JaxikError(f"output {path}: exists and is no dataset; choose another name")
        with said(path):
            _create(path, plan, columns, joints)
    elif not resume:
        raise JaxikError(
            f"output {path}: exists already; --resume goes on with it, in Python resume=True; or choose another name"
        )
    store = Store(path)
    old = {key: value for key, value in store.plan.items() if key != "arrays" and key not in _MAY_DIFFER}
    new = {key: value for key, value in _as_json(plan.described()).items() if key not in _MAY_DIFFER}
    # What options have gained since is as it was then, unless it is asked for.
    old["options"] = completed(old["options"], _as_json(defaults_of_options(plan)))
    if lines := differences(old, new):
        more = f", and {len(lines) - 3} more" if len(lines) > 3 else ""
        raise JaxikError(f"output {path}: is of another plan: {'; '.join(lines[:3])}{more}; choose another name")
    return store


def _create(path: Path, plan: Plan, columns: Mapping[str, Column], joints: Any) -> None:
    """Make the folder whole beside its place and move it there, so that a half one never exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        group = zarr_package().create_group(store=str(temporary), zarr_format=3, attributes=_as_json(joints))
        for name, column in columns.items():
            group.create_array(
                name,
                shape=(plan.rows, *column.shape),
                dtype=column.dtype,
                chunks=(plan.chunk, *column.shape),
                shards=(plan.rows_of_shard, *column.shape),
                compressors=None,
                # Of what is not there yet, no status.
                fill_value=-1 if np.issubdtype(column.dtype, np.signedinteger) else 0,
                # For xarray; all but rows belong to their array alone.
                dimension_names=("row", *(f"{name}_{axis}" for axis in range(len(column.shape)))),
                attributes={"unit": column.unit, "meaning": column.meaning},
            )
        # So that readers ask no folder what is in it: they would stumble over the plan and the records.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that other implementations of Zarr v3 do not know it yet
            zarr_package().consolidate_metadata(str(temporary))
        (temporary / COMMITS).mkdir()
        described = plan.described() | {"arrays": {name: str(column.dtype) for name, column in columns.items()}}
        _replace(temporary / PLAN, json.dumps(_as_json(described), indent=1))
        # Where two runs begin at once, one of them comes second.
        with contextlib.suppress(OSError):
            os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _as_json(value: Any) -> Any:
    """What a file of JSON gives back."""
    return json.loads(json.dumps(value))


def _flush_shard(array: Path, shard: int) -> None:
    """Bring the file of a shard, and its names in the folders, to the disk."""
    folder = array / "c" / str(shard)
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        _flush(file)
    for place in (*(file for file in folder.rglob("*") if file.is_dir()), folder, folder.parent):
        _flush(place)


def _flush(path: Path) -> None:
    if not path.exists():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:  # some file systems have no such call for folders
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def _replace(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush(path.parent)


@contextlib.contextmanager
def said(path: Path) -> Iterator[None]:
    """Say in one line what the disk refused."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise JaxikError(f"output {path}: {reason}; what is committed stays, and --resume goes on with it") from None


@contextlib.contextmanager
def alone(path: Path, part: str) -> Iterator[None]:
    """Hold the lock of a part of a dataset, where the system has locks.

    Raises:
      JaxikError: if another run holds it.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with said(path):
        file = (path / COMMITS / f".lock-{part}").open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JaxikError(f"output {path}: another run is writing it; wait for it, or end it") from None
        except OSError:  # no locks on this file system: two runs write the same bytes
            pass
        yield


def digests(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """SHA-256 of the numbers of each array."""
    return {name: hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest() for name, x in arrays.items()}


def counts(status: np.ndarray) -> dict[str, int]:
    """How many rows, or solutions of rows, ended with each status."""
    return {kind.name: int(n) for kind in Status if (n := np.sum(status == kind))}
