"""The shipped whole-body configurations: each is solved, and C MuJoCo says where its robot is then.

What each has to reach is written here as well, in metres from where the robot's home has it.
"""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
import pytest
from bodies import home, model_of
from oracle import com_jacobian, difference, evaluated, frame_jacobian
from scipy.linalg import null_space
from scipy.spatial.transform import Rotation
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.cli.batches import solve_in_batches
from jaxik.cli.job import Job, read_job
from jaxik.cli.yaml_file import read_yaml
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.manifold import integrate

CONFIGS = Path(__file__).parents[1] / "configs"
POSITION, ANGLE = 1e-4, 1e-3  # what counts as reached [m], [rad]
BATCH = 8  # home, and starts around it
HERE, AS_AT_HOME = (0.0, 0.0, 0.0), Rotation.identity()


class Goal(NamedTuple):
    """Where a frame has to be.

    Attributes:
      offset: from where home has it [m]; None: anywhere.
      turn: from how home has it, about the axes of the world; None: anyhow.
    """

    offset: tuple[float, float, float] | None = HERE
    turn: Rotation | None = AS_AT_HOME


class Whole(NamedTuple):
    """What a configuration has to reach.

    Attributes:
      frames: sites, and bodies where there is no such site.
      com: offset of the centre of mass from home [m]; None where it does not matter.
      at: absolute positions [m].
      upright: frames with the axes of the world.
      lifted: how much higher frames are than at home [m].
    """

    robot: str
    frames: dict[str, Goal]
    com: tuple[float | None, ...] = (None, None, None)
    at: tuple[tuple[str, tuple[float, float, float]], ...] = ()
    upright: tuple[str, ...] = ()
    lifted: tuple[tuple[str, float], ...] = ()


def degrees(x: float, y: float, z: float) -> Rotation:
    """Turns about the fixed axes x, then y, then z."""
    return Rotation.from_euler("xyz", (x, y, z), degrees=True)


WHOLE = {
    "humanoid_stand": Whole(
        "humanoid",
        {
            "left_foot": Goal(),
            "right_foot": Goal(),
            "left_hand": Goal((0.08, 0, 0.15)),
            "right_hand": Goal((0.05, 0, -0.10)),
        },
        com=(0.02, 0.03, -0.06),
        upright=("head",),
    ),
    "dual_arm_carry": Whole(
        "dual_arm",
        {"left_tcp": Goal(None, degrees(0, 0, 20))},
        at=(("left_tcp", (0.5539, 0.3018, 1.1162)), ("right_tcp", (0.7008, -0.1018, 1.1162))),
    ),
    "hand_pinch": Whole(
        "hand",
        {
            "index_tip": Goal((-0.015, 0.006, 0.006), None),
            "middle_tip": Goal((-0.020, 0, 0.004), None),
            "ring_tip": Goal((-0.012, -0.006, 0.006), None),
            "thumb_tip": Goal((0.010, -0.002, -0.012), None),
        },
    ),
    "mobile_manipulator_reach": Whole("mobile_manipulator", {"tcp": Goal((1.5, 1.0, 0.2), degrees(0, 0, 60))}),
    "delta_reach": Whole("delta", {"tcp": Goal((0.15, -0.1, 0.08), AS_AT_HOME)}),
    "four_bar_draw": Whole("four_bar", {"pen": Goal((-0.006518, 0.049854, 0), None)}),
    "five_bar_reach": Whole("five_bar", {"tcp": Goal((0.05, -0.05, 0), None)}),
    "hexapod_lean": Whole(
        "hexapod",
        {f"foot{k}": Goal(HERE, None) for k in range(6)} | {"center": Goal((0.03, 0.02, -0.03), degrees(4, -3, 6))},
    ),
    "stewart_pose": Whole("stewart", {"tcp": Goal((0.05, -0.04, 0.06), degrees(8, -6, 12))}),
    # Both jaws close alike and stay parallel, though only one is asked for.
    "gripper_close": Whole(
        "gripper", {"left_pad": Goal((-0.028862, 0, 0.005816)), "right_pad": Goal((0.028862, 0, 0.005816))}
    ),
    "rover_settle": Whole(
        "rover",
        {},
        lifted=(
            ("left_front", 0.06),
            ("left_middle", 0.0),
            ("left_rear", -0.02),
            ("right_front", -0.03),
            ("right_middle", 0.04),
            ("right_rear", 0.05),
        ),
    ),
    "linkage_leg_step": Whole("linkage_leg", {"foot": Goal((0.08, 0.03, 0.06), None)}),
    "gough_arm_reach": Whole("gough_arm", {"tcp": Goal((0.15, 0.1, -0.05), degrees(5, 10, 15))}),
    "quadruped_pose": Whole(
        "quadruped",
        {f"{foot}_foot": Goal(HERE, None) for foot in ("front_left", "front_right", "rear_left", "rear_right")}
        | {"trunk": Goal((0.03, 0.02, -0.05), degrees(6, -8, 10))},
    ),
    "wheeled_biped_lean": Whole(
        "wheeled_biped",
        {"left_wheel": Goal(HERE, None), "right_wheel": Goal(HERE, None), "trunk": Goal(None, AS_AT_HOME)},
        com=(0, None, -0.08),
    ),
}
COUPLED = {"index_distal": "index_middle", "middle_distal": "middle_middle", "ring_distal": "ring_middle"}


