"""Motions as a dataset in the layout of LeRobot, version 3: frames of all episodes in few Parquet files, with metadata.

| file | |
|---|---|
| `data/chunk-000/file-000.parquet` | frames, episode after episode; a file holds whole episodes |
| `meta/episodes/chunk-000/file-000.parquet` | of each episode: length, first frame and the one after its last, file |
| `meta/info.json`, `meta/stats.json`, `meta/tasks.parquet` | features, their statistics, what the motions are to do |

Offsets and files of episodes are written down as the frames are, by the same counter: converters that did it apart had
episodes point to the file before theirs where a file was full.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError

VERSION = "v3.0"
# Files in a folder, and bytes of a file of frames, which are LeRobot's own.
FILES, FILE_BYTES = 1000, 100 * 2**20
PLACE = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA, EPISODES = f"data/{PLACE}", f"meta/episodes/{PLACE}"
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
# A rate is a whole number of frames a second [1/s].
ROUNDING = 1e-6


def write_lerobot(dataset: Any, folder: Path, file_bytes: int = FILE_BYTES) -> None:
    """Write the motions of a dataset into a new folder.

    A frame is a step: `observation.state` is the configuration before it, `action` the one that it leads to,
    `observation.environment_state` the targets of its end.

    Raises:
      JaxikError: for a dataset of other rows, steps of which no whole number makes a second, a package that is missing.
    """
    motion = dataset.plan.get("trajectories")
    if not motion:
        raise JaxikError(f"{dataset.path}: its rows are no motions: LeRobot has episodes; export to .parquet or .npz")
    fps = round(1 / motion["dt"])
    if fps < 1 or abs(fps * motion["dt"] - 1) > ROUNDING:
        raise JaxikError(f"LeRobot has whole frames a second, steps of {motion['dt']:g} s have {1 / motion['dt']:.4g}")
    task = f"follow {', '.join(dataset.plan['sampled'])}"
    writer = Writer(folder, fps, dataset.plan["robot"], task, _names(dataset), file_bytes)
    for block in dataset.blocks():
        for episode in _episodes(block):
            writer.add(episode)
    writer.close()


def _names(dataset: Any) -> dict[str, list[str]]:
    """What the columns of features are."""
    joints = list(dataset._store.group.attrs["q_joint"])
    targets = {name: dataset[name].shape[2:] for name in dataset.names if name.startswith("targets/")}
    columns = [f"{name.removeprefix('targets/')}/{i}" for name, shape in targets.items() for i in range(*shape)]
    return {"observation.state": joints, "observation.environment_state": columns, "action": joints}


def _episodes(rows: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Frames (T, ...) of each motion."""
    before = np.concatenate([rows["q0"][:, None], rows["q"][:, :-1]], axis=1)
    targets = np.concatenate([x for name, x in rows.items() if name.startswith("targets/")], axis=-1)
    last = np.arange(rows["q"].shape[1]) == rows["q"].shape[1] - 1
    for i, success in enumerate(rows["success"]):
        yield {
            "observation.state": before[i].astype(np.float32),
            "observation.environment_state": targets[i].astype(np.float32),
            "action": rows["q"][i].astype(np.float32),
            "next.done": last,
            "next.success": last & success,
        }


