"""Write the bundled mechanisms, or those that are named: `python docs/mechanisms/build.py [NAME ...]`.

Their home closes all loops.

Geometry is stated here, and is that of no machine one can buy.
"""

import sys
from pathlib import Path

import jax
import numpy as np

import jaxik
from jaxik import Mechanism
from jaxik.kinematics.topology import JointType

FOLDER = Path(jaxik.__file__).parent / "robot" / "bundled"
NO_TARGETS = 1e-3
# Of hinges [rad/s] and slides [m/s].
SPEEDS = {JointType.HINGE: 3.0, JointType.SLIDE: 0.5}


def four_bar() -> tuple[Mechanism, str]:
    made = Mechanism("four_bar")
    made.link("crank", joints="EZ")
    made.link("coupler", "crank", position=(0.1, 0, 0), joints="EZ", rest=0.51)
    made.link("rocker", position=(0.3, 0, 0), joints="EZ", rest=1.01)
    made.frame("pin", "coupler", position=(0.35, 0, 0))
    made.frame("pen", "coupler", position=(0.2, 0.1, 0))
    made.frame("end", "rocker", position=(0.2, 0, 0))
    made.closure("loop", "pin", "end", "spherical")
    return made, (
        "A four-bar linkage in the plane: crank 0.1 m, coupler 0.35, rocker 0.2, ground 0.3; the crank turns."
    )


def five_bar() -> tuple[Mechanism, str]:
    made = Mechanism("five_bar")
    for side, x, turn in (("left", -0.1, 2.0), ("right", 0.1, 1.1)):
        made.link(f"{side}_arm", position=(x, 0, 0), joints={"EZ": (-1.0, 4.2)}, rest=turn)
        bend = -0.9 if side == "left" else 0.9
        made.link(f"{side}_rod", f"{side}_arm", position=(0.2, 0, 0), joints={"EZ": (-2.8, 2.8)}, rest=bend)
        made.frame(f"{side}_end", f"{side}_rod", position=(0.25, 0, 0))
    made.frame("tcp", "left_rod", position=(0.25, 0, 0))
    made.closure("loop", "left_end", "right_end", "spherical")
    return made, (
        "A five-bar linkage in the plane: bases 0.2 m apart, arms of 0.2 m, rods of 0.25 m; two arms drive the tip."
    )


def delta() -> tuple[Mechanism, str]:
    made = Mechanism("delta")
    base, arm, rod, plate, height = 0.2, 0.3, 0.6, 0.06, -0.6
    reach = {"X": (-0.4, 0.4), "Y": (-0.4, 0.4), "Z": (-0.3, 0.3)}
    made.link("platform", position=(0, 0, height), joints=reach)
    made.frame("tcp", "platform", position=(0, 0, -0.02))
    for k, angle in enumerate(np.radians([0, 120, 240])):
        out = np.array([np.cos(angle), np.sin(angle), 0])
        about_z = [np.cos(angle / 2), 0, 0, np.sin(angle / 2)]
        # The arm turns about the tangent, the rod on its end about two axes.
        made.link(f"arm{k}", position=base * out, quaternion=about_z, joints={"EY": (-1.0, 1.6)}, rest=0.4)
        # Across the arm at zero, so that neither of its axes is along it where it works.
        bends = {"EY": (-1.5, 1.5), "EZ": (-1, 1)}
        across = [np.sqrt(0.5), 0, np.sqrt(0.5), 0]
        made.link(f"rod{k}", f"arm{k}", position=(arm, 0, 0), quaternion=across, joints=bends)
        made.frame(f"rod_end{k}", f"rod{k}", position=(rod, 0, 0))
        made.frame(f"plate{k}", "platform", position=plate * out)
        made.closure(f"loop{k}", f"rod_end{k}", f"plate{k}", "spherical")
    return made, (
        "A delta robot: arms of 0.3 m at 0.2 m from the middle, rods of 0.6 m to 0.06 m from it. The pairs "
        "of\n  rods that keep its platform level are one rod each, and the platform shifts without turning."
    )


def stewart() -> tuple[Mechanism, str]:
    made = Mechanism("stewart")
    base, top = _ring(0.5, [-10, 10, 110, 130, 230, 250]), _ring(0.3, [-50, 50, 70, 170, 190, 290])
    height = np.array([0, 0, 0.6])
    made.link("platform", position=height, joints="FREE", mass=2.0)
    made.frame("tcp", "platform")
    for k in range(6):
        along = height + top[k] - base[k]
        length = float(np.linalg.norm(along))
        made.link(f"leg{k}", position=base[k], quaternion=_from_z(along), joints={"EX": (-1.5, 1.5), "EY": (-1.5, 1.5)})
        made.link(f"rod{k}", f"leg{k}", joints={"Z": (-0.3, 0.4)})
        made.frame(f"rod_end{k}", f"rod{k}", position=(0, 0, length))
        made.frame(f"plate{k}", "platform", position=top[k])
        made.closure(f"loop{k}", f"rod_end{k}", f"plate{k}", "spherical")
    return (
        made,
        "A Stewart platform, 6-UPS: bases on a circle of 0.5 m, the platform's ends on one of 0.3 m, 0.6 m above.",
    )