@cache
def job_of(name: str) -> Job:
    return read_job(read_yaml(CONFIGS / f"{name}.yaml"), count=None, seed=None, max_steps=None)


@cache
def solved(name: str) -> jaxik.Solution:
    """Home and starts around it, by up to 0.05 rad and m in every degree of freedom, in one call."""
    job = job_of(name)
    shifts = np.random.default_rng(0).uniform(-0.05, 0.05, (BATCH, job.robot.nv))
    shifts[0] = 0
    starts = np.stack([integrate(job.robot.topology, job.start, shift) for shift in shifts])
    batch = dataclasses.replace(job, start=starts, count=BATCH)
    return solve_in_batches(batch, BATCH, lambda: None, lambda count: None).solution


def frame(model: mujoco.MjModel, data: mujoco.MjData, name: str) -> tuple[np.ndarray, Rotation]:
    """Position and rotation of a site, or of a body where there is no such site."""
    if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, name) >= 0:
        place = data.site(name)
        return place.xpos, Rotation.from_matrix(place.xmat.reshape(3, 3))
    place = data.body(name)
    return place.xpos, Rotation.from_matrix(place.xmat.reshape(3, 3))


def misses(name: str, q: np.ndarray) -> dict[str, float]:
    """What is missed by more than the tolerances at a configuration, and by how much."""
    whole, model = WHOLE[name], model_of(WHOLE[name].robot)
    start, end = evaluated(model, home(whole.robot)), evaluated(model, q)
    off: dict[str, Any] = {}
    for each, goal in whole.frames.items():
        (was, turned), (position, rotation) = frame(model, start, each), frame(model, end, each)
        if goal.offset is not None:
            off[f"{each} position"] = np.linalg.norm(position - was - goal.offset) / POSITION
        if goal.turn is not None:
            off[f"{each} angle"] = (rotation * (goal.turn * turned).inv()).magnitude() / ANGLE
    for each, place in whole.at:
        off[f"{each} place"] = np.linalg.norm(frame(model, end, each)[0] - place) / POSITION
    for each in whole.upright:
        off[f"{each} upright"] = frame(model, end, each)[1].magnitude() / ANGLE
    for each, height in whole.lifted:
        off[f"{each} height"] = abs((frame(model, end, each)[0] - frame(model, start, each)[0])[2] - height) / POSITION
    moved = end.subtree_com[0] - start.subtree_com[0]
    wanted = [(axis, x) for axis, x in enumerate(whole.com) if x is not None]
    off["com"] = np.linalg.norm([moved[axis] - x for axis, x in wanted]) / POSITION
    return {what: float(x) for what, x in off.items() if not x <= 1}


CONFIG = pytest.mark.parametrize("name", mostly_exhaustive(WHOLE, ["hand_pinch"]))


