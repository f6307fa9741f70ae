"""`open_dataset`: the arrays of a dataset, read as they are sliced."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxik.core.errors import JaxikError, unknown_name
from jaxik.core.status import Status
from jaxik.datasets.arrays import read_rows
from jaxik.datasets.grid import Grid
from jaxik.datasets.shard_files import has_plain_shards, rows_of_files
from jaxik.datasets.store import Store

# Blocks that are read at once: one by one, 4,096 rows each, Zarr reads 228,000 rows a second.
GROUP = 16


class Reachability(NamedTuple):
    """A map of what a frame reaches.

    Attributes:
      share (nx, ny, nz): of directions that are reached in each voxel.
      manipulability (nx, ny, nz): the largest of the configurations found there, sqrt(det(J J')); 0 where there is
        none, and where robots are random.
      centers (nx, ny, nz, 3): of the voxels [m].
    """

    share: np.ndarray
    manipulability: np.ndarray
    centers: np.ndarray


class Dataset:
    """A dataset on disk.

    `dataset["q"]` is a Zarr array, which reads what is sliced from it; `dataset[0:1000]` reads all arrays of rows.
    Slices of rows, and blocks, are read straight from the files of shards.

    Attributes:
      path: its folder.
      plan: what its rows follow from, as plan.json has it.
      names: of its arrays.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open it.

        Raises:
          LoadError: for a folder that holds none.
        """
        self._store = Store(Path(path).expanduser())
        self.path, self.plan, self.names = self._store.path, self._store.plan, self._store.names

    def __len__(self) -> int:
        """Rows, those that are missing included."""
        return self._store.count

    def __getitem__(self, key: Any) -> Any:
        """An array by name, or all arrays of a row or of a slice of rows.

        Raises:
          JaxikError: for rows in shards that are missing. An array by name has -1 there as its status.
        """
        if isinstance(key, str):
            if key not in self.names:
                raise unknown_name("array", key, self.names)
            return self._store.group[key]
        if not isinstance(key, slice) and np.asarray(key).dtype == bool:
            key = np.flatnonzero(key)
        self._store.check_rows(_rows_to_check(key, len(self), self._store.plan["shard"]))
        if isinstance(key, slice) and key.step in (None, 1):
            first, last, _ = key.indices(len(self))
            return {name: self._rows(name, first, max(first, last)) for name in self.names}
        return {name: np.asarray(self._store.group[name][key]) for name in self.names}

    def _rows(self, name: str, first: int, last: int) -> np.ndarray:
        array, folder = self[name], self.path / name
        return (rows_of_files if has_plain_shards(array) else read_rows)(array, folder, first, last)

    @property
    def chunk(self) -> int:
        """Rows that Zarr reads at once."""
        return self[self.names[0]].chunks[0]

    @property
    def complete(self) -> bool:
        """Whether all shards are there."""
        return len(self._store.committed()) == self._store.shards

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers of the shards that are not there."""
        there = self._store.committed()
        return tuple(shard for shard in range(self._store.shards) if shard not in there)

    @property
    def status_counts(self) -> dict[str, int]:
        """How many rows, or solutions of rows, ended with each status."""
        found: dict[str, int] = {}
        for record in self._store.committed().values():
            for name, count in record["status"].items():
                found[name] = found.get(name, 0) + count
        return {kind.name: found[kind.name] for kind in Status if kind.name in found}

    @property
    def devices(self) -> tuple[str, ...]:
        """Kinds of device, with versions of jaxlib, that solved it; of more than one, bits may differ."""
        records = self._store.committed().values()
        return tuple(sorted({f"{r['backend']} {r['device']}, jaxlib {r['jaxlib']}" for r in records}))

    @property
    def digest(self) -> str:
        """One hash of all numbers, from the hashes of the shards: equal for equal datasets."""
        hashed = hashlib.sha256()
        for shard, record in sorted(self._store.committed().items()):
            hashed.update(f"{shard} {sorted(record['sha256'].items())}".encode())
        return hashed.hexdigest()

    def reachability(self) -> "Reachability":
        """What of a grid is reached.

        Raises:
          JaxikError: for a dataset of random targets, and where shards are missing.
        """
        if not self.plan.get("grid"):
            raise JaxikError(f"{self.path}: its targets are random; a map takes a plan with a grid")
        self.check_complete()
        fields = {name: value for name, value in self.plan["grid"].items() if name != "type"}
        grid = Grid(**fields)
        reached = self["status"][:].reshape(len(self), -1)[:, 0] == Status.CONVERGED
        each = (*grid.shape, grid.directions)
        volume = self["manipulability"][:] if "manipulability" in self.names else np.zeros(len(self))
        best = np.where(reached, volume, 0).reshape(each).max(axis=-1)
        return Reachability(reached.reshape(each).mean(axis=-1), best, grid.centers())

    def check_complete(self) -> None:
        """Raise an error where shards are missing."""
        if missing := self.missing:
            raise JaxikError(f"{self.path}: {len(missing)} of {self._store.shards} shards are missing")

    def blocks(
        self,
        rows: int | None = None,
        names: tuple[str, ...] | None = None,
        seed: int | None = None,
        part: tuple[int, int] = (1, 1),
    ) -> Iterator[dict[str, np.ndarray]]:
        """All rows in blocks, for training: with a seed groups of 16 blocks come shuffled, and rows within a group.

        Of n parts one may have one block more than another: processes that step together take `len(dataset) // (n *
        rows)` blocks each.

        Args:
          rows: of a block; None: as many as Zarr reads at once, 4,096, and 64 motions.
          names: of the arrays that are wanted; None: all.
          seed: of the order; None: as they lie.
          part: (k, n): the k-th of n parts, k from 1 to n: what each of n processes reads, all with one seed. What full
            groups leave over is dealt in groups of fewer blocks, so that all parts have as many.

        Raises:
          JaxikError: for a part that is none, unknown names, and where shards are missing.
        """
        self.check_complete()
        rows = rows or self.chunk
        for first, last in _groups(-(-len(self) // rows), part, seed):
            start, last = first * rows, min(last * rows, len(self))
            random = None if seed is None else np.random.default_rng((seed, start))
            read = {name: self._rows(name, start, last) for name in names or self.names}
            order = np.arange(last - start) if random is None else random.permutation(last - start)
            for at in range(0, last - start, rows):
                yield {name: values[order[at : at + rows]] for name, values in read.items()}

    def verify(self, *, rows: int | None = 10_000, repair: bool = False) -> "Any":
        """Hash every shard again, and judge rows with C MuJoCo in float64.

        Args:
          rows: how many random rows are judged, of trajectories how many steps; None: all.
          repair: forget the shards that are damaged, so that `generate(..., resume=True)` makes them again.

        Returns:
          A `jaxik.datasets.verify.Report`; `report.ok` says whether all is well.
        """
        from jaxik.datasets.verify import verify

        return verify(self, rows, repair)

    def __repr__(self) -> str:
        """Rows, statuses and arrays."""
        ended = ", ".join(f"{count:,} {name}" for name, count in self.status_counts.items())
        missing = f"; {len(self.missing)} of {self._store.shards} shards are missing" if self.missing else ""
        arrays = ", ".join(f"{name} {self[name].shape}" for name in self.names)
        return f"Dataset of {len(self):,} rows of {self.plan['robot']}: {ended}{missing}\n  {arrays}"


def _rows_to_check(key: Any, count: int, shard: int) -> Any:
    """Rows (n,) that are in the shards that a key reads."""
    if isinstance(key, slice):
        rows = range(count)[key]
        return [*rows[:: max(shard // abs(rows.step), 1)], *rows[-1:]]
    return np.asarray(key) % max(count, 1)


def _groups(blocks: int, part: Any, seed: int | None) -> list[tuple[int, int]]:
    """The groups that a part of `Dataset.blocks` reads: the first block of each, and one past its last."""
    whole = isinstance(part, tuple | list) and len(part) == 2 and all(isinstance(x, int | np.integer) for x in part)
    if not whole or not 1 <= part[0] <= part[1]:
        raise JaxikError(f"part is (k, n) with k from 1 to n, not {part!r}")
    own, parts = part
    dealt = blocks - blocks % (GROUP * parts)
    full = np.arange(0, dealt, GROUP)[:, None] + [0, GROUP]
    ends = dealt + (blocks - dealt) * np.arange(parts + 1) // parts
    rest = np.stack([ends[:-1], ends[1:]], axis=1)
    if seed is None:
        chosen = np.concatenate([full[own - 1 :: parts], rest[own - 1 : own]])
    else:
        random = np.random.default_rng(seed)
        chosen = np.concatenate([random.permutation(full)[own - 1 :: parts], random.permutation(rest)[own - 1 : own]])
        chosen = np.random.default_rng((seed, own)).permutation(chosen)
    return [(first, last) for first, last in chosen.tolist() if last > first]


def open_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Open what `jaxik.generate` or `jaxik generate` wrote; its arrays are read as they are sliced.

    Raises:
      LoadError: for a folder that holds no dataset.
    """
    return Dataset(path)
