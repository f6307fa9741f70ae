"""A dataset in another format: one file, or a folder in the layout of LeRobot."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.datasets.lerobot import write_lerobot

FORMATS = ("npz", "parquet", "lerobot")
# Rows of a group of a Parquet file.
GROUP = 65536


def export(dataset: Any, path: Path, kind: str | None = None) -> None:
    """Write a dataset to `path`.

    Args:
      kind: "npz": a file with its arrays by name; "parquet": a file with a column for each; "lerobot": a folder with an
        episode for each motion. None: what the path ends in.

    Raises:
      JaxikError: for another ending, a file that exists, shards that are missing, a package that is.
    """
    kind = kind or path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise JaxikError(f"export {path}: is a file that ends in .npz or .parquet; or say --format {'|'.join(FORMATS)}")
    if path.exists():
        raise JaxikError(f"export {path}: exists already; choose another name")
    if not dataset.complete:
        raise JaxikError(
            f"{dataset.path}: {len(dataset.missing)} shards are missing; make them first: generate with --resume, in "
            "Python resume=True"
        )
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        {"npz": _write_npz, "parquet": _write_parquet, "lerobot": write_lerobot}[kind](dataset, temporary)
        temporary.replace(path)
    except OSError as error:
        raise JaxikError(f"export {path}: {error.strerror}") from None
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)


def _write_npz(dataset: Any, path: Path) -> None:
    attributes = dict(dataset._store.group.attrs)
    with path.open("wb") as file:
        np.savez(
            file, **{name: dataset[name][:] for name in dataset.names}, attributes=np.array(json.dumps(attributes))
        )


def _write_parquet(dataset: Any, path: Path) -> None:
    try:
        import pyarrow as pa  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet as pq  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise JaxikError("Parquet needs pyarrow: pip install pyarrow") from None
    writer = None
    try:
        for block in dataset.blocks(GROUP):
            columns = {}
            for name, values in block.items():
                flat = values.reshape(len(values), -1)
                array = pa.array(flat.ravel())
                columns[name] = array if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(array, flat.shape[1])
            table = pa.table(columns)
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
