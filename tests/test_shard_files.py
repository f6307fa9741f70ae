"""Rows straight from the files of shards: those that zarr reads, and none of a file that is cut off."""

from pathlib import Path

import numpy as np
import pytest
import zarr
from made_up_rows import COUNT, SHARD, filled
from zarr.codecs import BytesCodec, TransposeCodec

import jaxik
from jaxik.datasets.shard_files import has_plain_shards, rows_of_files


@pytest.mark.parametrize(("first", "last"), [(0, COUNT), (3, 5), (SHARD - 1, SHARD + 1), (SHARD, 2 * SHARD), (7, 7)])
def test_they_are_those_that_zarr_reads(tmp_path: Path, first: int, last: int) -> None:
    rows = jaxik.open_dataset(filled(tmp_path / "rows").path)
    for name in rows.names:
        array = rows[name]
        assert has_plain_shards(array)
        found, wanted = rows_of_files(array, rows.path / name, first, last), np.asarray(array[first:last])
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype and found.shape == wanted.shape


@pytest.mark.parametrize("kept", [0, 100, -200])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, kept: int) -> None:
    rows = jaxik.open_dataset(filled(tmp_path / "rows").path)
    file = rows.path / "q/c/1/0"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(jaxik.LoadError, match="q/c/1/0: is cut off"):
        rows[0:COUNT]
    assert len(rows[0:SHARD]["q"]) == SHARD


@pytest.mark.parametrize(
    "layout",
    [
        {"shards": (8, 3), "chunks": (4, 3)},
        {"shards": (8, 3), "chunks": (4, 1), "compressors": None},
        {"chunks": (8, 3), "compressors": None},
        {"shards": (8, 3), "chunks": (4, 3), "compressors": None, "filters": TransposeCodec(order=(1, 0))},
        {"shards": (8, 3), "chunks": (4, 3), "compressors": None, "serializer": BytesCodec(endian="big")},
    ],
)
def test_other_layouts_are_left_to_zarr(layout: dict[str, object]) -> None:
    assert not has_plain_shards(zarr.create_array({}, shape=(16, 3), dtype="f4", **layout))  # pyright: ignore
