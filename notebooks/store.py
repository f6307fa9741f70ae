"""Execute notebooks and store them with their outputs, for pages that show a notebook and do not run it.

python -m notebooks.store [NAME ...]; all by default. They run on the CPU with the jaxik that is installed, each in an
empty folder and a kernel of its own. Cells with the tag "skip-execution", those that install, are left out.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
PATIENCE = 900  # [s] for a cell, on a machine that is busy


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run.

    Raises:
      nbclient.exceptions.CellExecutionError: where a cell fails, with the cell and its traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    metadata = notebook.metadata.copy()
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=PATIENCE,
            # As many pieces as `print` happens to send would differ from run to run.
            coalesce_streams=True,
            record_timing=False,
            # A kernel warns that it talks over TCP.
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=os.environ | {"JAX_PLATFORMS": "cpu"})
    # The kernel adds its version of Python, which differs from machine to machine.
    notebook.metadata = metadata
    return notebook


def main() -> None:
    """Store what is named, or all."""
    known = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser = argparse.ArgumentParser(prog="python -m notebooks.store", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(known)}; all by default")
    names = parser.parse_args().names or known
    for name in names:
        if name not in known:
            parser.error(f"there is no notebook {name!r}, but {', '.join(known)}")
    for name in names:
        path, start = FOLDER / f"{name}.ipynb", time.perf_counter()
        nbformat.write(executed(path), path)
        print(f"{name}: {time.perf_counter() - start:.0f} s, {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
