"""Rows by tensorstore: the files that zarr writes, in whatever process."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from fresh import run_program

import jaxik
from jaxik.datasets import arrays
from jaxik.datasets.rows import Column
from jaxik.datasets.store import Store, open_or_create

pytest.importorskip("tensorstore")
COUNT, SHARD = 150, 64
SHAPES = {"q": ((7,), "f4"), "status": ((), "i1"), "path": ((5, 3), "f8"), "scale": ((), "f8"), "success": ((), "?")}


def filled(path: Path) -> Store:
    """A store of made-up rows, one of whose arrays has nothing but zeros in shard 1."""
    robot = jaxik.load_robot("double_pendulum")
    problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp")})
    columns = {name: Column(shape, np.dtype(kind), "", "") for name, (shape, kind) in SHAPES.items()}
    store = open_or_create(path, jaxik.Plan(problem, COUNT, shard=SHARD), columns, {}, False)
    random = np.random.default_rng(0)
    for shard in range(store.shards):
        first, last = store.rows_of(shard)
        rows = {n: random.integers(0, 9, (last - first, *c.shape)).astype(c.dtype) for n, c in columns.items()}
        rows["status"] = np.minimum(rows["status"], 1) * (shard != 1)
        store.write(shard, rows, {})
    return store


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
rows = jaxik.open_dataset(sys.argv[1])
wanted = rows[10:20]["q"]
warnings.simplefilter("ignore")  # JAX's, of forks
if (child := os.fork()) == 0:
    os._exit(0 if (rows[10:20]["q"] == wanted).all() else 1)
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