@exhaustive
@CONFIG
def test_config_is_solved_from_home_and_from_around_it(name):
    found = solved(name)
    assert [jaxik.Status(s).name for s in found.status] == ["CONVERGED"] * BATCH
    assert {i: off for i, q in enumerate(found.q) if (off := misses(name, q))} == {}


@CONFIG
def test_home_does_not_reach_what_is_asked_for(name):
    assert misses(name, home(WHOLE[name].robot))


@exhaustive
@CONFIG
def test_solution_is_inside_the_limits(name):
    model = model_of(WHOLE[name].robot)
    limited = model.jnt_limited.astype(bool)
    lower, upper = model.jnt_range[limited].T
    q = solved(name).q[:, model.jnt_qposadr[limited]]
    assert ((q >= lower) & (q <= upper)).all()


@exhaustive
def test_right_hand_keeps_its_grasp_of_the_box():
    model = model_of("dual_arm")
    grasps = []
    for q in (home("dual_arm"), *solved("dual_arm_carry").q):
        data = evaluated(model, q)
        (left, turned), (right, rotation) = (frame(model, data, f"{side}_tcp") for side in ("left", "right"))
        grasps.append((turned.inv().apply(right - left), turned.inv() * rotation))
    for position, rotation in grasps[1:]:
        assert np.linalg.norm(position - grasps[0][0]) <= POSITION
        assert (rotation * grasps[0][1].inv()).magnitude() <= ANGLE


@exhaustive
def test_couplings_of_the_hand_hold():
    model = model_of("hand")
    for constraint in range(model.neq):
        data, (one, other) = model.eq_data[constraint], (model.eq_obj1id[constraint], model.eq_obj2id[constraint])
        assert COUPLED[model.joint(one).name] == model.joint(other).name
        follower, leader = (solved("hand_pinch").q[:, model.jnt_qposadr[joint]] for joint in (one, other))
        reference, other_reference = (model.qpos0[model.jnt_qposadr[joint]] for joint in (one, other))
        expected = reference + np.polynomial.polynomial.polyval(leader - other_reference, data[:5])
        np.testing.assert_allclose(follower, expected, rtol=0, atol=1e-12)
    assert model.neq == len(COUPLED)


HELD = {
    "humanoid_stand": ("left_foot", "right_foot", "left_hand", "right_hand", "head"),
    "mobile_manipulator_reach": ("tcp",),
}


@exhaustive
@pytest.mark.parametrize("name", HELD)
def test_posture_takes_all_that_the_higher_tasks_leave_free(name):
    """No motion that keeps the tasks, to first order, and leads off no limit brings the joints nearer to home."""
    model, base = model_of(WHOLE[name].robot), 6 if name == "humanoid_stand" else 0
    for q in solved(name).q:
        data = evaluated(model, q)
        jacobians = [frame_jacobian(model, data, Frame("site", model.site(site).id)) for site in HELD[name]]
        if name == "humanoid_stand":
            jacobians[-1] = jacobians[-1][3:]  # of the head the rotation only
            jacobians.append(com_jacobian(model, data, 0))
        away = difference(model, home(WHOLE[name].robot), q)
        away[:base] = 0  # a free joint belongs to no posture
        lower, upper = model.jnt_range.T
        coordinate = q[model.jnt_qposadr]
        inside = ~model.jnt_limited.astype(bool) | ((coordinate > lower + 1e-9) & (coordinate < upper - 1e-9))
        moves = inside[model.dof_jntid]
        free = null_space(np.vstack(jacobians)[:, moves])
        assert free.shape[1] >= 3
        assert np.linalg.norm(free.T @ away[moves]) < 1e-6
        assert np.linalg.norm(away) > 0.1


@exhaustive
@pytest.mark.parametrize("name", ["delta_reach", "five_bar_reach", "stewart_pose"])
def test_loops_of_mechanisms_are_closed_at_home_and_at_solutions(name):
    model = model_of(WHOLE[name].robot)
    for q, most in ((home(WHOLE[name].robot), 1e-9), *((q, 1e-8) for q in solved(name).q)):
        data = evaluated(model, q)
        mujoco.mj_forward(model, data)
        assert data.ne == 3 * model.neq and np.abs(data.efc_pos[: data.ne]).max() < most
