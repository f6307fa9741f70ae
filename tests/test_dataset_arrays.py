"""Rows by tensorstore: the files that zarr writes, in whatever process."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from fresh import run_program
from made_up_rows import SHAPES, filled

import jaxik
from jaxik.datasets import arrays

pytest.importorskip("tensorstore")


def files(path: Path) -> dict[Path, bytes]:
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_tensorstore_and_zarr_write_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    by_tensorstore = arrays._opened
    monkeypatch.setattr(arrays, "_opened", lambda folder: opened.append(by_tensorstore(folder)) or opened[-1])
    quick = filled(tmp_path / "quick")
    assert len(opened) == 3 * len(SHAPES) and all(x is not None for x in opened)
    monkeypatch.setattr(arrays, "_opened", lambda folder: None)
    plain = filled(tmp_path / "plain")
    assert files(quick.path) == files(plain.path)
    assert jaxik.open_dataset(quick.path).digest == jaxik.open_dataset(plain.path).digest
    zarr_reads = quick.read(2)
    monkeypatch.undo()
    for name, values in quick.read(2).items():
        np.testing.assert_array_equal(values, zarr_reads[name])
        assert values.dtype == zarr_reads[name].dtype


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    store = filled(tmp_path / "rows")
    for name in ("q/c/0/0", "scale/c/0"):
        (store.path / f"{name}{arrays.LOCK}").write_bytes(b"half")
    store.write(0, store.read(0), {})
    assert not list(store.path.rglob(f"*{arrays.LOCK}"))


FORKED = """
import os, sys, warnings, jaxik
store = jaxik.open_dataset(sys.argv[1])._store
wanted = store.read(0)["q"]
warnings.simplefilter("ignore")  # JAX's, of forks
if (child := os.fork()) == 0:
    os._exit(0 if (store.read(0)["q"] == wanted).all() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_reads_rows(tmp_path: Path) -> None:
    done = run_program(FORKED, str(filled(tmp_path / "rows").path))
    assert done.returncode == 0, done.stderr


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    store = filled(tmp_path / "rows")
    file = store.path / "q/c/1/0"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(jaxik.LoadError, match="shard 1: q cannot be read"):
        store.read(1)
    shutil.rmtree(file.parent)
    assert (store.read(1)["q"] == 0).all()
    assert "q" in jaxik.open_dataset(store.path).verify(rows=None).damaged[1]
