"""A pose that is saved from the page: a configuration that starts there, beside a file that stays as it was."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxik
from jaxik.cli.configurations import read_configuration
from jaxik.cli.job import Job, read_job
from jaxik.cli.pose_file import save_into, save_new, start_of, with_start, write_beside
from jaxik.cli.poses import SI, Units
from jaxik.cli.section import Place
from jaxik.cli.yaml_file import read_yaml
from jaxik.viewer.aims import problem_of, targets_to_drag

REACH = "tasks: {tip: {frame: tcp, target: {from: home}}}"
LIMITED = """# An arm.
units: {length: mm, angle: deg}

robot: panda  # bundled
start: # in degrees
  joint1: 10
  # the elbow
  joint4: -100  # bent

# What is asked.
tasks:
  tip: {frame: tcp, target: {from: home}}
"""


def job_of(path: Path) -> Job:
    return read_job(read_yaml(path), count=None, seed=None, max_steps=None)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "arm.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        LIMITED,
        f"robot: panda\nstart: mid-range  # of the limits\n{REACH}\n",
        f"robot: panda\n{REACH}",
        f"start: [0, 0, 0, -1.5, 0, 1.5, 0]\nrobot: panda\n{REACH}\n",
        f"start: {{joint1: 1,\n  joint4: -1}}\nrobot: panda\n{REACH}\n",
    ],
)
def test_a_configuration_is_copied_with_another_start_and_stays_as_it_was(tmp_path: Path, text: str) -> None:
    path, robot = written(tmp_path, text), jaxik.load_robot("panda")
    # At its limits the rounding of numbers is no reason for a warning.
    for q in (robot.sample(jax.random.key(0)), robot.limit_lower, robot.limit_upper):
        new = save_into(read_yaml(path), robot)(np.asarray(q), {})
        np.testing.assert_allclose(job_of(new).start, q, rtol=0, atol=1e-6)
        kept = [line for line in text.splitlines() if "#" in line and not line.strip().startswith(("start", "joint"))]
        assert set(kept) - {"  # the elbow"} <= set(new.read_text().splitlines())
    assert path.read_text() == text
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "arm.yaml", "arm_pose.yaml", "arm_pose2.yaml", "arm_pose3.yaml",
    ]  # fmt: skip


def test_where_the_start_cannot_be_replaced_that_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    robot = jaxik.load_robot("panda")
    rest = "rest: {type: posture, target: *start}"
    for text in (
        f"{{robot: panda, {REACH}}}",
        f"robot: panda\nstart: &start [0, 0, 0, -1, 0, 1, 0]\n{REACH[:-1]}, {rest}}}\n",
    ):
        path = written(tmp_path, text)
        with pytest.raises(jaxik.JaxikError, match="start cannot be replaced"):
            save_into(read_yaml(path), robot)(np.asarray(robot.q_home), {})
        assert path.read_text() == text and len([*tmp_path.iterdir()]) == 1


def test_of_a_robot_a_whole_configuration_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("panda", "dual_arm"):
        robot = jaxik.load_robot(name)
        q = np.asarray(robot.sample(jax.random.key(1)))
        problem = problem_of(robot, q)
        job = job_of(save_new(name, problem)(q, targets_to_drag(problem)))
        np.testing.assert_allclose(job.start, q, rtol=0, atol=1e-6)
        for task, target in targets_to_drag(problem).items():
            np.testing.assert_allclose(job.tasks[task].target.wxyz_xyz, target, rtol=0, atol=1e-6)  # type: ignore[attr-defined]


MIXED = """<mujoco><worldbody><body name="base"><freejoint name="root"/><geom size=".1"/>
<body name="link"><joint {name} type="slide" axis="1 0 0" range="-1 1"/><geom size=".1"/>
<body name="ball"><joint name="shoulder" type="ball"/><geom size=".1"/></body></body></body></worldbody></mujoco>"""


@pytest.mark.parametrize("units", [SI, Units(1e-3, np.pi / 180)])
def test_starts_are_in_units_by_joint_also_where_a_joint_has_no_name(units: Units) -> None:
    q = np.array([1.0, 2.0, 3.0, 0.0, 1.0, 0.0, 0.0, 0.25, 0.6, 0.8, 0.0, 0.0])
    named: Any = start_of(jaxik.load_robot(MIXED.format(name='name="rail"')), q, units)
    assert list(named) == ["root", "rail", "shoulder"]
    np.testing.assert_allclose(named["root"], np.r_[q[:3] / units.length, q[3:7]])
    np.testing.assert_allclose(named["rail"], 0.25 / units.length)
    np.testing.assert_allclose(named["shoulder"], q[8:])
    robot = jaxik.load_robot(MIXED.format(name=""))
    given = start_of(robot, q, units)
    np.testing.assert_allclose(read_configuration(given, Place("a.yaml"), robot, units), q)


def test_a_start_that_is_a_block_ends_before_the_comment_behind_it() -> None:
    assert (
        with_start(LIMITED, {"joint1": 0.5})
        == LIMITED[: LIMITED.index("start")] + "start: {joint1: 0.5}" + (LIMITED[LIMITED.index("  # bent") :])
    )


def test_no_file_is_replaced_and_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    names = [write_beside(tmp_path / "a.yaml", str(n)) for n in range(3)]
    assert [p.read_text() for p in names] == ["0", "1", "2"]
    with pytest.raises(jaxik.JaxikError, match="no such file"):
        write_beside(tmp_path / "no" / "a.yaml", "")
