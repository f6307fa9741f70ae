"""What yields, in configurations of `jaxik solve` and `jaxik track`, in what they print and in what they save."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import jaxik
from jaxik import AccelerationLimit, ConfigurationLimit, Elastic, JaxikError, PositionLimit, VelocityLimit
from jaxik.cli import main
from jaxik.cli.tracking import read_track_job
from jaxik.cli.yaml_file import read_yaml

ARM = """<mujoco model="arm"><compiler angle="radian" autolimits="true"/><worldbody>
<body><joint name="first" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
  <body pos="0.5 0 0"><joint name="second" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
    <site name="tip" pos="0.5 0 0"/></body></body></worldbody></mujoco>"""
CONFIG: dict[str, Any] = {
    "robot": "arm.xml",
    "dtype": "float64",
    "start": {"first": 0.2, "second": 0.8},
    "tasks": {"rest": {"type": "posture", "target": {"first": 0.2, "second": 0.8}, "cost": 0.1}},
    "constraints": {
        "hand": {
            "frame": "tip",
            "orientation_cost": None,
            "axes": "world",
            "target": [{"position": [0.6, 0.4, 0]}, {"position": [2, 0, 0]}],
            "elastic": {"penalty": 5, "order": 1},
        }
    },
    "limits": {"half_spaces": [{"frame": "tip", "normal": [0, 1, 0], "offset": 0.3, "elastic": 0.5}]},
}


@pytest.fixture(name="folder")
def arm_folder(tmp_path: Path) -> Path:
    (tmp_path / "arm.xml").write_text(ARM)
    return tmp_path


def written(folder: Path, changes: dict[str, Any]) -> Path:
    (folder / "c.yaml").write_text(yaml.safe_dump(CONFIG | changes))
    return folder / "c.yaml"


def test_solve_prints_and_saves_what_yields(folder: Path, capsys: Any) -> None:
    """The half space yields to the hand of the higher order, where that is in reach."""
    assert main(["solve", str(written(folder, {})), "--json", "--output", str(folder / "found.npz")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["status"]["CONVERGED"] == 2
    assert facts["yielded"]["hand/position"] == {"count": 1, "median": pytest.approx(1), "max": pytest.approx(1)}
    assert facts["yielded"]["half_space_0"] == {"count": 1, "median": pytest.approx(0.1), "max": pytest.approx(0.1)}
    found: Any = jaxik.load(folder / "found.npz")
    np.testing.assert_allclose(found.yielded["hand"]["position"], [[0, 0, 0], [1, 0, 0]], atol=1e-8)
    np.testing.assert_array_equal(found.yielded["hand"]["position"][0], 0)
    np.testing.assert_allclose(found.yielded["half_space_0"], [[0.1], [0]], atol=1e-9)
    assert main(["solve", str(written(folder, {}))]) == 0
    assert "mm along 0 1 0: held where it can be" in " ".join(capsys.readouterr().out.split())


def motion(folder: Path, hand: dict[str, Any], **limits: Any) -> Any:
    hand = CONFIG["constraints"]["hand"] | {"target": {"from": "home"}, "gain": 0.2} | hand
    track = {"duration": 0.1, "paths": {"hand": {"shape": "line", "to": [2, 0, 0]}}}
    changes = {"constraints": {"hand": hand}, "limits": limits, "track": track}
    return read_track_job(read_yaml(written(folder, changes)))


def test_track_follows_constraints_that_yield_and_lets_limits_of_motion_yield(folder: Path) -> None:
    elastic = {"velocity": {"penalty": 2, "order": 1}}
    job = motion(folder, {"elastic": True}, velocity=1.0, acceleration=5.0, elastic=elastic)
    hand = job.problem.constraints["hand"]
    assert isinstance(hand, Elastic) and hand.penalty == 10 and hand.order is None and hand.of.gain == 0.2
    assert job.targets["hand"].wxyz_xyz.shape == (10, 7)
    _, acceleration, speed = job.problem.limits
    assert isinstance(speed, Elastic) and isinstance(speed.of, VelocityLimit)
    assert isinstance(acceleration, AccelerationLimit)
    assert (speed.penalty, speed.order, speed.key) == (2, 1, "velocity")
    half = motion(folder, {}, half_spaces=[CONFIG["limits"]["half_spaces"][0] | {"elastic": True}]).problem.limits[1]
    assert isinstance(half, Elastic) and isinstance(half.of, PositionLimit) and half.key == "half_space_0"


def test_a_margin_yields_beside_the_limits_that_hold(folder: Path) -> None:
    holds, yields = motion(folder, {}, margin=0.5, elastic={"margin": {"penalty": 0.1}}).problem.limits
    assert isinstance(holds, ConfigurationLimit) and holds.margin == 0
    assert isinstance(yields, Elastic) and isinstance(yields.of, ConfigurationLimit)
    assert (yields.of.margin, yields.penalty, yields.key) == (0.5, 0.1, "margin")


@pytest.mark.parametrize(
    ("hand", "limits", "said"),
    [
        ({"elastic": 0}, {}, "constraints.hand.elastic: penalty is above zero"),
        ({"elastic": {"weight": 1}}, {}, "constraints.hand.elastic: unknown key 'weight'"),
        ({"elastic": {"order": -1}}, {}, "constraints.hand.elastic.order: is a whole number from 0 on"),
        ({"elastic": False}, {}, "constraints.hand.elastic: is true, a penalty or {penalty, order"),
        (
            {},
            {"elastic": {"velocity": 1}},
            "limits.elastic.velocity: lets a limit yield that is not there",
        ),
        ({}, {"elastic": {"speed": 1}}, "limits.elastic: unknown key 'speed'"),
        ({}, {"elastic": {"margin": 1}}, "limits.elastic.margin: lets a limit yield that is not there"),
        ({}, {"jerk": 10.0, "elastic": {"jerk": 1}}, "limits.elastic.jerk: a JerkLimit does not yield"),
    ],
)
def test_mistakes_name_their_place(folder: Path, hand: dict[str, Any], limits: dict[str, Any], said: str) -> None:
    with pytest.raises(JaxikError) as raised:
        motion(folder, hand, **limits)
    assert said in str(raised.value) and "\n" not in str(raised.value), str(raised.value)
