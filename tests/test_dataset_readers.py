"""Other libraries read datasets by the snippets of docs/datasets.md, none of more than ten lines."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray
import zarr
from made_up_rows import COUNT, filled

import jaxik
from jaxik.cli import main
from jaxik.datasets.dataset import GROUP, _groups

PAGE = (Path(__file__).parents[1] / "docs" / "datasets.md").read_text()
ROWS = 4  # of a block, so that there are several groups of 16 blocks


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> jaxik.Dataset:
    return jaxik.open_dataset(filled(tmp_path_factory.mktemp("data") / "pairs.zarr").path)


def snippet(begins: str, rows: jaxik.Dataset) -> str:
    """The one snippet that begins so, on this dataset and in smaller blocks."""
    [found] = [code.split("```")[0] for code in PAGE.split("```py\n") if code.startswith(begins)]
    assert len([line for line in found.splitlines() if line]) <= 10
    return found.replace("4096", str(ROWS)).replace('"pairs.', f'"{rows.path.parent}/pairs.')


def in_order(blocks: list[Any]) -> np.ndarray:
    """The rows of q of blocks, sorted."""
    assert len(blocks) == -(-COUNT // ROWS) and max(len(block["q"]) for block in blocks) == ROWS
    q = np.concatenate([block["q"] for block in blocks])
    return q[np.lexsort(q.T)]


def test_grain_reads_shuffled_blocks(rows: jaxik.Dataset) -> None:
    scope: dict[str, Any] = {"jaxik": jaxik, "grain": pytest.importorskip("grain")}
    exec(snippet('rows = jaxik.open_dataset("pairs.zarr")\n\nclass Source', rows), scope)
    blocks = list(scope["loader"])
    plain = rows["q"][:]
    assert (np.concatenate([block["q"] for block in blocks]) != plain).any()
    np.testing.assert_array_equal(in_order(blocks), plain[np.lexsort(plain.T)])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX has threads; workers read files alone
def test_a_loader_of_pytorch_reads_shuffled_blocks(rows: jaxik.Dataset, workers: int) -> None:
    scope: dict[str, Any] = {"jaxik": jaxik, "torch": (torch := pytest.importorskip("torch"))}
    exec(
        snippet('rows = jaxik.open_dataset("pairs.zarr")\n\nclass Blocks', rows).replace(
            "batch_size=None", f"batch_size=None, num_workers={workers}"
        ),
        scope,
    )
    blocks = list(scope["loader"])
    assert isinstance(blocks[0]["q"], torch.Tensor)
    plain = rows["q"][:]
    assert (np.concatenate([block["q"] for block in blocks]) != plain).any()
    np.testing.assert_array_equal(in_order(blocks), plain[np.lexsort(plain.T)])


def test_zarr_xarray_and_pandas_read_rows_by_name(rows: jaxik.Dataset) -> None:
    assert main(["dataset", "export", str(rows.path), str(rows.path.with_suffix(".parquet"))]) == 0
    code = snippet("zarr.open_group", rows)
    assert len(code.splitlines()) == 3
    packages = {"zarr": zarr, "xarray": xarray, "pandas": pandas}
    by_zarr, by_xarray, by_pandas = (eval(line, packages) for line in code.splitlines())
    np.testing.assert_array_equal(by_zarr, rows[:ROWS]["q"])
    np.testing.assert_array_equal(by_xarray, rows[:ROWS]["q"])
    assert by_xarray.dims[0] == "row"
    np.testing.assert_array_equal(np.stack(by_pandas.to_numpy()), rows[:]["q"])


def test_parts_of_blocks_are_all_rows_once(rows: jaxik.Dataset) -> None:
    whole = np.concatenate([block["q"] for block in rows.blocks(ROWS, seed=3)])
    parts = [np.concatenate([b["q"] for b in rows.blocks(ROWS, seed=3, part=(k, 2))]) for k in (1, 2)]
    both = np.concatenate(parts)
    assert min(map(len, parts)) >= COUNT // 4
    np.testing.assert_array_equal(both[np.lexsort(both.T)], whole[np.lexsort(whole.T)])
    for part in ((0, 2), (3, 2), None, (1.5, 2), (1, 2, 3), 1):
        with pytest.raises(jaxik.JaxikError, match="from 1 to n"):
            next(rows.blocks(part=part))


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(("blocks", "parts"), [(1, 1), (2, 4), (25, 2), (64, 4), (131, 3), (800, 7)])
def test_parts_have_as_many_blocks_but_for_one(blocks: int, parts: int, seed: int | None) -> None:
    found = [_groups(blocks, (k, parts), seed) for k in range(1, parts + 1)]
    sizes = [sum(last - first for first, last in groups) for groups in found]
    assert max(sizes) - min(sizes) <= 1
    read = [block for groups in found for first, last in groups for block in range(first, last)]
    assert sorted(read) == list(range(blocks))
    assert max(last - first for groups in found for first, last in groups) <= GROUP
