"""Datasets: rows follow from their index alone, whatever happened on the way; damage is named and made good."""

import dataclasses
import itertools
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pandas
import pytest
import xarray
from tables import exhaustive

import jaxik
from jaxik.cli import main
from jaxik.cli.generating import read_part
from jaxik.cli.plans import read_plan
from jaxik.cli.yaml_file import read_yaml
from jaxik.datasets.grid import even_rotations
from jaxik.datasets.rows import RowSolver
from jaxik.datasets.store import digests
from jaxik.robot.loading.catalog import find_by_name

CONFIG = """
robot: ur5e
tasks: {tip: {frame: tcp, target: {sample: 1}}}
search: true
dataset: {count: 1000, shard: 256}
"""
# Most tests solve in calls of this size, and so share one program.
COUNT, SHARD, BATCH = 1000, 256, 128


@pytest.fixture(scope="module")
def problem() -> jaxik.Problem:
    robot = jaxik.load_robot("ur5e")
    return jaxik.Problem(robot, {"tip": jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp")})


@pytest.fixture(scope="module")
def plan(problem: jaxik.Problem) -> jaxik.Plan:
    return jaxik.Plan(problem, COUNT, shard=SHARD, model="ur5e")


@pytest.fixture(scope="module")
def whole(plan: jaxik.Plan, tmp_path_factory: pytest.TempPathFactory) -> jaxik.Dataset:
    return jaxik.generate(plan, tmp_path_factory.mktemp("data") / "whole.zarr", batch_size=BATCH)


@pytest.fixture
def copied(whole: jaxik.Dataset, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole.path, tmp_path / "copy.zarr"))


def test_rows_reach_targets_that_c_mujoco_has_there(whole: jaxik.Dataset) -> None:
    model = mujoco.MjModel.from_xml_path(str(find_by_name("ur5e")))
    data = mujoco.MjData(model)
    assert whole.complete and len(whole) == COUNT and whole.status_counts == {"CONVERGED": COUNT}
    rows = whole[0:COUNT]
    assert {*rows} == {"q", "status", "residuals/tip/position", "residuals/tip/orientation"} | {
        "targets/tip/position", "targets/tip/quaternion"
    }  # fmt: skip
    for q, position in zip(rows["q"][::37], rows["targets/tip/position"][::37], strict=True):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        assert np.linalg.norm(data.site("tcp").xpos - position) < 1e-4 + 1e-6
    assert np.unique(rows["targets/tip/position"], axis=0).shape[0] == COUNT


def test_parts_make_what_one_run_makes(plan: jaxik.Plan, whole: jaxik.Dataset, tmp_path: Path) -> None:
    for part in (3, 2, 1):
        found = jaxik.generate(plan, tmp_path / "other.zarr", part=(part, 3), batch_size=BATCH)
        assert found.complete == (part == 1)
    assert found.digest == whole.digest
    for name in whole.names:
        np.testing.assert_array_equal(found[name][:], whole[name][:])


def test_a_row_far_beyond_32_bits_is_itself_alone(plan: jaxik.Plan) -> None:
    far = 2**32 + 5
    solver = RowSolver(plan, BATCH)
    near, beyond = solver.rows(5, 7), solver.rows(far, far + 2)
    assert (near["targets/tip/position"] != beyond["targets/tip/position"]).all()
    again = solver.rows(far + 1, far + 2)
    np.testing.assert_array_equal(again["q"][0], beyond["q"][1])


@pytest.mark.parametrize(("change", "said"), [
    ({"seed": 1}, "seed was 0, is 1"),
    ({"count": 500}, "count was 1000, is 500"),
    ({"spread": "workspace"}, 'spread was "joints", is "workspace"'),
])  # fmt: skip
def test_another_plan_is_refused_with_what_differs(
    plan: jaxik.Plan, whole: jaxik.Dataset, change: dict[str, Any], said: str
) -> None:
    other = jaxik.Plan(plan.problem, **({"count": COUNT, "shard": SHARD, "model": "ur5e"} | change))
    with pytest.raises(jaxik.JaxikError, match=said):
        jaxik.generate(other, whole.path, resume=True, batch_size=BATCH)
    with pytest.raises(jaxik.JaxikError, match="exists already; --resume goes on"):
        jaxik.generate(plan, whole.path, batch_size=BATCH)


def test_another_tolerance_is_another_plan(plan: jaxik.Plan, whole: jaxik.Dataset) -> None:
    robot = plan.problem.robot
    task = jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp", position_tolerance=1e-3)
    other = jaxik.Plan(jaxik.Problem(robot, {"tip": task}), COUNT, shard=SHARD)
    with pytest.raises(jaxik.JaxikError, match=r"problem\.tasks\.tip\.position_tolerance was 0\.0001, is 0\.001"):
        jaxik.generate(other, whole.path, resume=True, batch_size=BATCH)


def test_an_option_that_an_old_plan_does_not_know_had_its_default(plan: jaxik.Plan, copied: Path) -> None:
    written = json.loads((copied / "plan.json").read_text())
    del written["options"]["unlimited_range"], written["options"]["solve_options"]["damping"]
    (copied / "plan.json").write_text(json.dumps(written))
    assert jaxik.generate(plan, copied, resume=True, batch_size=BATCH).complete
    other = dataclasses.replace(plan, options=jaxik.SearchOptions(unlimited_range=2))
    with pytest.raises(jaxik.JaxikError, match=r"options.unlimited_range was 1.0, is 2.0"):
        jaxik.generate(other, copied, resume=True, batch_size=BATCH)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)


