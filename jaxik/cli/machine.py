"""Checks of `jaxik doctor` that need JAX and MuJoCo: devices, cores, compiled programs, pictures, one solve."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.batching.devices import available_cores, enable_compilation_cache
from jaxik.cli.finding import Finding, reason
from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.pictures import canvas
from jaxik.pictures.render import render
from jaxik.problem.problem import Problem
from jaxik.robot.loading.load import load_robot
from jaxik.robot.loading.reference import joints_outside, pose_error, site_pose
from jaxik.robot.loading.sources import read_source
from jaxik.solvers.nonlinear.solve import solve
from jaxik.tasks.frame import FrameTask

ROBOT, SITE = "ur5e", "tcp"
# What a solve answers for: the default tolerances, and float32's rounding of a metre of arm beside C MuJoCo.
FARTHEST, WIDEST = 1e-4 + 1e-6, 1e-3 + 1e-5


def check_devices() -> Finding:
    """Where JAX computes, and how precisely by default."""
    try:
        names = [str(device) for device in jax.devices()]
    except Exception as error:  # a RuntimeError for an unknown platform, an AssertionError for one without its plugin
        asked = os.environ.get("JAX_PLATFORMS", "")
        advice = "set JAX_PLATFORMS=cpu, or install JAX for your accelerator; nothing else was tried"
        return Finding(f"JAX finds no device with JAX_PLATFORMS={asked!r} ({reason(error)})", {}, "fault", advice)
    x64 = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    precision = "float64 (x64 is on)" if x64 else "float32 (x64 is off)"
    data = {"backend": jax.default_backend(), "devices": names, "x64": x64}
    return Finding(f"{', '.join(names)}; default backend {data['backend']}, {precision}", data)


def check_cores() -> Finding:
    """How many cores work, and how many could."""
    used, there = len(jax.devices("cpu")), available_cores()
    said = f"batches run on {used} of {there}"
    if used < there:
        said += f"; jaxik.use_all_cores(), right after the imports, gives {there}, as jaxik solve does"
    return Finding(said, {"used": used, "available": there})


def check_cache() -> Finding:
    """Where compiled programs are kept between runs."""
    given = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    try:
        place = Path(given) if given else enable_compilation_cache()
    except JaxikError as error:
        return Finding(str(error), {}, "fault", "set XDG_CACHE_HOME to a folder that can be written")
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    return Finding(f"{place}, {size / 1e6:.1f} MB", {"folder": str(place), "bytes": size})


def check_pictures() -> Finding:
    """Whether robots can be drawn."""
    name = canvas.backend()
    if name is None:
        return Finding("no OpenGL, so no pictures", {"backend": None}, "missing", canvas.INSTALL)
    try:
        picture = render(load_robot(ROBOT), size=(64, 48))
    except Exception as error:  # drivers and MuJoCo have errors of their own
        said = reason(error).replace(f": {canvas.INSTALL}", "")
        return Finding(said, {"backend": name}, "fault", canvas.INSTALL)
    if np.ptp(picture) == 0:
        return Finding(f"OpenGL by {name} draws nothing", {"backend": name}, "fault", canvas.INSTALL)
    return Finding(f"OpenGL by {name} draws", {"backend": name})


def check_solve() -> Finding:
    """Whether one solve does what it says, judged by C MuJoCo in float64."""
    robot, model = load_robot(ROBOT), read_source(ROBOT).model
    target = site_pose(model, np.asarray(robot.q_home, np.float64) + 0.3, SITE)
    task = FrameTask(robot.frame(SITE), jaxlie.SE3(jnp.asarray(target)))
    solution = solve(Problem(robot, {"tip": task}))
    q, status = np.asarray(solution.q, np.float64), Status(int(solution.status))
    distance, angle = pose_error(site_pose(model, q, SITE), target)
    outside = joints_outside(model, q)
    data = {"robot": ROBOT, "status": status.name, "position": distance, "orientation": angle, "outside": outside}
    said = f"{ROBOT} {status.name}, by C MuJoCo {distance:.1e} m and {angle:.1e} rad from its target"
    if outside:
        said += f", {', '.join(outside)} outside the limits"
    if status is Status.CONVERGED and distance <= FARTHEST and angle <= WIDEST and not outside:
        return Finding(said, data)
    advice = "results of this installation cannot be trusted: try JAX_PLATFORMS=cpu and an empty cache, and report it"
    return Finding(said, data, "fault", advice)


CHECKS = {  # after that of the devices, without which none of them can be
    "cores": check_cores,
    "cache": check_cache,
    "pictures": check_pictures,
    "solve": check_solve,
}