class Writer:
    """Appends episodes of any lengths, frame after frame, and remembers where each begins.

    Args:
      names: of the columns of features that have several.
      file_bytes: of frames in a file, but for an episode that has more.
    """

    def __init__(
        self, folder: Path, fps: int, robot: str, task: str, names: Mapping[str, list[str]], file_bytes: int
    ) -> None:
        """Write nothing yet."""
        self._arrow, self._parquet = _arrow_packages()
        self._folder, self._fps, self._robot, self._task = folder, fps, robot, task
        self._names, self._file_bytes = names, file_bytes
        self._features: dict[str, Any] = {}
        self._records: list[dict[str, Any]] = []
        self._file: Any = None
        self._bytes = self._frames = self._files = 0

    def add(self, episode: Mapping[str, np.ndarray]) -> None:
        """Append an episode: features (length, ...) by name."""
        length = len(next(iter(episode.values())))
        number = len(self._records)
        frames = dict(episode) | {
            "timestamp": (np.arange(length) / self._fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, number),
            "index": self._frames + np.arange(length),
            "task_index": np.zeros(length, int),
        }
        size = sum(x.nbytes for x in frames.values())
        if self._file is not None and self._bytes + size > self._file_bytes:
            self._end_file()
        self._file = self._file or self._begun_file(frames)
        self._file.write_table(self._arrow.table({name: self._column(x) for name, x in frames.items()}))
        place = dict(zip(("data/chunk_index", "data/file_index"), divmod(self._files, FILES), strict=True))
        offsets = {"dataset_from_index": self._frames, "dataset_to_index": self._frames + length}
        stats = {f"stats/{name}/{key}": x for name, values in frames.items() for key, x in _statistics(values).items()}
        self._records.append(
            {"episode_index": number, "tasks": [self._task], "length": length}
            | place
            | offsets
            | stats
            | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        )
        self._bytes, self._frames = self._bytes + size, self._frames + length

    def close(self) -> None:
        """Write what is known of all episodes."""
        if self._file is not None:
            self._end_file()
        columns = {key: self._arrow.array([_plain(r[key]) for r in self._records]) for key in self._records[0]}
        self._write_table(EPISODES.format(chunk_index=0, file_index=0), self._arrow.table(columns))
        self._write_table("meta/tasks.parquet", self._tasks())
        info = {
            "codebase_version": VERSION,
            "robot_type": self._robot,
            "total_episodes": len(self._records),
            "total_frames": self._frames,
            "total_tasks": 1,
            "chunks_size": FILES,
            "data_files_size_in_mb": FILE_BYTES // 2**20,
            "video_files_size_in_mb": 200,
            "fps": self._fps,
            "splits": {"train": f"0:{len(self._records)}"},
            "data_path": DATA,
            "video_path": None,
            "features": self._features,
        }
        for name, facts in (("info", info), ("stats", self._all_statistics())):
            (self._folder / "meta" / f"{name}.json").write_text(json.dumps(facts, indent=4))

    def _begun_file(self, frames: Mapping[str, np.ndarray]) -> Any:
        chunk, file = divmod(self._files, FILES)
        path = self._folder / DATA.format(chunk_index=chunk, file_index=file)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._features = {
            name: {"dtype": str(x.dtype), "shape": list(x.shape[1:]) or [1], "names": self._names.get(name)}
            for name, x in frames.items()
        }
        schema = self._arrow.schema([(name, self._column(x[:0]).type) for name, x in frames.items()])
        return self._parquet.ParquetWriter(path, schema)

    def _end_file(self) -> None:
        self._file.close()
        self._file, self._bytes, self._files = None, 0, self._files + 1

    def _column(self, values: np.ndarray) -> Any:
        flat = self._arrow.array(values.ravel())
        return flat if values.ndim == 1 else self._arrow.FixedSizeListArray.from_arrays(flat, values.shape[1])

    def _write_table(self, name: str, table: Any) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._parquet.write_table(table, path)

    def _tasks(self) -> Any:
        """A table that pandas reads with the tasks as its index."""
        index = "__index_level_0__"
        kinds = {"task_index": ("int64", "int64"), index: ("unicode", "object")}
        columns = [
            {"name": None if name == index else name, "field_name": name, "pandas_type": kind, "numpy_type": own}
            | {"metadata": None}
            for name, (kind, own) in kinds.items()
        ]
        described = {"index_columns": [index], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
        table = self._arrow.table({"task_index": np.zeros(1, int), index: [self._task]})
        return table.replace_schema_metadata({"pandas": json.dumps(described)})

    def _all_statistics(self) -> dict[str, Any]:
        """Of all frames, from those of episodes; quantiles are means of the episodes' own, as LeRobot has them."""
        found: dict[str, Any] = {}
        weight = np.array([r["length"] for r in self._records], float)[:, None] / self._frames
        for name in self._features:
            own = {key: np.stack([r[f"stats/{name}/{key}"] for r in self._records]) for key in _statistics(np.zeros(2))}
            mean = (weight * own["mean"]).sum(axis=0)
            variance = (weight * (own["std"] ** 2 + (own["mean"] - mean) ** 2)).sum(axis=0)
            values = {key: (weight * x).sum(axis=0) for key, x in own.items() if key.startswith("q")}
            values |= {"min": own["min"].min(axis=0), "max": own["max"].max(axis=0), "mean": mean}
            values |= {"std": np.sqrt(variance), "count": own["count"].sum(axis=0)}
            found[name] = {key: x.tolist() for key, x in values.items()}
        return found


def _statistics(values: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics (n,) of a feature (length, n) or (length,)."""
    x = values.reshape(len(values), -1).astype(float)
    found = {"min": x.min(axis=0), "max": x.max(axis=0), "mean": x.mean(axis=0), "std": x.std(axis=0)}
    found |= {"count": np.array([len(x)])}
    quantiles = np.quantile(x, QUANTILES, axis=0)
    return found | {f"q{round(100 * q):02d}": row for q, row in zip(QUANTILES, quantiles, strict=True)}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _arrow_packages() -> tuple[Any, Any]:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise JaxikError("the layout of LeRobot needs pyarrow: pip install pyarrow") from None
    return pyarrow, pyarrow.parquet
