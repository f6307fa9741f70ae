"""Motions in the layout of LeRobot v3: episodes are where the metadata says, in files that are full as well."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import jaxik
from jaxik.cli import main
from jaxik.datasets.lerobot import Writer, write_lerobot

COUNT, STEPS = 70, 10
# An interpreter with lerobot: its requirements are narrow, and it may have an environment of its own.
READER = os.environ.get("LEROBOT_PYTHON") or (sys.executable if importlib.util.find_spec("lerobot") else None)


@pytest.fixture(scope="module")
def motions(tmp_path_factory: pytest.TempPathFactory) -> jaxik.Dataset:
    robot = jaxik.load_robot("double_pendulum")
    task = jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp", orientation_cost=None)
    trajectories = jaxik.Trajectories(STEPS, 0.05, waypoints=1)
    plan = jaxik.Plan(jaxik.Problem(robot, {"tip": task}), COUNT, trajectories=trajectories)
    return jaxik.generate(plan, tmp_path_factory.mktemp("data") / "motions.zarr")


def episodes_of(folder: Path) -> list[dict[str, Any]]:
    """Frames of all episodes, read as LeRobot reads them: files in their order, and then offsets of the metadata."""
    files = sorted((folder / "data").glob("*/*.parquet"))
    frames = pandas.concat([pandas.read_parquet(file) for file in files], ignore_index=True)
    np.testing.assert_array_equal(frames["index"], np.arange(len(frames)))
    info, found = json.loads((folder / "meta/info.json").read_text()), []
    assert info["total_frames"] == len(frames)
    records = pandas.concat(map(pandas.read_parquet, sorted((folder / "meta/episodes").glob("*/*.parquet"))))
    assert len(records) == info["total_episodes"] and info["codebase_version"] == "v3.0"
    for number, record in enumerate(records.to_dict("records")):
        own = frames.iloc[record["dataset_from_index"] : record["dataset_to_index"]]
        assert record["episode_index"] == number and len(own) == record["length"]
        assert (own["episode_index"] == number).all()
        assert own["frame_index"].tolist() == list(range(len(own)))
        # The file that the metadata names has the episode, and has all of it.
        place = {key: record[f"data/{key}"] for key in ("chunk_index", "file_index")}
        assert (
            pandas.read_parquet(folder / info["data_path"].format(**place))["episode_index"] == number
        ).sum() == len(own)
        found.append({name: np.stack(own[name].to_numpy()) for name in own} | {"record": record})
    return found


def test_an_export_has_the_motions(motions: jaxik.Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "episodes"
    assert main(["dataset", "export", str(motions.path), str(folder), "--format", "lerobot"]) == 0
    rows, found = motions[0:COUNT], episodes_of(folder)
    assert len(found) == COUNT
    for i in (0, 63, 64, COUNT - 1):
        np.testing.assert_allclose(found[i]["action"], rows["q"][i], atol=1e-6)
        np.testing.assert_allclose(found[i]["observation.state"][1:], rows["q"][i, :-1], atol=1e-6)
        np.testing.assert_allclose(found[i]["observation.state"][0], rows["q0"][i], atol=1e-6)
        np.testing.assert_allclose(
            found[i]["observation.environment_state"][:, :3], rows["targets/tip/position"][i], atol=1e-6
        )
        np.testing.assert_allclose(found[i]["timestamp"], 0.05 * np.arange(STEPS), atol=1e-6)
        assert found[i]["next.done"].tolist() == [False] * (STEPS - 1) + [True]
        assert found[i]["next.success"][-1] == rows["success"][i]
    info, stats = (json.loads((folder / f"meta/{name}.json").read_text()) for name in ("info", "stats"))
    assert info["fps"] == 20 and info["features"]["action"] == {
        "dtype": "float32", "shape": [2], "names": list(motions._store.group.attrs["q_joint"])
    }  # fmt: skip
    actions = np.concatenate([episode["action"] for episode in found]).astype(float)
    for key, value in (("mean", actions.mean(0)), ("std", actions.std(0)), ("min", actions.min(0)), ("count", [700])):
        np.testing.assert_allclose(stats["action"][key], value, rtol=1e-5)
    tasks = pandas.read_parquet(folder / "meta/tasks.parquet")
    assert tasks.loc["follow tip"].task_index == 0 and tasks.iloc[0].name == "follow tip"


@pytest.mark.skipif(READER is None, reason="lerobot is not installed; LEROBOT_PYTHON names an interpreter that has it")
def test_lerobot_itself_reads_the_motions(motions: jaxik.Dataset, tmp_path: Path) -> None:
    assert READER is not None
    folder, frames = tmp_path / "episodes", tmp_path / "frames.npz"
    write_lerobot(motions, folder, file_bytes=10_000)
    assert len([*(folder / "data").glob("*/*.parquet")]) > 3
    reader = [READER, str(Path(__file__).with_name("read_lerobot.py")), str(folder), str(frames)]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = own | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(reader, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    rows = {name: x.astype(np.float32) for name, x in motions[0:COUNT].items()}
    before = np.concatenate([rows["q0"][:, None], rows["q"][:, :-1]], axis=1)
    targets = np.concatenate([rows[f"targets/tip/{part}"] for part in ("position", "quaternion")], axis=-1)
    with np.load(frames) as found:
        assert [int(found[name]) for name in ("num_frames", "num_episodes", "fps")] == [COUNT * STEPS, COUNT, 20]
        wanted = {"observation.state": before, "action": rows["q"], "observation.environment_state": targets}
        for name, values in wanted.items():
            np.testing.assert_array_equal(found[name], values.reshape(COUNT * STEPS, -1))
        np.testing.assert_array_equal(found["episode_index"], np.repeat(np.arange(COUNT), STEPS))
        np.testing.assert_array_equal(found["next.success"][STEPS - 1 :: STEPS], rows["success"])
        assert found["next.done"].sum() == COUNT and {*found["task"]} == {"follow tip"}
        np.testing.assert_array_equal(found["last/action"], rows["q"][-1])
        following = np.concatenate([rows["q"][0, 1:], rows["q"][0, -1:]])
        np.testing.assert_array_equal(found["ahead/action"], np.stack([rows["q"][0], following], axis=1))
        assert found["ahead/is_pad"].sum() == 1 and found["ahead/is_pad"][-1, 1]
        by_index = rows["q"].reshape(COUNT * STEPS, -1)[found["shuffled/index"]]
        np.testing.assert_array_equal(found["shuffled/action"], by_index)
        np.testing.assert_allclose(found["stats/action/mean"], rows["q"].mean(axis=(0, 1)), rtol=1e-3)


def test_episodes_of_any_length_are_where_the_metadata_says_when_files_are_full(tmp_path: Path) -> None:
    lengths = [3, 40, 7, 7, 1, 25, 12, 60, 2]
    writer = Writer(tmp_path, 10, "arm", "move", {}, file_bytes=2000)
    for number, length in enumerate(lengths):
        writer.add({"action": np.full((length, 2), number, np.float32)})
    writer.close()
    found = episodes_of(tmp_path)
    assert [len(episode["action"]) for episode in found] == lengths
    assert all((episode["action"] == number).all() for number, episode in enumerate(found))
    assert len({episode["record"]["data/file_index"] for episode in found}) > 3


def test_what_is_no_motion_or_has_no_rate_is_refused(motions: jaxik.Dataset, tmp_path: Path, capsys: Any) -> None:
    motions = jaxik.open_dataset(motions.path)
    motions.plan["trajectories"]["dt"] = 0.03
    with pytest.raises(jaxik.JaxikError, match="whole frames a second"):
        write_lerobot(motions, tmp_path / "out")
    motions.plan["trajectories"] = None
    with pytest.raises(jaxik.JaxikError, match="its rows are no motions"):
        write_lerobot(motions, tmp_path / "out")
    assert main(["dataset", "export", str(motions.path), str(tmp_path / "out.csv")]) == 2
    assert "--format npz|parquet|lerobot" in capsys.readouterr().err and not list(tmp_path.iterdir())