DAMAGES = {
    "a flipped bit": flip,
    "a truncated file": lambda file: file.write_bytes(file.read_bytes()[:-100]),
    "a missing file": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_named_and_only_it_is_made_again(
    plan: jaxik.Plan, whole: jaxik.Dataset, copied: Path, damage: str, capsys: Any
) -> None:
    DAMAGES[damage](copied / "q" / "c" / "2" / "0")
    assert main(["dataset", "verify", str(copied), "--repair", "--rows", "50"]) == 1
    said = capsys.readouterr().out
    assert "shard 2: q" in said and "shard 1" not in said and "--resume makes them again" in said
    solved: list[int] = []
    found = jaxik.generate(plan, copied, resume=True, batch_size=BATCH, advance=lambda rows, _: solved.append(rows))
    assert solved == [SHARD, SHARD, COUNT - 3 * SHARD, BATCH, BATCH]  # three shards were there
    assert found.digest == whole.digest and found.verify(rows=50).ok


def test_a_wrong_row_is_found_by_c_mujoco(copied: Path) -> None:
    store = jaxik.open_dataset(copied)._store
    arrays, record = store.read(0), store.committed()[0]
    arrays["q"][7] += 0.01
    arrays["q"][9, 0] = 7.0
    store.write(0, arrays, record | {"sha256": digests(arrays)})
    report = jaxik.open_dataset(copied).verify(rows=None)
    assert not report.ok and not report.damaged
    assert (report.wrong, report.outside, report.judged) == (2, 1, COUNT)


def test_what_is_not_committed_is_written_again(plan: jaxik.Plan, whole: jaxik.Dataset, copied: Path) -> None:
    for record in (copied / "commits").glob("0000000[13].json"):
        record.unlink()
    flip(copied / "q" / "c" / "1" / "0")
    dataset = jaxik.open_dataset(copied)
    assert not dataset.complete and dataset.missing == (1, 3)
    assert "2 shards are missing, the first is 1" in str(dataset.verify(rows=10))
    first, last = dataset._store.rows_of(1)
    for key in (
        first,
        slice(0, COUNT, 5),
        slice(first - 1, first + 1),
        [0, first - COUNT],
        np.arange(COUNT) == last - 1,
    ):
        with pytest.raises(jaxik.JaxikError, match=f"rows {first} to {last - 1} are missing"):
            dataset[key]
    assert len(dataset[0:first]["q"]) == len(dataset[np.arange(COUNT) < first]["q"]) == first
    assert jaxik.generate(plan, copied, resume=True, batch_size=BATCH).digest == whole.digest


def test_what_was_never_made_has_no_status(plan: jaxik.Plan, tmp_path: Path) -> None:
    part = jaxik.generate(plan, tmp_path / "part", part=(1, 2), batch_size=BATCH)
    unmade = np.concatenate([np.arange(*part._store.rows_of(shard)) for shard in part.missing])
    assert unmade.size and (part["status"][:][unmade] == -1).all()


PENDULUM = """
robot: double_pendulum
tasks: {tip: {frame: tcp, orientation_cost: null, target: {sample: 1}}}
search: true
dataset: {count: 5000, shard: 64}
"""


def interrupted(words: list[str], shards: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> list[str]:
    """What a command that is interrupted after so many shards says that goes on."""
    rows, calls = RowSolver.rows, itertools.count()

    def until(self: RowSolver, *given: Any) -> Any:
        if next(calls) == shards:
            raise KeyboardInterrupt
        return rows(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(RowSolver, "rows", until)
        patch.setattr(sys, "argv", ["jaxik", *words])
        assert main(words) == 130
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("jaxik: interrupted; go on with: jaxik ") and said.endswith(" --resume")
    return shlex.split(said.partition(": jaxik ")[2])


def test_an_interrupted_run_says_how_to_go_on_and_makes_the_same_bytes(
    whole: jaxik.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    words = ["generate", "c.yaml", "rows.zarr", "--batch-size", str(BATCH), "--dtype", "float64", "--quiet"]
    again = interrupted(words, 2, monkeypatch, capsys)
    assert len(list((tmp_path / "rows.zarr" / "commits").glob("*.json"))) == 2
    assert main(again) == 0
    assert jaxik.open_dataset(tmp_path / "rows.zarr").digest == whole.digest


@exhaustive
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Those of another process, which was interrupted, and went on as it said."""
    (tmp_path / "c.yaml").write_text(PENDULUM)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    commits = tmp_path / "out.zarr" / "commits"

    def begun(name: str, *more: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "jaxik.cli",
            "generate",
            "c.yaml",
            name,
            "--batch-size",
            "256",
            "--json",
            *more,
        ]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)

    def committed() -> int:
        return len(list(commits.glob("*.json")))

    run = begun("out.zarr")
    while run.poll() is None and committed() < 3:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert 3 <= committed() < 79
    run = begun("out.zarr", "--resume")
    said, _ = run.communicate()
    assert run.returncode == 0
    facts = json.loads(said.splitlines()[-1])
    monkeypatch.chdir(tmp_path)
    again = interrupted(["generate", "c.yaml", "other.zarr", "--batch-size", "256", "--quiet"], 10, monkeypatch, capsys)
    assert len(list((tmp_path / "other.zarr" / "commits").glob("*.json"))) == 10
    assert main(again) == 0
    assert facts["complete"] and facts["rows"] == 5000
    assert facts["digest"] == jaxik.open_dataset(tmp_path / "other.zarr").digest
    assert not list((tmp_path / "out.zarr").rglob("*.tmp"))


@exhaustive
@pytest.mark.parametrize("kind", ["pairs", "trajectories"])
def test_a_ray_cluster_that_loses_a_node_makes_the_same_bytes(kind: str, tmp_path: Path) -> None:
    """Nearly all of its time is the start of Ray, and how long that waits for a node that does not answer."""
    script = Path(__file__).parent / "ray_run.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), kind], capture_output=True, text=True, check=True
    )
    [facts] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"rows"')]
    assert facts["complete"] and facts["equal"] and facts["rows"] == 3000 and facts["dtype"] == "float64"
    assert 5 <= facts["killed_after"] < 47


def test_rows_that_do_not_converge_are_drawn_again(problem: jaxik.Problem) -> None:
    options = jaxik.SearchOptions(max_starts=1)
    kept = RowSolver(jaxik.Plan(problem, 500, options=options), BATCH).rows(0, 500)
    drawn = RowSolver(jaxik.Plan(problem, 500, options=options, keep="converged"), BATCH).rows(0, 500)
    good = kept["status"] == jaxik.Status.CONVERGED
    assert 20 < (~good).sum() < 200 and (drawn["status"] == jaxik.Status.CONVERGED).all()
    np.testing.assert_array_equal(drawn["q"][good], kept["q"][good])
    assert (drawn["targets/tip/position"][~good] != kept["targets/tip/position"][~good]).any(axis=1).all()


@exhaustive
def test_all_solutions_of_a_pose_are_a_row(problem: jaxik.Problem) -> None:
    rows = RowSolver(jaxik.Plan(problem, 20, options=jaxik.SearchOptions(solutions=8)), 20).rows(0, 20)
    assert rows["q"].shape == (20, 8, 6) and rows["status"].shape == (20, 8) == rows["residuals/tip/position"].shape
    assert rows["targets/tip/position"].shape == (20, 3)
    assert (rows["status"] == jaxik.Status.CONVERGED).sum(axis=1).min() >= 2


@exhaustive
def test_robots_are_randomised_and_what_was_drawn_is_stored(problem: jaxik.Problem) -> None:
    def longer(problem: jaxik.Problem, key: jax.Array) -> Any:
        scale = jax.random.uniform(key, (), minval=0.8, maxval=1.2)
        robot = problem.robot
        moved = jaxik.Problem(dataclasses.replace(robot, body_position=robot.body_position * scale), problem.tasks)
        return moved, {"scale": scale}

    rows = RowSolver(jaxik.Plan(problem, 64, randomize=longer), 64).rows(0, 64)
    assert np.ptp(rows["scale"]) > 0.3 and (rows["status"] == jaxik.Status.CONVERGED).all()
    robot = problem.robot
    for i in (0, 17, 63):
        own = dataclasses.replace(robot, body_position=robot.body_position * rows["scale"][i])
        reached = own.frame_pose(rows["q"][i], "tcp").translation()
        np.testing.assert_allclose(reached, rows["targets/tip/position"][i], atol=1.1e-4)


def test_spread_over_the_workspace_has_more_rows_far_out(problem: jaxik.Problem) -> None:
    far = {}
    for spread in ("joints", "workspace"):
        rows = RowSolver(jaxik.Plan(problem, 1000, spread=spread), BATCH).rows(0, 1000)
        position = rows["targets/tip/position"]
        far[spread] = np.mean(np.linalg.norm(position - [0, 0, 0.16], axis=1) > 0.7)
    # A shell from 0.7 to 0.95 m has 60 % of the ball's volume.
    assert far["workspace"] > far["joints"] + 0.1


def test_a_map_of_a_planar_arm_is_the_annulus_of_its_two_links(tmp_path: Path) -> None:
    upper, lower = 1.0, 0.6
    robot = jaxik.load_robot("double_pendulum")
    robot = dataclasses.replace(robot, site_position=jnp.array([[0.0, 0.0, -lower]]))
    task = jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp", orientation_cost=None)
    grid = jaxik.Grid((0.0, 0.0, 0.0), (3.64, 0.1, 3.64), 0.14)
    plan = jaxik.Plan(jaxik.Problem(robot, {"tip": task}), grid=grid)
    dataset = jaxik.generate(plan, tmp_path / "map.zarr", batch_size=169)
    share, manipulability, centers = dataset.reachability()
    assert share.shape == (26, 1, 26) == centers.shape[:3] and len(dataset) == 676
    radius = np.linalg.norm(centers[..., [0, 2]], axis=-1)
    np.testing.assert_array_equal(share == 1, (radius <= upper + lower) & (radius >= abs(upper - lower)))
    np.testing.assert_allclose(dataset["targets/tip/position"][:], centers.reshape(-1, 3), atol=1e-12)
    # J has two columns, along y nothing: det(J J') of three rows is zero; of a planar arm nothing else is to be had.
    assert manipulability.shape == share.shape and (manipulability == 0).all()
    assert "## Reach" in (tmp_path / "map.zarr" / "README.md").read_text()


@exhaustive
def test_manipulability_of_a_map_is_that_of_c_mujoco(problem: jaxik.Problem) -> None:
    grid = jaxik.Grid((0.4, 0.1, 0.4), (0.2, 0.2, 0.2), 0.1, directions=4)
    plan = jaxik.Plan(problem, grid=grid, options=jaxik.SearchOptions(max_starts=8))
    rows = RowSolver(plan, BATCH).rows(0, 32)
    model = mujoco.MjModel.from_xml_path(str(find_by_name("ur5e")))
    data, jacobian = mujoco.MjData(model), np.zeros((6, model.nv))
    for q, found in zip(rows["q"], rows["manipulability"], strict=True):
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], model.site("tcp").id)
        np.testing.assert_allclose(found, np.prod(np.linalg.svd(jacobian, compute_uv=False)), rtol=1e-6, atol=1e-9)


def test_a_configuration_gives_a_grid_in_its_units(tmp_path: Path) -> None:
    text = "robot: double_pendulum\nunits: {length: mm}\ntasks: {tip: {frame: tcp, target: {sample: 1}}}\n"
    grid = "dataset: {grid: {center: [0, 0, 400], size: [2000, 100, 1000], resolution: 200}}\n"
    (tmp_path / "c.yaml").write_text(text + grid)
    found = read_plan(read_yaml(tmp_path / "c.yaml"), count=None, seed=None).grid
    assert found is not None
    np.testing.assert_allclose(np.concatenate([found.center, found.size]), [0, 0, 0.4, 2, 0.1, 1])
    np.testing.assert_allclose(found.resolution, 0.2)


def test_directions_of_a_grid_are_spread_evenly() -> None:
    """The mean of rotation matrices of even rotations is zero, and none is near another."""
    q = even_rotations(500)
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1)
    matrices = np.array([jaxlie.SO3(x).as_matrix() for x in q])
    assert np.abs(matrices.mean(axis=0)).max() < 0.01
    cosine = np.abs(q @ q.T) - np.eye(500)
    random = np.random.default_rng(0).normal(size=(500, 4))
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    apart = 2 * np.arccos(cosine.max()), 2 * np.arccos((np.abs(random @ random.T) - np.eye(500)).max())
    assert apart[0] > 0.25 > 2 * apart[1]


@pytest.mark.parametrize(("wrong", "said"), [
    ({"grid": ((0, 0, 0), (1, 1, 0), 0.1)}, "size .3,. above 0"),
    ({"grid": ((0, 0, 0), (1, 1, 1), 0.0)}, "resolution is the edge of a voxel"),
    ({"grid": ((0, 0, 0), (1, 1, 1), 1e-4)}, "poses is too large"),
    ({"grid": ((0, 0, 0), (1, 1, 1), 0.5), "count": 7}, "the grid has 8 poses"),
    ({"grid": ((0, 0, 0), (1, 1, 1), 0.5), "keep": "converged"}, "not drawn again"),
])  # fmt: skip
def test_a_wrong_grid_is_refused(problem: jaxik.Problem, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=said):
        jaxik.Plan(problem, **wrong | {"grid": jaxik.Grid(*wrong["grid"])})


def test_random_targets_have_no_map(whole: jaxik.Dataset) -> None:
    with pytest.raises(jaxik.JaxikError, match="a map takes a plan with a grid"):
        whole.reachability()


def test_xarray_reads_rows_by_name(whole: jaxik.Dataset) -> None:
    found = xarray.open_zarr(whole.path)
    assert found["q"].dims == ("row", "q_0") and found.sizes["row"] == COUNT
    np.testing.assert_array_equal(found["q"][10:20], whole["q"][10:20])


def test_blocks_are_shuffled_and_whole(whole: jaxik.Dataset) -> None:
    plain = np.concatenate([block["q"] for block in whole.blocks(300, ("q",))])
    np.testing.assert_array_equal(plain, whole["q"][:])
    shuffled = np.concatenate([block["q"] for block in whole.blocks(300, ("q",), seed=1)])
    assert (shuffled != plain).any()
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), np.sort(plain, axis=0))


def test_exports_have_the_rows(whole: jaxik.Dataset, tmp_path: Path) -> None:
    assert main(["dataset", "export", str(whole.path), str(tmp_path / "rows.npz")]) == 0
    with np.load(tmp_path / "rows.npz") as found:
        for name in whole.names:
            np.testing.assert_array_equal(found[name], whole[name][:])
    parquet = tmp_path / "rows.parquet"
    assert main(["dataset", "export", str(whole.path), str(parquet)]) == 0
    table = pandas.read_parquet(parquet)
    np.testing.assert_array_equal(np.stack(table["q"].to_numpy()), whole["q"][:])
    np.testing.assert_array_equal(table["status"].to_numpy(), whole["status"][:])


def test_the_command_line_makes_the_same_and_says_what_there_is(
    whole: jaxik.Dataset, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    store = str(tmp_path / "rows.zarr")
    assert main(["generate", str(tmp_path / "c.yaml"), store, "--batch-size", "128", "--dtype", "float64"]) == 0
    assert "1,000 CONVERGED" in capsys.readouterr().out
    assert jaxik.open_dataset(store).digest == whole.digest
    assert main(["dataset", "verify", store, "--full", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] and facts["judged"] == COUNT and facts["errors"]["tip/position"]["max"] < 1.1e-4
    card = (Path(store) / "README.md").read_text()
    assert "| CONVERGED | 1,000 | 100 % |" in card and "1,000 rows judged by C MuJoCo" in card
    assert main(["dataset", "info", store]) == 0
    assert whole.digest in capsys.readouterr().out
    [code] = card.split("```python\n")[1:]
    scope: dict[str, Any] = {}
    exec(code.split("```")[0].replace('"rows.zarr"', repr(store)), scope)
    assert scope["q"].shape == (COUNT, 6)


WRONG = {
    "tasks: {tip: {frame: tcp, target: {sample: 1}}}|tasks: {tip: {frame: tcp, target: {from: home}}}": "draw nothing",
    "tasks: {tip: {frame: tcp, target: {sample: 1}}}|tasks: {tip: {frame: tcp, target: {file: a.csv}}}": "are several",
    "search: true|search: true\nstart: sample": "start: sample is not for datasets",
    "shard: 256|shard: 5000": "shard is at most 4096 rows or a multiple of them",
    "count: 1000|count: 0": "dataset.count",
    "shard: 256|shard: 256, spread: even": "spread",
    "shard: 256|shards: 256": "shards",
    "search: true|search: false\noptions: {max_steps: 5}|shard: 256|shard: 256, solutions: 3": "needs search: true",
}


@pytest.mark.parametrize("change", WRONG)
def test_a_wrong_configuration_is_named_in_one_line(tmp_path: Path, change: str, capsys: Any) -> None:
    old, new, *more = change.split("|")
    text = CONFIG.replace(old, new)
    (tmp_path / "c.yaml").write_text(text.replace(*more) if more else text)
    assert main(["generate", str(tmp_path / "c.yaml"), str(tmp_path / "out.zarr")]) == 2
    said = capsys.readouterr().err
    assert WRONG[change] in said and said.count("\n") == 1 and not (tmp_path / "out.zarr").exists()


def test_a_full_disk_is_said_in_one_line_and_what_is_there_stays(
    plan: jaxik.Plan, whole: jaxik.Dataset, copied: Path
) -> None:
    """No file may have more than 2,000 bytes, where one of q has 6,164."""
    (copied / "commits" / "00000001.json").unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(jaxik.JaxikError) as error:
            jaxik.generate(plan, copied, resume=True, batch_size=BATCH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(error.value).endswith("; what is committed stays, and --resume goes on with it")
    assert "File too large" in str(error.value) and "\n" not in str(error.value)
    assert jaxik.open_dataset(copied).missing == (1,)
    assert jaxik.generate(plan, copied, resume=True, batch_size=BATCH).digest == whole.digest
    assert not [file for file in copied.rglob("*") if file.suffix in (".tmp", ".partial", ".__lock")]


def test_a_folder_that_cannot_be_written_is_said(plan: jaxik.Plan) -> None:
    with pytest.raises(jaxik.JaxikError, match="^output /proc/rows.zarr: [A-Z].*; what is committed stays"):
        jaxik.generate(plan, "/proc/rows.zarr", batch_size=BATCH)


def test_folders_that_are_no_dataset_are_left_alone(plan: jaxik.Plan, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("...")
    with pytest.raises(jaxik.JaxikError, match="exists and is no dataset"):
        jaxik.generate(plan, tmp_path / "mine", batch_size=BATCH)
    assert main(["dataset", "info", str(tmp_path / "mine")]) == 2
    assert "is no dataset of jaxik" in capsys.readouterr().err
    assert main(["dataset", "export", str(tmp_path / "mine")]) == 2


def test_two_runs_on_one_dataset_are_one_too_many(plan: jaxik.Plan, copied: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (copied / "commits" / ".lock-1-of-1").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(jaxik.JaxikError, match="another run is writing it"):
            jaxik.generate(plan, copied, resume=True, batch_size=BATCH)


def test_mixed_devices_are_said_and_refused_where_asked(plan: jaxik.Plan, copied: Path) -> None:
    record = copied / "commits" / "00000001.json"
    facts = json.loads(record.read_text())
    record.write_text(json.dumps(facts | {"device": "another"}))
    with pytest.raises(jaxik.JaxikError, match="shard 1 has device another, this is"):
        jaxik.generate(plan, copied, resume=True, strict=True, batch_size=BATCH)
    jaxik.generate(plan, copied, resume=True, batch_size=BATCH)
    assert "Devices are mixed" in (copied / "README.md").read_text()


@pytest.mark.parametrize(("text", "variables", "part"), [
    ("3/8", {}, (3, 8)),
    ("auto", {"SLURM_ARRAY_TASK_ID": "12", "SLURM_ARRAY_TASK_MIN": "10", "SLURM_ARRAY_TASK_COUNT": "4"}, (3, 4)),
    ("auto/5", {"JOB_COMPLETION_INDEX": "0"}, (1, 5)),
    ("auto", {"JOB_COMPLETION_INDEX": "0"}, "how many pods"),
    ("auto", {}, "neither SLURM_ARRAY_TASK_ID nor"),
    ("9/8", {}, "K from 1 to N"),
    ("0/8", {}, "K from 1 to N"),
    ("a/b", {}, "K from 1 to N"),
])  # fmt: skip
def test_parts_are_read_from_schedulers(
    text: str, variables: dict[str, str], part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if isinstance(part, tuple):
        assert read_part(text) == part
    else:
        with pytest.raises(jaxik.JaxikError, match=part):
            read_part(text)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"count": 0}, "count is a whole number from 1 on"),
    ({"seed": -1}, "seed is a whole number from 0 on"),
    ({"sampled": ("tup",)}, "did you mean 'tip'"),
    ({"sampled": ()}, "nothing of the plan is random"),
    ({"keep": "good"}, "keep"),
    ({"start": jnp.zeros((2, 6))}, "start is one configuration"),
])  # fmt: skip
def test_a_wrong_plan_is_refused(problem: jaxik.Problem, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=said):
        jaxik.Plan(problem, **({"count": 10} | wrong))
