"""Wrong input to the command line: one line that names the place and what is allowed, exit code 2, no data lost."""

import fnmatch
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import yaml
from cli_runs import (  # noqa: F401 (fixtures)
    POINT,
    TIP,
    arm_folder,
    config,
    interrupted_after,
    solve_command,
    tip,
    without_solving,
    write_inputs,
)

from jaxik.cli import batches, main

POSE = {"position": [0.5, 0.3, 0.4], "quaternion": [1, 0, 0, 0]}
FULL = {"orientation_cost": 1}


def files(folder: Path) -> None:
    write_inputs(folder)
    (folder / "ragged.csv").write_text("1,2,3\n4,5\n")
    (folder / "words.csv").write_text("x,y,z\n1,2,3\n4,up,6\n")
    (folder / "two.csv").write_text("1,2\n")
    (folder / "empty.csv").write_text("x,y,z\n")
    (folder / "text.npz").write_text("no archive")
    (folder / "zero.csv").write_text("x,y,z,qw,qx,qy,qz\n0,0,0,1,0,0,0\n0,0,0,0,0,0,0\n")
    np.savez(folder / "flat.npz", position=np.ones(3))
    np.savez(folder / "lengths.npz", position=np.ones((3, 3)), quaternion=np.ones((2, 4)))
    np.savez(folder / "objects.npz", position=np.array([[{}, 1, 2]], object), allow_pickle=True)
    (folder / "broken.xml").write_text("<mujoco><worldbody><body></mujoco>")


