"""`jaxik info`: what a robot is."""

import argparse
import json
import math
import warnings
from typing import Any

import jax
import numpy as np
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxik.cli.consoles import console
from jaxik.core.errors import JaxikWarning
from jaxik.kinematics.topology import Joint, JointType
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot


def run_info(arguments: argparse.Namespace) -> int:
    """Print what a robot is made of."""
    with warnings.catch_warnings(record=True) as caught, jax.enable_x64(True):
        warnings.simplefilter("always", JaxikWarning)
        robot = load_robot(arguments.robot)
        facts = _as_json(robot) if arguments.json else _facts(robot)
    if isinstance(facts, dict):
        print(json.dumps(facts | {"at_loading": [str(warning.message) for warning in caught]}, indent=2))
        return 0
    out = console()
    out.print(Text(robot.name, "bold"))
    out.print(Padding(facts, (0, 0, 1, 1), expand=False))
    if robot.topology.joints:
        out.print(Text("joints", "bold"))
        out.print(Padding(_joint_table(robot), (0, 0, 1, 1), expand=False))
    for title, lines in _lists(robot).items():
        if lines:
            out.print(Text(title, "bold").append(f" ({len(lines)})", "not bold dim"))
            out.print(Padding(Text(", ".join(lines)), (0, 0, 1, 1), expand=False))
    for warning in caught:
        out.print(Text("at loading", "bold yellow"))
        out.print(Padding(Text(str(warning.message)), (0, 0, 1, 1), expand=False))
    return 0


def _as_json(robot: Robot) -> dict[str, Any]:
    """The robot in SI units: what has no limit is null; a ball's one limit is on its total angle."""
    home, velocity = np.asarray(robot.q_home).tolist(), np.asarray(robot.velocity_limit)
    lower, upper = np.asarray(robot.limit_lower), np.asarray(robot.limit_upper)
    joints = [
        {
            "name": joint.name,
            "type": joint.type.name.lower(),
            "body": robot.topology.body_names[joint.body],
            "lower": _finite(lower[j]) if joint.type.nq == 1 else None,
            "upper": None if joint.type is JointType.FREE else _finite(upper[j]),
            "unit": "m" if joint.type is JointType.SLIDE else "rad" if joint.type is not JointType.FREE else None,
            "velocity": _finite(velocity[joint.v_index]),
            "home": [home[i] for i in joint.q_indices],
            "in_q": list(joint.q_indices),
        }
        for j, joint in enumerate(robot.topology.joints)
    ]
    facts = {"name": robot.name, "nv": robot.nv, "nq": robot.nq, "mass": float(np.asarray(robot.body_mass).sum())}
    lists = {title.replace(" ", "_"): names for title, names in _lists(robot).items()}
    sites = {name: robot.topology.body_names[body] for name, body in robot.topology.sites if name}
    return facts | {"home": robot.q_home_origin, "joints": joints} | lists | {"sites": sites}


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _facts(robot: Robot) -> Table:
    """Sizes: of configurations, in kilograms, in metres."""
    kinds = [joint.type.name.lower() for joint in robot.topology.joints]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("free", "ball", "slide", "hinge") if kind in kinds)
    bodies = np.asarray(robot.forward(robot.q_home).translation())[1:]
    extent = " x ".join(f"{x:.3f}" for x in np.ptp(bodies, axis=0)) + " m" if len(bodies) else "none"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_row("degrees of freedom", f"{robot.nv}" + (f" ({robot.nq} coordinates)" if robot.nq != robot.nv else ""))
    table.add_row("joints", counts or "none")
    table.add_row("mass", f"{float(np.sum(robot.body_mass)):.4g} kg")
    table.add_row("home", robot.q_home_origin)
    table.add_row("extent", f"{extent}, from body to body at home, along x, y, z")
    return table


def _joint_table(robot: Robot) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title in ("name", "type", "lower", "upper", "", "velocity", "", "home", "in q", "on body"):
        right = title in ("lower", "upper", "velocity", "home", "in q")
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "name", overflow="fold")
    lower, upper = np.asarray(robot.limit_lower), np.asarray(robot.limit_upper)
    velocity, home = np.asarray(robot.velocity_limit), np.asarray(robot.q_home)
    for j, joint in enumerate(robot.topology.joints):
        unit = "m" if joint.type is JointType.SLIDE else "rad"
        speed = velocity[joint.v_index]
        limits = _limits(joint, lower[j], upper[j])
        body = robot.topology.body_names[joint.body]
        cells = (
            joint.name,
            joint.type.name.lower(),
            *limits,
            unit if limits != ("", "none") else "",
            f"{speed:.4g}" if math.isfinite(speed) else "none",
            f"{unit}/s" if math.isfinite(speed) else "",
            f"{home[joint.q_index]:.4f}" if joint.type.nq == 1 else "",
            f"{joint.q_index}" if joint.type.nq == 1 else f"{joint.q_index}-{joint.q_indices[-1]}",
            body,
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _limits(joint: Joint, lower: float, upper: float) -> tuple[str, str]:
    """Lower and upper; a ball has one on its total angle, a free joint none."""
    if joint.type is JointType.FREE or not (math.isfinite(lower) or math.isfinite(upper)):
        return ("", f"{upper:.4f}") if joint.type is JointType.BALL and math.isfinite(upper) else ("", "none")
    low = "" if joint.type is JointType.BALL else f"{lower:.4f}"
    return low, f"{upper:.4f}"


def _lists(robot: Robot) -> dict[str, list[str]]:
    """Names by what they are: frames, keyframes, and constraints that the model has."""
    topology = robot.topology
    joints, bodies = topology.joint_names, topology.body_names
    couplings = [
        f"{joints[c.follower]} follows {joints[c.leader]}" if c.leader is not None else f"{joints[c.follower]} is held"
        for c in topology.couplings
    ]
    equalities = [
        f"{e.kind} {e.name}".strip() + (f" ({', '.join(bodies[b] for b in e.bodies)})" if e.bodies else "")
        for e in topology.closures
    ]
    return {
        "sites": [f"{name} on {bodies[body]}" for name, body in topology.sites if name],
        "bodies": list(bodies[1:]),
        "geoms with a name": [name for name, _ in topology.geoms if name],
        "mocap bodies": [bodies[b] for b in topology.mocap_bodies],
        "keyframes": [name for name in topology.keyframes if name],
        "joint couplings": couplings,
        "equality constraints": equalities,
    }
