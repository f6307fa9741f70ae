"""The scripts for clusters, run with the variables that a scheduler sets: together they make the whole dataset."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.cli.generating import read_part

SCRIPTS = Path(__file__).parents[1] / "configs" / "cluster"
CONFIG = """
robot: double_pendulum
tasks: {tip: {frame: tcp, orientation_cost: null, target: {sample: 1}}}
options: {max_steps: 20}
dataset: {count: 96, shard: 32}
"""


def jaxik_on_path(folder: Path) -> dict[str, str]:
    """An environment in which `jaxik` is the command line of this tree."""
    command = folder / "jaxik"
    command.write_text(f'#!/bin/bash\nexec {sys.executable} -m jaxik.cli "$@"\n')
    command.chmod(0o755)
    root = str(Path(jaxik.__file__).parents[1])
    # A cache of its own, and not where the command is, whose name a folder of the cache has.
    own = {"PYTHONPATH": root, "XDG_CACHE_HOME": str(folder / "cache")}
    found = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"} | own
    return {name: value for name, value in found.items() if not name.startswith("SLURM")}


FIRST = [("2", 2), ("1", 0)]


@pytest.mark.parametrize("tasks", mostly_exhaustive([FIRST, [*FIRST, ("2", 0)]], [FIRST]), ids=len)
@exhaustive
def test_a_slurm_array_makes_the_dataset_in_parts_and_goes_on_when_it_is_submitted_again(
    tasks: list[tuple[str, int]], tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    environment = jaxik_on_path(tmp_path) | {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "2"}
    for task, left in tasks:
        command = ["bash", str(SCRIPTS / "slurm_array.sh"), str(tmp_path / "c.yaml"), str(tmp_path / "out.zarr")]
        subprocess.run(command, env=environment | {"SLURM_ARRAY_TASK_ID": task}, check=True, capture_output=True)
        assert len(jaxik.open_dataset(tmp_path / "out.zarr").missing) == left
    assert (tmp_path / "out.zarr" / "README.md").exists()


def test_an_indexed_job_has_as_many_parts_as_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    job = yaml.safe_load((SCRIPTS / "kubernetes_job.yaml").read_text())["spec"]
    [container] = job["template"]["spec"]["containers"]
    command = container["command"]
    part = command[command.index("--part") + 1]
    assert job["completionMode"] == "Indexed" and command[:2] == ["jaxik", "generate"]
    for pod in range(job["completions"]):
        monkeypatch.setenv("JOB_COMPLETION_INDEX", str(pod))
        assert read_part(part) == (pod + 1, job["completions"])