def hexapod() -> tuple[Mechanism, str]:
    made = Mechanism("hexapod")
    made.link("body", position=(0, 0, 0.2), joints="FREE", mass=3.0)
    made.frame("center", "body")
    for k, angle in enumerate(np.radians([0, 60, 120, 180, 240, 300])):
        out = 0.2 * np.array([np.cos(angle), np.sin(angle), 0])
        about_z = [np.cos(angle / 2), 0, 0, np.sin(angle / 2)]
        made.link(f"hip{k}", "body", position=out, quaternion=about_z, joints={"EZ": (-1, 1)}, mass=0.1)
        made.link(f"thigh{k}", f"hip{k}", position=(0.06, 0, 0), joints={"EY": (-1.2, 1.2)}, mass=0.1)
        made.link(f"shin{k}", f"thigh{k}", position=(0.15, 0, 0.05), joints={"EY": (-1.0, 1.5)}, mass=0.1)
        made.frame(f"foot{k}", f"shin{k}", position=(0.06, 0, -0.25))
    return made, "A hexapod: a free body with six legs of three hinges, which closes its loops where feet stand."


def gripper() -> tuple[Mechanism, str]:
    made = Mechanism("gripper")
    bar, rod = 0.05, 0.045
    made.link("slider", position=(0, 0, -0.03), joints={"Z": (-0.012, 0.03)}, mass=0.1)
    for side, s in (("left", 1), ("right", -1)):
        pivot, apart = np.array([s * 0.03, 0, 0]), np.array([-s * 0.018, 0, -0.008])
        swing = (-0.25, 1.1) if s > 0 else (-1.1, 0.25)
        made.link(f"{side}_crank", position=pivot, joints={"EY": swing}, rest=s * 0.5, mass=0.05)
        made.link(f"{side}_jaw", f"{side}_crank", position=(0, 0, bar), joints="EY", rest=-s * 0.5, mass=0.05)
        made.link(f"{side}_bar", position=pivot + apart, joints="EY", rest=s * 0.5, mass=0.05)
        # The push rod stands on the slider and turns the crank by a lever.
        made.link(f"{side}_rod", "slider", position=(s * 0.008, 0, 0), joints="EY", rest=s * 1.09, mass=0.02)
        made.frame(f"{side}_pad", f"{side}_jaw", position=(-s * 0.02, 0, 0.05))
        ends = {"lever": ("crank", (s * 0.02, 0, 0)), "push": ("rod", (0, 0, rod)), "hold": ("jaw", apart)}
        ends["top"] = ("bar", (0, 0, bar))
        for name, (link, place) in ends.items():
            made.frame(f"{side}_{name}", f"{side}_{link}", position=place)
        made.closure(f"{side}_drive", f"{side}_push", f"{side}_lever", "spherical")
        made.closure(f"{side}_parallel", f"{side}_top", f"{side}_hold", "spherical")
    return made, (
        "A parallel-jaw gripper: a slider pushes two cranks, and parallelograms of 0.05 m keep both jaws upright."
    )


def rover() -> tuple[Mechanism, str]:
    made = Mechanism("rover")
    made.link("chassis", position=(0, 0, 0.2), joints="FREE", mass=8.0)
    made.frame("center", "chassis")
    for side, s in (("left", 1), ("right", -1)):
        made.link(f"{side}_rocker", "chassis", position=(0.04, s * 0.18, 0), joints={"EY": (-0.6, 0.6)})
        made.link(f"{side}_bogie", f"{side}_rocker", position=(-0.165, s * 0.02, -0.07), joints={"EY": (-0.8, 0.8)})
        wheels = {"front": ("rocker", (0.21, s * 0.04, -0.135)), "middle": ("bogie", (0.125, s * 0.02, -0.065))}
        wheels["rear"] = ("bogie", (-0.125, s * 0.02, -0.065))
        for wheel, (carrier, place) in wheels.items():
            made.link(f"{side}_{wheel}", f"{side}_{carrier}", position=place, joints="EY", mass=0.5)
    made.coupling("differential", "right_rocker", "left_rocker", -1.0)
    return made, (
        "A rover with a rocker-bogie: six wheels of 0.065 m radius, whose centres are 0.25 m apart; a differential "
        "holds\n  the chassis halfway between its rockers."
    )


