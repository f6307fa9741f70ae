"""How many kernels programs have, equal ones counted once: what a user waits for at the first call of each shape."""

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from compile_report import totals
from tables import mostly_exhaustive

import jaxik
from benchmarks.compile import programs
from benchmarks.kernels import different_kernels, kernels

# Kernels, and those that differ, a little above what there is, so that they cannot creep back. A loop that is compiled
# whole is one: with a kernel for each operation a `solve` has 524, of which 267 differ. As XLA compiles for users up to
# 1.8 times as many differ (117 of a `solve`, for 65 here).
CEILINGS = {
    "panda solve": (105, 70),
    "panda search": (112, 77),
    "panda gradient of solve": (110, 75),
    "panda step": (43, 24),
    "panda scan of step": (4, 4),
    "panda track": (158, 122),
    "panda step apart": (700, 490),
    "panda search apart": (950, 520),
    "humanoid search": (920, 505),
    "stewart solve of one pose": (925, 430),
}

# Kernels of lanes that XLA cuts in two, one for each thread, as it deems them large: at 7 us of waiting each. Those of
# pairs of shapes and whole bodies are so large that two threads take 0.95 to 1.05 of the time of one. On a machine with
# one core none is cut. Second derivatives of a Panda's pose (7, 7, lanes) stand in a loop that runs whole, where none
# is cut either: they are one kernel since no row repeats their cross products, and `solve` takes 0.98 of the time.
LANES = r"%([\w.-]+) = f32\[(?!7,7,)(?:\d+,)*(?:32|64|128)\]\S* fusion"
SHARED_OUT = re.compile(LANES + r"\(.*outer_dimension_partitions\":\[\"")
LARGE = ("panda step apart", "panda search apart", "humanoid search")


@pytest.mark.parametrize("name", mostly_exhaustive(CEILINGS, ["panda solve", "panda step"]))
def test_a_program_has_no_more_kernels_than_it_had_and_none_for_two_threads(name: str) -> None:
    with jax.enable_x64(False):
        function, arguments = programs()[name]
        text = jax.jit(function).lower(*arguments).compile().as_text()
    launched, compiled = CEILINGS[name]
    assert kernels(text) <= launched
    assert different_kernels(text) <= compiled
    if name not in LARGE:
        assert not SHARED_OUT.findall(text)


def test_what_is_changed_and_asked_for_on_the_host_compiles_a_program_each_at_most() -> None:
    """Of shapes that no other test has; operation by operation a cast alone is 25 programs, of some 20 ms each."""
    bodies = '<body pos="0.1 0 0"><joint axis="0 0 1" range="-1 1"/><geom size="0.01" mass="1"/>' * 19
    robot = jaxik.load_robot(f"<mujoco><worldbody>{bodies}{'</body>' * 19}</worldbody></mujoco>")
    pose = jaxlie.SE3(jnp.asarray([1.0, 0, 0, 0, 0, 0, 0.5]))
    frame, names = robot.frame("body19"), robot.joint_names
    asked: dict[str, Callable[[], object]] = {
        "cast": lambda: robot.astype(np.float32),
        "mounted": lambda: robot.with_base(pose),
        "positions": lambda: jaxik.FrameTask(frame, np.zeros((23, 3)), np.full((23, 3), 0.1), None, mask=np.ones(6)),
        "posture": lambda: jaxik.PostureTask(np.zeros((23, 19)), np.arange(19)),
        "coordinates": lambda: robot.joint_values(np.zeros((23, 19))),
        "configuration": lambda: robot.configuration(dict.fromkeys(names[:3], np.zeros(23)), np.zeros((23, 19))),
    }
    jaxik.VelocityLimit(1.0), jaxik.ConfigurationLimit()  # numbers have a program for all, and numbers of rows another
    for name, make in asked.items():
        before = totals["programs"]
        make()
        assert totals["programs"] - before <= 1 + 3 * (name == "configuration"), name