WRONG: list[tuple[Any, str]] = [
    # the file itself
    ("", "c.yaml: is empty; it needs 'robot' and 'tasks' (see jaxik solve --help)"),
    ("- 1\n", "c.yaml: is a mapping (key: value), not [1]"),
    ("robot: panda\ntasks: [\n", "c.yaml: line 3, column 1: expected the node content, but found '<stream end>'"),
    ("robot: panda\nrobot: ur5e\n", "c.yaml: line 2, column 1: key 'robot' is there twice"),
    ("robot: panda\n1: x\n", "c.yaml: keys are text, not 1: put it in quotes"),
    ("tasks: {}\n", "c.yaml: 'robot' is missing"),
    ("robot: panda\n", "c.yaml: 'tasks' is missing"),
    ({"robto": "x"}, "c.yaml: unknown key 'robto'; did you mean 'robot'?"),
    ({"track": {"duration": 1}}, "c.yaml: has the section track: jaxik track CONFIG"),
    ({"track": {"duration": 1}, "dataset": {}}, "c.yaml: has the section dataset: jaxik generate CONFIG"),
    ({"freeze": ["lift"]}, "c.yaml: unknown key 'freeze'; *"),
    ({"dtype": "float16"}, "c.yaml: dtype: is one of float32, float64, not 'float16'"),
    ({"seed": -1}, "c.yaml: seed: is a whole number from 0 on, not -1"),
    ({"seed": True}, "c.yaml: seed: is a whole number from 0 on, not True"),
    ({"units": {"length": "cm"}}, "c.yaml: units.length: is one of m, mm, not 'cm'"),
    ({"units": {"angles": "deg"}}, "c.yaml: units: unknown key 'angles'; did you mean 'angle'?"),
    # robots
    ({"robot": "pandda"}, "c.yaml: robot: unknown robot 'pandda'; did you mean 'panda'*"),
    ({"robot": "none.xml"}, "c.yaml: robot: *none.xml: no such file"),
    ({"robot": "broken.xml"}, "c.yaml: robot: *broken.xml*"),
    ({"robot": 3}, "c.yaml: robot: is a mapping (key: value), not 3"),
    ({"robot": {"base": {}}}, "c.yaml: robot: has no 'source', and needs one"),
    ({"robot": {"source": "arm.xml", "frame": []}}, "c.yaml: robot: unknown key 'frame'; did you mean 'frames'?"),
    ({"robot": {"source": "arm.xml", "frames": {}}}, "c.yaml: robot.frames: is a list of frames to add, not a mapping"),
    (
        {"robot": {"source": "arm.xml", "frames": [{"name": "pen", "body": "hnad"}]}},
        "c.yaml: robot.frames[0]: unknown body 'hnad'; did you mean 'hand'?",
    ),
    (
        {"robot": {"source": "arm.xml", "frames": [{"name": "tool", "body": "hand"}]}},
        "c.yaml: robot.frames[0]: arm has a site 'tool' already: choose another name",
    ),
    (
        {"robot": {"source": "arm.xml", "base": {"position": [1, 2]}}},
        "c.yaml: robot.base.position: is 3 numbers, not [1, 2]",
    ),
    # tasks
    ({"tasks": {}}, "c.yaml: tasks: is empty; a problem needs at least one task"),
    ({"tasks": {"a/b": TIP}}, "c.yaml: tasks: names are not empty and without '/', *'a/b'"),
    (tip(frame="tol"), "c.yaml: tasks.tip.frame: unknown frame 'tol'; did you mean 'tool'?"),
    (tip(frame="hand"), "c.yaml: tasks.tip.frame: frame 'hand' is ambiguous in arm: say kind=*"),
    (tip(frame="drop"), "c.yaml: tasks.tip: has no 'frame', and needs one"),
    (tip(target="drop"), "c.yaml: tasks.tip: has no 'target', and needs one"),
    (tip(frame=5), "c.yaml: tasks.tip.frame: is text, not 5"),
    (tip(type="pose"), "c.yaml: tasks.tip.type: unknown type of task 'pose'; did you mean 'posture'?"),
    (tip(kind="link"), "c.yaml: tasks.tip.kind: is one of site, body, geom, not 'link'"),
    (tip(axes="tool"), "c.yaml: tasks.tip.axes: is one of frame, target, world, not 'tool'"),
    (tip(costs=1), "c.yaml: tasks.tip: unknown key 'costs'; *"),
    (tip(position_cost=-1), "c.yaml: tasks.tip.position_cost: is finite and not negative, not -1.0"),
    (tip(position_cost=[1, 2]), "c.yaml: tasks.tip.position_cost: is 3 numbers, not [1, 2]"),
    (tip(position_cost=None), "c.yaml: tasks.tip: position_cost and orientation_cost are both None*"),
    (tip(position_tolerance="small"), "c.yaml: tasks.tip.position_tolerance: is a number, not 'small'"),
    (tip(mask=[1, 1, 1]), "c.yaml: tasks.tip.mask: is 6 numbers, not [1, 1, 1]"),
    (tip(mask=[1, 1, 1, 0, 0, 2]), "c.yaml: tasks.tip.mask: weights rows by numbers from 0 to 1, not *"),
    (
        {"tasks": {"a": TIP, "b": TIP | {"target": [POINT] * 3}}},
        "c.yaml: tasks: have different numbers of targets: a 8, b 3; give as many to each, or a single one",
    ),
    # targets
    (tip(target=5), "c.yaml: tasks.tip.target: is a mapping (key: value), not 5"),
    (tip(target=[]), "c.yaml: tasks.tip.target: is empty"),
    (tip(target={}), "c.yaml: tasks.tip.target: has no 'position', and needs one (or position_cost: null)"),
    (tip(target={"sample": 0}), "c.yaml: tasks.tip.target.sample: is a whole number from 1 on, not 0"),
    (tip(target={"positon": [0, 0, 0]}), "c.yaml: tasks.tip.target: unknown key 'positon'; did you mean 'position'?"),
    (tip(target=[POINT, {"position": [1, 2]}]), "c.yaml: tasks.tip.target[1].position: is 3 numbers, not [1, 2]"),
    (
        tip(target={"position": [[0], 1, 2]}),
        "c.yaml: tasks.tip.target.position: is 3 numbers; its rows differ in length",
    ),
    (
        tip(target=POINT, **FULL),
        "c.yaml: tasks.tip.target: has no rotation: give one of quaternion, rotation_vector, *",
    ),
    (
        tip(target=POSE | {"rpy": [0, 0, 0]}, **FULL),
        "c.yaml: tasks.tip.target: gives the rotation twice, as quaternion and rpy",
    ),
    (tip(target=POSE | {"quaternion": [0] * 4}, **FULL), "c.yaml: tasks.tip.target: has a quaternion of length 0"),
    (
        tip(target=POINT | {"matrix": [[2, 0, 0], [0, 1, 0], [0, 0, 1]]}),
        "c.yaml: tasks.tip.target: has a matrix that is no rotation",
    ),
    # target files
    (tip(target={"file": "none.csv"}), "c.yaml: tasks.tip.target.file: *none.csv: no such file"),
    (tip(target={"file": "none.npz"}), "c.yaml: tasks.tip.target.file: *none.npz: no such file"),
    (tip(target={"file": "poses.txt"}), "c.yaml: tasks.tip.target.file: is an .npz or a .csv file, not 'poses.txt'"),
    (tip(target={"file": "ragged.csv"}), "*ragged.csv: line 2: has 2 columns, not 3"),
    (tip(target={"file": "words.csv"}), "*words.csv: line 3: 'up' is no number"),
    (
        tip(target={"file": "two.csv"}),
        "*two.csv: has 2 columns and no header; give it one, or the 7 columns x,y,z,qw,qx,qy,qz",
    ),
    (tip(target={"file": "empty.csv"}), "*empty.csv: holds no rows of numbers"),
    (tip(target={"file": "zero.csv"}, **FULL), "*zero.csv: row 1 (from 0) has a quaternion of length 0"),
    (
        tip(target={"file": "names.csv"}),
        "*names.csv: has none of the columns x,y,z,qw,qx,qy,qz; it has px, py, pz, a, b, c, d",
    ),
    (
        tip(target={"file": "names.csv", "position": ["px", "py", "pzz"]}),
        "*target.position: unknown column 'pzz'; did you mean *",
    ),
    (tip(target={"file": "names.csv", "position": "px"}), "*target.position: is a list of 3 column names"),
    (tip(target={"file": "text.npz"}), "*text.npz: *"),
    (tip(target={"file": "flat.npz"}), "*flat.npz: position has shape (n, 3), not (3,)"),
    (tip(target={"file": "objects.npz"}), "*objects.npz: Object arrays cannot be loaded*"),
    (tip(target={"file": "lengths.npz"}, **FULL), "*lengths.npz: parts differ in length: position 3, quaternion 2"),
    (
        tip(target={"file": "t.npz", "position": "postion"}),
        "*target.position: unknown array 'postion'; did you mean 'position'?",
    ),
    # starts and options
    ({"start": "fold"}, "c.yaml: start: unknown start 'fold'; did you mean 'folded'?"),
    ({"start": [0, 1]}, "c.yaml: start: is 4 numbers, not [0, 1]"),
    ({"start": [0, float("nan"), 0, 0]}, "c.yaml: start: holds finite numbers, not [0.0, nan, 0.0, 0.0]"),
    ({"start": {"elbow": float("inf")}}, "c.yaml: start.elbow: holds finite numbers, not inf"),
    ({"start": {"elbw": 1}}, "c.yaml: start: unknown joint 'elbw'; did you mean 'elbow'?"),
    ({"start": {"elbow": [1, 2]}}, "c.yaml: start.elbow: is a number, not [1, 2]"),
    ({"start": 1.5}, "c.yaml: start: is home, mid-range, sample, a keyframe, values by joint, or 4 numbers; not 1.5"),
    ({"options": {"max_step": 3}}, "c.yaml: options: unknown key 'max_step'; did you mean 'max_steps'?"),
    ({"options": {"max_steps": 2.5}}, "c.yaml: options.max_steps: is a whole number from 1 on, not 2.5"),
    ({"search": 3}, "c.yaml: search: is a mapping (key: value), not 3"),
    (
        {"search": {"starts": 3}},
        "c.yaml: search: unknown key 'starts'; did you mean 'max_starts'?",
    ),
    ({"search": {"max_starts": 0}}, "c.yaml: search.max_starts: is a whole number from 1 on, not 0"),
    ({"search": {"rank_by": "best"}}, "c.yaml: search.rank_by: is one of cost, reference, limits, not 'best'"),
    ({"options": {"initial_damping": -1}}, "c.yaml: options.initial_damping: is finite and not negative, not -1.0"),
    # outputs
    ({"output": "o.txt"}, "output *o.txt: is an .npz file, not .txt"),
    ({"output": "none/o.npz"}, "output *o.npz: No such file or directory"),
    ({"output": "t.npz"}, "output *t.npz: exists already; choose another name, or --force to replace it"),
]


