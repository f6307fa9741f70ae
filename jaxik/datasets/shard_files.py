"""Rows of uncompressed shards of Zarr, straight from their files: many times as quick as by way of its codecs.

A file of a shard has its chunks as they are in memory, then an index: for each chunk where it begins and its bytes, as
little endian words of 64 bits, and a checksum. A chunk of nothing but the fill value is left out, and so is a file of
such chunks.
"""

import math
import os
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.core.errors import LoadError

# In place of where a chunk begins: it is not there.
ABSENT = np.uint64(2**64 - 1)
CHECKSUM = 4


def has_plain_shards(array: Any) -> bool:
    """Whether the files of a Zarr array are those of `jaxik.generate`: sharded by rows alone, and not compressed."""
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

    codecs = array.metadata.codecs
    if len(codecs) != 1 or not isinstance(codec := codecs[0], ShardingCodec):
        return False
    inside, index = [*codec.codecs], [*codec.index_codecs]
    plain = len(inside) == 1 and isinstance(inside[0], BytesCodec) and _is_little(inside[0])
    indexed = len(index) == 2 and isinstance(index[0], BytesCodec) and _is_little(index[0])
    by_rows = array.shards[1:] == array.chunks[1:] == array.shape[1:]
    at_end = getattr(codec.index_location, "value", codec.index_location) == "end"
    named = array.metadata.chunk_key_encoding.to_dict()
    default = named.get("name") == "default" and named.get("configuration", {}).get("separator", "/") == "/"
    return plain and indexed and isinstance(index[1], Crc32cCodec) and by_rows and at_end and default


def _is_little(codec: Any) -> bool:
    return codec.endian is None or getattr(codec.endian, "value", codec.endian) == "little"


def rows_of_files(array: Any, folder: Path, first: int, last: int) -> np.ndarray:
    """Rows of an array with plain shards that lies in `folder`.

    Raises:
      LoadError: for a file that is shorter than its index says.
    """
    size = array.shards[0]
    found = np.empty((last - first, *array.shape[1:]), array.dtype.newbyteorder("<"))
    for shard in range(first // size, -(-last // size)):
        begin, end = max(first, shard * size), min(last, (shard + 1) * size)
        file = folder.joinpath("c", str(shard), *["0"] * (len(array.shape) - 1))
        _read(file, array, found[begin - first : end - first], begin - shard * size)
    return found.astype(array.dtype, copy=False)


def _read(file: Path, array: Any, out: np.ndarray, first: int) -> None:
    """Fill `out` with rows of a shard, from its row `first` on."""
    chunk, chunks = array.chunks[0], array.shards[0] // array.chunks[0]
    row = out.itemsize * math.prod(out.shape[1:])
    try:
        opened = file.open("rb", buffering=0)
    except FileNotFoundError:
        out[:] = array.fill_value
        return
    with opened:
        begins, at = _begins(opened, chunks, chunk * row), 0
        while at < len(out):
            number, skipped = divmod(first + at, chunk)
            end = min(at + chunk - skipped, len(out))
            if begins[number] == ABSENT:
                out[at:end] = array.fill_value
            else:
                opened.seek(int(begins[number]) + skipped * row)
                if opened.readinto(out[at:end].reshape(-1).view(np.uint8).data) != (end - at) * row:
                    raise LoadError(f"{file}: is cut off")
            at = end


def _begins(opened: FileIO, chunks: int, size: int) -> np.ndarray:
    """Where chunks of `size` bytes begin, by the index of a file that is as long as it says."""
    last = opened.seek(0, os.SEEK_END) - CHECKSUM - 16 * chunks
    opened.seek(max(last, 0))
    read = opened.read(16 * chunks)
    index = np.frombuffer(read[: len(read) // 8 * 8], "<u8")
    begins = index[::2]
    there = begins[begins != ABSENT]
    if len(begins) != chunks or len(there) * size != last or (there > last - size).any():
        raise LoadError(f"{opened.name}: is cut off")
    return begins
