"""`jaxik solve`: what it solves, writes, prints and keeps; `jaxik info`, `jaxik robots` and the help."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jaxlie
import mujoco
import numpy as np
import pytest
from cli_runs import ARM, POINT, arm_folder, interrupted_after, solve_command, stay, tip, without_solving  # noqa: F401 (fixtures)
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.cli import batches, main
from jaxik.cli.arguments import CONFIG_HELP, build_parsers
from jaxik.robot import bundled
from jaxik.robot.loading.catalog import bundled_outline

CONFIGS = Path(__file__).parents[1] / "configs"


def test_shipped_config_solves_and_says_what_a_newcomer_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", str(CONFIGS / "panda_reach.yaml"), "--num-targets", "64"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in (
        "panda  7 degrees of freedom, float32",
        "site tcp to 64 targets: position and orientation",
        "of 64 solved",
        "CONVERGED",
        "position [mm]",
        "orientation [deg]",
        "load",
        "compile",
        "run",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100


@exhaustive
def test_every_point_of_the_ur5e_config_is_reached_with_the_pen_upright(folder: Path) -> None:
    out = folder / "pen.npz"
    assert main(["solve", str(CONFIGS / "ur5e_reach.yaml"), "--output", str(out), "--quiet"]) == 0
    with np.load(out) as found:
        assert (found["status"] == jaxik.Status.CONVERGED).all()
        np.testing.assert_allclose(found["targets/pen/position"][0], [0.45, -0.2, 0.76], atol=1e-12)
        robot = jaxik.load_robot("ur5e").with_base(jaxlie.SE3.from_translation(np.array([0, 0, 0.75])))
        robot = robot.with_frame("pen", "wrist_3_link", jaxlie.SE3.from_translation(np.array([0, 0, 0.12])))
        pose = robot.frame_pose(found["q"].astype(float), "pen")
        np.testing.assert_allclose(pose.translation(), found["targets/pen/position"], atol=1e-4)
        np.testing.assert_allclose(pose.rotation().as_matrix()[:, :, 2], [[0, 0, -1]] * 5, atol=2e-3)


def test_output_holds_what_solve_returns(jaxik_run: Any, folder: Path) -> None:
    changes = {"options": {"max_steps": 30}, "dtype": "float64"}
    assert jaxik_run(changes, "--output", str(folder / "o.npz"), "--quiet") == (0, "", "")
    robot = jaxik.load_robot(folder / "arm.xml")
    target = robot.frame_pose(robot.sample(jax.random.key(0), (8,)), "tool")
    task = jaxik.FrameTask(robot.frame("tool"), target, orientation_cost=None)
    options = jaxik.SolveOptions(max_steps=30)
    expected = jaxik.solve(jaxik.Problem(robot, {"tip": task}), robot.keyframe("folded"), options=options)
    with np.load(folder / "o.npz") as found:
        for name in ("status", "iterations"):
            np.testing.assert_array_equal(found[name], getattr(expected, name), err_msg=name)
        # Another program, which may round otherwise.
        for name in ("q", "cost", "stationarity"):
            np.testing.assert_allclose(found[name], getattr(expected, name), rtol=0, atol=1e-11, err_msg=name)
        position = expected.residuals["tip"]["position"]
        np.testing.assert_allclose(found["residuals/tip/position"], position, rtol=0, atol=1e-11)
        np.testing.assert_array_equal(found["targets/tip/position"], target.translation())
        np.testing.assert_array_equal(found["targets/tip/quaternion"], target.rotation().wxyz)
        np.testing.assert_array_equal(found["start"], robot.keyframe("folded"))
        assert list(found["q_joint"]) == list(found["joint_names"]) == ["lift", "shoulder", "elbow", "wrist"]
        assert list(found["q_unit"]) == ["m", "rad", "rad", "rad"]
        assert list(found["status_names"]) == [status.name for status in jaxik.Status]
        assert json.loads(str(found["units"]))["residuals/tip/position"] == "m"
        assert (str(found["format"]), int(found["format_version"])) == ("jaxik solution", 1)
        assert (str(found["dtype"]), str(found["robot"])) == ("float64", "arm")
        assert str(found["jaxik_version"]) == jaxik.__version__
        assert str(found["config"]) == (folder / "c.yaml").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["arm.xml", "c.yaml", "o.npz"]


@pytest.mark.parametrize("dtype", mostly_exhaustive(["float32", "float64"], ["float32"]))
def test_output_is_a_solution_and_a_saved_robot_is_a_robot(jaxik_run: Any, folder: Path, dtype: str) -> None:
    robot = jaxik.load_robot(folder / "arm.xml").with_frame("pen", "hand", jaxlie.SE3.identity()).astype(dtype)
    jaxik.save(folder / "mine.npz", robot)
    changes = tip(frame="pen") | {"robot": "mine.npz", "dtype": dtype, "output": "o.npz"}
    assert jaxik_run(changes, "-q") == (0, "", "")
    found = jaxik.load(folder / "o.npz")
    assert isinstance(found, jaxik.Solution) and found.topology is robot.topology
    assert found.q.shape == (8, 4) and found.q.dtype == found.residuals["tip"]["position"].dtype == dtype
    assert found.residual_units == (("tip/position", "m"),)


def test_output_of_one_run_is_a_target_file_of_the_next(jaxik_run: Any, folder: Path) -> None:
    assert jaxik_run({"output": "first.npz"}, "--quiet").code == 0
    again = {"file": "first.npz", "position": "targets/tip/position"}
    assert jaxik_run(tip(target=again) | {"output": "second.npz"}, "--quiet").code == 0
    with np.load(folder / "first.npz") as first, np.load(folder / "second.npz") as second:
        np.testing.assert_array_equal(first["q"], second["q"])


@pytest.mark.parametrize("dtype", mostly_exhaustive(["float32", "float64"], ["float32"]))
def test_dtype_decides_the_precision_and_leaves_jax_as_it_was(jaxik_run: Any, folder: Path, dtype: str) -> None:
    assert jaxik_run({}, "--dtype", dtype, "-o", str(folder / "o.npz"), "-q").code == 0
    with np.load(folder / "o.npz") as found:
        assert found["q"].dtype == found["cost"].dtype == dtype
    assert jax.config.jax_enable_x64


@exhaustive
def test_batches_change_nothing(jaxik_run: Any, folder: Path) -> None:
    for name, size in (("whole", "8"), ("parts", "3")):
        assert jaxik_run({"output": f"{name}.npz"}, "--batch-size", size, "-q").code == 0
    with np.load(folder / "whole.npz") as whole, np.load(folder / "parts.npz") as parts:
        assert whole["q"].shape == (8, 4) and (whole["status"] == 0).sum() > 4
        np.testing.assert_array_equal(parts["status"], whole["status"])
        for name in ("q", "residuals/tip/position"):
            np.testing.assert_allclose(parts[name], whole[name], atol=1e-5, err_msg=name)


@exhaustive
def test_a_search_finds_what_the_start_does_not_lead_to_in_batches_of_any_size(jaxik_run: Any, folder: Path) -> None:
    # Turned as far as it goes, away from most targets.
    stuck = {"start": {"lift": 0.5, "shoulder": 2.5, "elbow": 0.5}, "options": {"max_steps": 6}}
    for name, size, search in (("alone", "8", False), ("whole", "8", True), ("parts", "3", {"max_starts": 128})):
        assert jaxik_run(stuck | {"search": search, "output": f"{name}.npz"}, "--batch-size", size, "-q").code == 0
    alone, whole, parts = (jaxik.load(folder / f"{name}.npz") for name in ("alone", "whole", "parts"))
    assert alone.converged.sum() < 8 and whole.converged.all() and whole.num_starts.max() > 1
    np.testing.assert_array_equal(parts.num_starts, whole.num_starts)
    np.testing.assert_allclose(parts.q, whole.q, atol=1e-5)


def test_batches_pair_starts_with_targets_and_compile_once(
    jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = []
    monkeypatch.setattr(batches, "solve_part", lambda *problem: traced.append(1) or stay(*problem))
    assert jaxik_run({"start": "sample", "output": "o.npz"}, "--batch-size", "3", "-q").code == 0
    assert len(traced) == 1
    with np.load(folder / "o.npz") as found:
        assert found["start"].shape == (8, 4) and len(np.unique(found["start"][:, 1])) == 8
        np.testing.assert_array_equal(found["q"], found["start"])
        np.testing.assert_array_equal(found["residuals/tip/position"], found["targets/tip/position"])
        at_start = jaxik.load_robot(folder / "arm.xml").frame_pose(found["start"].astype(float), "tool").translation()
        assert np.linalg.norm(at_start - found["targets/tip/position"], axis=1).min() > 0.01


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("unsolved")
@pytest.mark.parametrize(
    ("terminal", "options", "shown"), [(True, [], True), (True, ["-q"], False), (False, [], False)]
)
def test_progress_is_for_terminals(
    jaxik_run: Any, monkeypatch: pytest.MonkeyPatch, terminal: bool, options: list[str], shown: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert jaxik_run({}, "--batch-size", "3", *options).code == 0
    assert ("8/8" in stream.getvalue()) == shown
    assert ("solving" in stream.getvalue()) == shown


@pytest.mark.usefixtures("unsolved")
def test_interruption_says_and_keeps_what_was_done(
    jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "device_get", interrupted_after(2))
    done = jaxik_run({"output": "o.npz"}, "--batch-size", "3")
    assert done.code == 130
    assert done.err == f"jaxik: interrupted: 6 of 8 elements were solved; written to {folder / 'o.npz'}\n"
    assert "2 left out by the interruption" in done.out
    with np.load(folder / "o.npz") as found:
        assert len(found["q"]) == len(found["targets/tip/position"]) == 6 and found["elements_asked"] == 8


@pytest.mark.usefixtures("unsolved")
def test_interruption_before_the_first_result_writes_nothing(
    jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "device_get", interrupted_after(0))
    assert jaxik_run({"output": "o.npz"}) == (130, "", "jaxik: interrupted; nothing was written\n")
    assert sorted(path.name for path in folder.iterdir()) == ["arm.xml", "c.yaml"]


def test_nan_target_is_data(jaxik_run: Any) -> None:
    found = json.loads(jaxik_run(tip(target=[POINT] * 7 + [{"position": [float("nan"), 0, 0]}]), "--json").out)
    assert (found["status"]["NONFINITE"], found["status"]["CONVERGED"]) == (1, 7)
    errors = found["errors"]["tip"]["position"]
    assert errors["max"] is None and errors["median"] < 1e-4 and errors["within_tolerance"] == 7 / 8


def test_json_has_the_whole_summary_in_si_units(jaxik_run: Any) -> None:
    done = jaxik_run(tip(target=[POINT] * 6 + [{"position": [3, 0, 0.4]}] * 2, position_tolerance=0.01), "--json")
    found = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert found["elements"] == sum(found["status"].values()) == 8 and found["success_rate"] == 0.75
    assert set(found["status"]) == {status.name for status in jaxik.Status}
    errors = found["errors"]["tip"]["position"]
    assert errors["unit"] == "m" and errors["tolerance"] == pytest.approx(0.01)
    assert errors["max"] == pytest.approx(2.0, abs=1e-4)  # the arm reaches 0.2 + 0.4 + 0.3 + 0.1 = 1 m
    assert found["iterations"]["max"] >= found["iterations"]["mean"] > 0
    assert set(found["seconds"]) == {"load", "compile", "run"} and found["elements_per_second"] > 0


@pytest.mark.usefixtures("unsolved")
@pytest.mark.parametrize(
    ("values", "shares", "within"),
    [
        ([i / 1000 for i in range(1, 1001)], [0.5, 0.9, 0.99, 1.0], 0.25),
        ([8, 7, 6, 5, 4, 3, 2, 1], [4, 8, 8, 8], 0),  # 90 % of eight are not within the seventh
    ],
    ids=str,
)
def test_errors_are_of_all_elements_and_leave_masked_rows_out_as_tolerances_do(
    jaxik_run: Any, values: list[float], shares: list[float], within: float
) -> None:
    targets = [{"position": [x, 0, 9]} for x in values]
    changes = tip(target=targets, mask=[1, 1, False, 0, 0, 0], axes="world", position_tolerance=0.2504)
    found = json.loads(jaxik_run(changes | {"dtype": "float64"}, "--json").out)["errors"]["tip"]["position"]
    assert [found[key] for key in ("median", "90_percent", "99_percent", "max")] == pytest.approx(shares)
    assert found["within_tolerance"] == pytest.approx(within)


@pytest.mark.usefixtures("unsolved")
def test_targets_and_seed_of_the_command_line_replace_those_of_the_config(jaxik_run: Any, folder: Path) -> None:
    outputs = []
    for options in (("--num-targets", "5", "--seed", "7"), ("--num-targets", "5", "--seed", "8")):
        assert jaxik_run({"seed": 7}, *options, "-o", str(folder / "o.npz"), "-q", "--force").code == 0
        with np.load(folder / "o.npz") as found:
            outputs.append(found["targets/tip/position"])
            assert json.loads(str(found["arguments"]))["num_targets"] == 5
    assert outputs[0].shape == (5, 3) and not np.allclose(*outputs)
    assert " of 2 solved" in jaxik_run(tip(target=[POINT] * 3), "--num-targets", "2").out


def test_info_says_what_a_robot_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gear = ARM.replace('active="false"', 'active="true"')
    (folder / "arm.xml").write_text(
        gear.replace('size="0.1" mass="2"', 'type="mesh" mesh="gone" mass="2"').replace(
            "<worldbody>", '<asset><mesh name="gone" file="gone.stl"/></asset><worldbody>', 1
        )
    )
    assert main(["info", str(folder / "arm.xml")]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "arm",
        "degrees of freedom 4",
        "joints 1 slide, 3 hinge",
        "home qpos0 moved inside the limits",
        "lift slide 0.0000 0.5000 m none 0.0000 0 lift",
        "elbow hinge -2.5000 0.5000 rad none 0.0000 2 lower",
        "wrist hinge none none 0.0000 3 hand",
        "tool on hand, hand on hand",
        "lift, upper, lower, hand",
        "shell",
        "folded",
        "wrist follows elbow",
    ):
        assert line in lines, (line, out)
    assert "gone.stl" in out[out.index("at loading") :]


def test_info_gives_velocity_limits_and_mass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "panda"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "joint4 hinge -3.0718 -0.0698 rad 2.175 rad/s -2.3562 3 link4" in lines
    assert "mass 17.42 kg" in lines


def test_info_in_json_is_what_the_compiled_model_has(capsys: pytest.CaptureFixture[str]) -> None:
    model = mujoco.MjModel.from_xml_path(str(Path(bundled.__file__).parent / "humanoid.xml"))
    assert main(["info", "humanoid", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out, parse_constant=pytest.fail)  # no NaN or Infinity, which JSON has not
    assert (err, found["nv"], found["nq"]) == ("", model.nv, model.nq)
    assert found["mass"] == pytest.approx(model.body_mass.sum())
    root, *hinges = found["joints"]
    assert (root["type"], root["upper"], root["in_q"], len(root["home"])) == ("free", None, list(range(7)), 7)
    limits = [[joint["lower"], joint["upper"]] for joint in hinges]
    np.testing.assert_allclose(limits, model.jnt_range[1:], rtol=1e-6)
    assert [joint["name"] for joint in hinges] == [model.joint(j).name for j in range(1, model.njnt)]
    site_bodies = {model.site(i).name: model.body(model.site_bodyid[i]).name for i in range(model.nsite)}
    assert found["sites"] == site_bodies


def test_info_in_json_says_what_a_table_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(folder / "arm.xml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    lift, *_, wrist = found["joints"]
    assert (lift["type"], lift["unit"], lift["upper"], lift["velocity"]) == ("slide", "m", 0.5, None)
    assert (wrist["lower"], wrist["upper"], wrist["in_q"], wrist["body"]) == (None, None, [3], "hand")
    assert (found["keyframes"], found["geoms_with_a_name"]) == (["folded"], ["shell"])


def test_robots_in_json_are_those_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robots", "--json"]) == 0
    found = {robot["name"]: robot for robot in json.loads(capsys.readouterr().out)}
    assert list(found) == list(jaxik.bundled_robots())
    assert found["panda"] == {"name": "panda", "nv": 7, "sites": ["flange", "tcp"]}


def test_robots_lists_each_bundled_robot_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robots"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[0] for line in lines] == list(jaxik.bundled_robots())
    assert ["panda", "7", "flange,", "tcp"] in lines


@pytest.mark.parametrize("name", jaxik.bundled_robots())
def test_robots_says_what_the_compiled_model_has(name: str) -> None:
    model = mujoco.MjModel.from_xml_path(str(Path(bundled.__file__).parent / f"{name}.xml"))
    assert bundled_outline(name) == (model.nv, tuple(model.site(i).name for i in range(model.nsite)))


@exhaustive
def test_steps_are_drawn_where_asked_and_what_is_there_is_kept(jaxik_run: Any, folder: Path) -> None:
    plot, more = folder / "t.png", ("-q", "--max-steps", "30")
    assert jaxik_run({}, "--trace", str(plot), *more, "-o", str(folder / "o.npz")).code == 0
    assert plot.stat().st_size > 10_000
    solution = jaxik.load(folder / "o.npz")
    assert isinstance(solution, jaxik.Solution) and solution.trace is not None
    assert solution.trace.cost.shape == (8, 31)
    for path, said in ((plot, "exists already"), (folder / "t.doc", "ends in"), (folder / "no" / "t.png", "no folder")):
        ran = jaxik_run({}, "--trace", str(path), *more)
        assert ran.code == 2 and said in ran.err


def test_every_option_has_help() -> None:
    parser, commands = build_parsers()
    for command in (parser, *commands.values()):
        assert all(action.help for action in command._actions if action.dest != "command")
    known = {"solve", "track", "generate", "dataset", "render", "view", "info", "robots", "doctor"}
    assert known == set(commands)


def test_configuration_of_the_help_is_one(jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "solve_part", stay)
    text = CONFIG_HELP.split("\n\n", 1)[1]
    assert jaxik_run(text, "--num-targets", "4").code == 0


@exhaustive
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["robots"], "double_pendulum"),
        (["info", "panda"], "mass"),
        (["info", "panda", "--json"], '"mass"'),
    ],
    ids=str,
)
def test_command_runs_as_a_module_without_noise(folder: Path, arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jaxik.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(jaxik.__file__).parents[1])},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