def linkage_leg() -> tuple[Mechanism, str]:
    made = Mechanism("linkage_leg")
    made.link("hip", position=(0, 0, 0.5), joints={"EX": (-0.6, 0.6)})
    made.link("thigh", "hip", joints={"EY": (-1.2, 1.6)}, rest=-0.6)
    made.link("shin", "thigh", position=(0, 0, -0.25), joints={"EY": (0.3, 2.4)}, rest=1.2)
    made.link("crank", "hip", position=(0, 0.02, 0), joints={"EY": (-1.5, 2.5)}, rest=0.6)
    made.link("rod", "crank", position=(0, 0, 0.05), joints="EY", rest=-1.2)
    made.frame("foot", "shin", position=(0, 0, -0.25))
    made.frame("lever", "shin", position=(-0.01, 0.02, 0.065))
    made.frame("rod_end", "rod", position=(0, 0, -0.245))
    made.closure("loop", "rod_end", "lever", "spherical")
    return made, (
        "A leg of 0.25 m and 0.25 m whose knee is turned from the hip, by a four-bar: crank 0.05 m, rod 0.245 m, and "
        "a\n  lever of 0.066 m on the shin."
    )


def gough_arm() -> tuple[Mechanism, str]:
    made = Mechanism("gough_arm")
    made.link("turret", position=(0, 0, 0.3), joints={"EZ": (-3.0, 3.0)})
    made.link("upper", "turret", joints={"EY": (-1.5, 1.5)}, rest=0.4)
    made.link("fore", "upper", position=(0, 0, 0.5), joints={"EY": (-0.2, 2.5)}, rest=1.2)
    made.link("hand", "fore", position=(0, 0, 0.4))
    base, top = _ring(0.1, [-10, 10, 110, 130, 230, 250]), _ring(0.06, [-50, 50, 70, 170, 190, 290])
    height = np.array([0, 0, 0.14])
    reach = dict.fromkeys("XYZ", (-0.06, 0.06)) | dict.fromkeys(("EX", "EY", "EZ"), (-0.6, 0.6))
    made.link("platform", "hand", position=height, joints=reach, mass=0.5)
    made.frame("tcp", "platform", position=(0, 0, 0.05))
    for k in range(6):
        along = height + top[k] - base[k]
        swing = {"EX": (-1.0, 1.0), "EY": (-1.0, 1.0)}
        made.link(f"leg{k}", "hand", position=base[k], quaternion=_from_z(along), joints=swing, mass=0.1)
        made.link(f"rod{k}", f"leg{k}", joints={"Z": (-0.05, 0.08)}, mass=0.1)
        made.frame(f"rod_end{k}", f"rod{k}", position=(0, 0, float(np.linalg.norm(along))))
        made.frame(f"plate{k}", "platform", position=top[k])
        made.closure(f"loop{k}", f"rod_end{k}", f"plate{k}", "spherical")
    return made, (
        "A Gough platform, 6-UPS, in the hand of an arm of three joints: bases on a circle of 0.1 m, the platform's "
        "ends\n  on one of 0.06 m, 0.14 m above."
    )


def _ring(radius: float, degrees: list[float]) -> np.ndarray:
    angles = np.radians(degrees)
    return radius * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)


def _from_z(axis: np.ndarray) -> np.ndarray:
    """The quaternion wxyz of the least rotation from z to an axis."""
    axis = axis / np.linalg.norm(axis)
    found = np.array([1 + axis[2], -axis[1], axis[0], 0])
    return found / np.linalg.norm(found)


def write(made: Mechanism, said: str) -> None:
    """Write a mechanism with its loops closed at home."""
    path = made.save(FOLDER / f"{made.name}.xml")
    robot = jaxik.load_robot(path)  # with the six digits that MuJoCo writes
    q = np.asarray(robot.q_home)
    if robot.topology.equalities:
        rest = {"rest": jaxik.PostureTask(robot.q_home, cost=NO_TARGETS)}
        q = np.asarray(jaxik.solve(jaxik.Problem(robot, rest)).check().q)
    text = path.read_text().replace(' limited="true"', "")
    numbers = " ".join(f"{x:.12g}" for x in np.round(q, 12) + 0.0)
    head, tail = text.split("<keyframe>")
    text = f'{head}<keyframe>\n    <key name="home" qpos="{numbers}"/>\n  </keyframe>{tail.split("</keyframe>")[1]}'
    speeds = [(joint.name, SPEEDS[joint.type]) for joint in robot.topology.joints if joint.type in SPEEDS]
    lines = [f'    <numeric name="velocity_limit:{name}" data="{speed:g}"/>\n' for name, speed in speeds]
    text = text.replace("  <worldbody>", f"  <custom>\n{''.join(lines)}  </custom>\n\n  <worldbody>", 1)
    path.write_text(f"<!--\n  {said}\n  Written by docs/mechanisms/build.py.\n-->\n{text}")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    every = (four_bar, five_bar, delta, stewart, hexapod, gripper, rover, linkage_leg, gough_arm)
    for mechanism in every:
        if mechanism.__name__ in sys.argv[1:] or not sys.argv[1:]:
            write(*mechanism())