@pytest.mark.parametrize(("changes", "expected"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_input_is_said_in_one_line(
    jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, changes: Any, expected: str
) -> None:
    monkeypatch.setattr(batches, "solve_part", lambda *problem: pytest.fail("it was solved nevertheless"))
    files(folder)
    before = sorted(folder.iterdir())
    done = jaxik_run(changes)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    said = done.err.replace(f"{folder}/c.yaml", "c.yaml").strip()
    assert fnmatch.fnmatchcase(said, "jaxik: " + expected.replace("[", "[[]")), said
    assert sorted(folder.iterdir()) == sorted({*before, folder / "c.yaml"})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "the following arguments are required: COMMAND (see jaxik --help)"),
        (["sovle"], "argument COMMAND: invalid choice: 'sovle' (choose from *solve*info*robots*) (see jaxik --help)"),
        (["solve"], "the following arguments are required: CONFIG (see jaxik solve --help)"),
        (["solve", "none.yaml"], "none.yaml: no such file"),
        (["solve", "c.yaml", "--sed", "3"], "unknown option '--sed'; did you mean '--seed'?"),
        (
            ["solve", "c.yaml", "--seed=-3"],
            "argument --seed: a whole number from 0 on, not '-3' (see jaxik solve --help)",
        ),
        (
            ["solve", "c.yaml", "--num-targets", "0"],
            "argument --num-targets: a whole number from 1 on, not '0' (see jaxik solve --help)",
        ),
        (["solve", "c.yaml", "--dtype", "half"], "argument --dtype: invalid choice: 'half' (choose from *) (see *"),
        (
            ["solve", "c.yaml", "--json", "-q"],
            "argument -q/--quiet: not allowed with argument --json (see jaxik solve --help)",
        ),
        (["solve", "c.yaml", "--num-targets", "9"], "--num-targets 9: the configuration has 3"),
        (["info", "pnda"], "unknown robot 'pnda'; did you mean 'panda'*"),
        (["info", "panda", "ur5e"], "one argument too many: 'ur5e' (see jaxik info --help)"),
    ],
    ids=str,
)
def test_wrong_argument_is_said_in_one_line(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(folder)
    (folder / "c.yaml").write_text(yaml.safe_dump(config(tip(target=[POINT] * 3))))
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert fnmatch.fnmatchcase(err.strip(), "jaxik: " + expected), err


@pytest.mark.usefixtures("unsolved")
def test_existing_output_is_replaced_with_force_only_and_at_the_end(
    jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "o.npz").write_text("precious")
    assert jaxik_run({"output": "o.npz"}).code == 2
    broken = interrupted_after(0)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "device_get", broken)
        assert jaxik_run({"output": "o.npz"}, "--force").code == 130
    assert (folder / "o.npz").read_text() == "precious"
    assert jaxik_run({"output": "o.npz"}, "--force", "-q").code == 0
    with np.load(folder / "o.npz") as found:
        assert len(found["q"]) == 8


def test_internal_error_is_no_wrong_input(jaxik_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*problem: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(batches, "solve_part", fail)
    done = jaxik_run({})
    assert done.code == 1
    assert "RuntimeError: no memory" in done.err and done.err.endswith("please report it with the lines above\n")


@pytest.mark.usefixtures("unsolved")
def test_warnings_are_one_line_each_and_do_not_stop(jaxik_run: Any) -> None:
    done = jaxik_run({"start": {"elbow": 1.0}})
    assert done.code == 0 and "8 of 8 solved" in done.out
    assert done.err == "jaxik: warning: the start is outside the limits of elbow: it is moved inside\n"
