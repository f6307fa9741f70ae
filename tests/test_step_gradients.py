"""Derivatives of steps and quadratic programs against central differences, in float64, first and second."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import own_tasks
import pytest
from derivatives import MODES, PLANAR, QUICK, check_step, differentiated, linkage, off_limits
from tables import exhaustive, mostly_exhaustive
from test_constraints import FOUR_BAR
from test_step_rules import ARM

import jaxik
from jaxik import (
    AccelerationLimit,
    ComTask,
    ConfigurationLimit,
    DampingTask,
    DerivativeStatus,
    FrameTask,
    LowAccelerationTask,
    PositionLimit,
    PostureTask,
    Problem,
    VelocityLimit,
)

COUNT = 4


def arm(source: str, tool: str, **levels: Any) -> dict[str, Any]:
    """Velocities saturate, and a half space is pressed against."""
    robot = jaxik.load_robot(source)
    q = robot.sample(jax.random.key(1), (COUNT,))
    tip = robot.frame(tool)
    far = robot.frame_pose(robot.sample(jax.random.key(2), (COUNT,)), tip)
    tasks = {
        "tip": FrameTask(tip, far, position_cost=2.0, gain=0.3, lm_damping=0.01),
        "rest": PostureTask(robot.q_home, cost=0.1, **levels),
        "calm": DampingTask(cost=0.05, **levels),
    }
    height = robot.frame_pose(q, tip).translation()[:, 2]
    fast = VelocityLimit(None if source == "panda" else 2.0)
    limits = (ConfigurationLimit(), fast, PositionLimit(tip, [0.0, 0, 1], height + 0.003))
    return {"problem": Problem(robot, tasks, limits=limits), "q": q, "dt": 0.05}


def mixed() -> dict[str, Any]:
    """Every joint type, and the velocity before."""
    robot = jaxik.load_robot(own_tasks.MIXED)
    q = off_limits(robot, COUNT)
    tip = robot.frame("tip")
    tasks = {
        "center": ComTask(robot.center_of_mass(q) + 0.1, cost=0.7),
        "rest": PostureTask(robot.sample(jax.random.key(3)), cost=0.3, free_joints=True),
        "smooth": LowAccelerationTask(cost=0.2),
        "tip": FrameTask(tip, robot.frame_pose(robot.sample(jax.random.key(2), (COUNT,)), tip), gain=0.5),
    }
    limits = (ConfigurationLimit(), VelocityLimit(0.5), AccelerationLimit(20.0))
    before = 0.1 * jax.random.normal(jax.random.key(4), (COUNT, robot.nv))
    return {"problem": Problem(robot, tasks, limits=limits), "q": q, "dt": 0.02, "previous_velocity": before}


def loop() -> dict[str, Any]:
    """A closed loop, which has a row too many; by what leaves it in its plane."""
    q = linkage(COUNT)
    return {"rest": q + 0.3, "q": q + jnp.asarray([0.01, 0.02, 0, -0.01]), "dt": 0.1}


def stepped(arguments: dict[str, Any]) -> jaxik.StepResult:
    rest = dict(arguments)
    if "rest" in rest:
        problem = Problem(jaxik.load_robot(FOUR_BAR), {"rest": PostureTask(rest.pop("rest"), cost=0.5)})
    else:
        problem = rest.pop("problem")
    return jaxik.step(problem, rest.pop("q"), rest.pop("dt"), damping=1e-3, **rest)


CASES = {
    "short arm": lambda: arm(ARM, "tip"),
    "arm": lambda: arm("panda", "tcp"),
    "arm in levels": lambda: arm("panda", "tcp", priority=1),
    "every joint": mixed,
    "closed loop": loop,
}


@pytest.mark.parametrize("name", mostly_exhaustive(CASES, ["short arm"]))
def test_derivatives_of_a_step_are_those_of_stepping_again(name: str) -> None:
    result = check_step(stepped, CASES[name]())
    bounds, rows = result.qp.active.bounds, result.qp.active.rows
    assert name == "closed loop" or (bounds != 0).any(-1).sum() + rows.any(-1).sum() >= COUNT // 2


def pulled(arguments: dict[str, Any], dtype: Any) -> list[jax.Array]:
    """What pulling at velocities and configurations pulls at all arguments of a step."""
    leaves, treedef = jax.tree.flatten(arguments)
    places = [i for i, x in enumerate(leaves) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]

    def pull(values: list[jax.Array]) -> jax.Array:
        new = dict(enumerate(leaves)) | dict(zip(places, values, strict=True))
        result = stepped(jax.tree.unflatten(treedef, [new[i] for i in range(len(leaves))]))
        assert result.velocity.dtype == dtype
        ways = (
            jnp.sum(x * jnp.cos(jnp.arange(x.size, dtype=dtype)).reshape(x.shape)) for x in (result.velocity, result.q)
        )
        return sum(ways, jnp.zeros((), dtype))

    return jax.jit(jax.grad(pull))([jnp.asarray(leaves[i], dtype) for i in places])


@exhaustive
@pytest.mark.parametrize("name", ["arm in levels", "closed loop"])
def test_in_float32_they_are_nearly_those_of_float64(name: str) -> None:
    for narrow, wide in zip(pulled(CASES[name](), np.float32), pulled(CASES[name](), np.float64), strict=True):
        assert np.isfinite(narrow).all()
        np.testing.assert_allclose(narrow, wide, rtol=0, atol=2e-3 * max(np.abs(wide).max(initial=0), 0.1))


def programs() -> dict[str, jax.Array]:
    """Bounds, rows and an equality; one minimum is a vertex."""
    rng = np.random.default_rng(0)
    count, n, m = 6, 5, 3
    root = rng.normal(size=(count, n, n))
    return jax.tree.map(
        jnp.asarray,
        {
            "H": root @ root.transpose(0, 2, 1) + 0.1 * np.eye(n),
            "c": 3 * rng.normal(size=(count, n)),
            "G": rng.normal(size=(count, m, n)),
            "h": 0.3 * np.abs(rng.normal(size=(count, m))),
            "A": rng.normal(size=(count, 1, n)),
            "b": 0.1 * rng.normal(size=(count, 1)),
            "lower": np.full(n, -0.5),
            "upper": np.full(n, 0.5),
        },
    )


def solved(program: dict[str, Any]) -> jaxik.QPSolution:
    rest = dict(program)
    return jaxik.qp(rest.pop("H"), rest.pop("c"), **rest)


@exhaustive
def test_bounds_hold_a_redundant_arm_in_float32_as_in_float64() -> None:
    """Damping of 1e-6 alone presses it against them, which is ten times the rounding of the gradient."""
    rng = np.random.default_rng(0)
    jacobian = rng.normal(size=(256, 6, 7)) / 2
    square = jacobian.transpose(0, 2, 1) @ jacobian
    wanted = 0.1 * rng.normal(size=(256, 7, 1))

    def kinds(dtype: Any) -> Any:
        def held(c: jax.Array) -> Any:
            bound = jnp.full(7, 0.04, dtype)
            found = jaxik.qp(jnp.asarray(square + 1e-6 * np.eye(7), dtype), c, lower=-bound, upper=bound)
            return found.x, found.derivative_status

        c = jnp.asarray(-(square @ wanted)[..., 0], dtype)
        return jax.jvp(held, (c,), (c,), has_aux=True)[2]

    double = kinds(np.float64)
    np.testing.assert_array_equal(double, DerivativeStatus.EXACT)
    assert np.mean(kinds(np.float32) == double) > 0.99  # 0.98 where what presses by 1e-4 hardly did


def held_by_velocities(t: Any) -> jaxik.StepResult:
    """A velocity limit holds one joint, and the way to go is long."""
    q = jnp.asarray([[0.2, 0.5], [-0.2, 0.8]])
    target = jnp.asarray([[0.4, 0.9, 0], [1.1, -0.4, 0]]) + t * jnp.asarray([0.3, -0.2, 0])
    tip = FrameTask(PLANAR.frame("tip"), target, orientation_cost=None, gain=0.5 + 0.1 * t, axes="world")
    tasks = {"tip": tip, "rest": PostureTask(jnp.asarray([0.1, 0.4]) + 0.2 * t, cost=0.3 + 0.1 * t)}
    limits = (ConfigurationLimit(), VelocityLimit(jnp.asarray([2.0, 50.0]) * (1 + 0.3 * t)))
    return jaxik.step(Problem(PLANAR, tasks, limits=limits), q + 0.1 * t, 0.1, damping=1e-3)


# Four hinges in a plane.
CHAIN = """
<mujoco><compiler angle="radian"/><worldbody>
  <body><joint name="a" axis="0 0 1" range="-3 3" limited="true"/><geom size=".01" mass="1"/>
    <body pos="1 0 0"><joint name="b" axis="0 0 1" range="-3 3" limited="true"/><geom size=".01" mass="1"/>
      <body name="mid" pos="0.8 0 0"><joint name="c" axis="0 0 1" range="-3 3" limited="true"/>
        <geom size=".01" mass="1"/><body pos="0.6 0 0"><joint name="d" axis="0 0 1" range="-3 3" limited="true"/>
          <geom size=".01" mass="1"/><site name="tip" pos="0.5 0 0"/></body></body></body></body>
</worldbody></mujoco>"""


def held_by_all_else(t: Any) -> jaxik.StepResult:
    """A constraint keeps one coordinate, a half space stops another, and a posture has what a third one leaves it."""
    robot = jaxik.load_robot(CHAIN)
    q = jnp.asarray([[0.3, 0.5, -0.4, 0.6], [-0.2, 0.8, 0.3, -0.5]])
    tip, mid = robot.frame("tip"), robot.frame("mid")
    across = robot.frame_pose(q, mid).translation()[:, 1]
    height = robot.frame_pose(q, tip).translation()[:, 1]
    aim = jnp.asarray([1.0, 0, 0]) + t * jnp.asarray([0.3, 0, 0])
    rest = jnp.asarray([0.9, 0.9, 0.9, 0.9]) + 0.2 * t
    kept = jnp.zeros((2, 3)).at[:, 1].set(across + 0.05 + 0.2 * t)
    problem = Problem(
        robot,
        {
            "aim": FrameTask(tip, aim, [0.7 + 0.1 * t, 0, 0], None, axes="world", gain=0.3 + 0.1 * t),
            "rest": PostureTask(rest, cost=0.5 + 0.2 * t, priority=1),
        },
        limits=(ConfigurationLimit(), PositionLimit(tip, [0.0, 1, 0], height + 0.01 + 0.1 * t)),
        constraints={"kept": FrameTask(mid, kept, [0.0, 1, 0], None, axes="world", gain=0.5)},
    )
    return jaxik.step(problem, q + 0.1 * t, 0.1 + 0.02 * t, damping=1e-3)


@exhaustive
@pytest.mark.parametrize(
    ("stepped", "modes"), [(held_by_velocities, tuple(MODES)), (held_by_all_else, ("forward over reverse",))]
)
def test_second_derivatives_of_a_step_agree_with_differences(
    stepped: Callable[[Any], jaxik.StepResult], modes: tuple[str, ...]
) -> None:
    def along(t: Any) -> tuple[jax.Array, jaxik.StepResult]:
        result = stepped(t)
        weights = jnp.arange(1.0, 1 + result.velocity.shape[-1])
        return jnp.sum(jnp.sin(result.velocity) * weights) + jnp.sum(result.q**2), result

    def number(t: Any) -> jax.Array:
        return along(t)[0]

    @functools.partial(jax.jit, compiler_options=QUICK)
    def everything(t: Any) -> Any:
        slope, result = jax.grad(along, has_aux=True)(t)
        return slope, [MODES[mode](number, t)[1] for mode in modes], result

    _, found, result = everything(0.0)
    assert (result.derivative_status == DerivativeStatus.EXACT).all()
    held = (result.qp.active.bounds != 0).any(-1) | result.qp.active.rows.any(-1)
    assert held.any()
    wanted = (everything(1e-5)[0] - everything(-1e-5)[0]) / 2e-5
    np.testing.assert_allclose(found, [wanted] * len(found), rtol=1e-6)


def test_derivatives_of_a_program_are_those_of_its_neighbours() -> None:
    found = differentiated(
        solved,
        lambda s: (s.x, s.bound_multipliers, s.row_multipliers, s.equality_multipliers, s.objective),
        programs(),
        0.1,
    )
    assert (found.solution.derivative_status == DerivativeStatus.EXACT).all()
    assert (found.solution.active.bounds != 0).any() and found.solution.active.rows.any()
    for moved, wanted in zip(jax.tree.leaves(found.forward), jax.tree.leaves(found.differences), strict=True):
        np.testing.assert_allclose(moved, wanted, rtol=0, atol=1e-7 * max(1, np.abs(wanted).max()))
    np.testing.assert_allclose(found.reverse_pulled, found.forward_pulled, rtol=1e-9)


@exhaustive
def test_second_derivatives_of_a_program_agree_in_all_modes() -> None:
    given = programs()
    key = jax.random.split(jax.random.key(0), len(given))
    along = {name: jax.random.normal(k, x.shape) for k, (name, x) in zip(key, given.items(), strict=True)}
    weight = jax.random.normal(jax.random.key(1), given["c"].shape)

    def at(t: Any) -> dict[str, jax.Array]:
        return {name: x + t * along[name] for name, x in given.items()}

    def slope(t: Any) -> jax.Array:
        return jnp.sum(weight * jax.jvp(lambda t: solved(at(t)).x, (t,), (1.0,))[1])

    def gradient(t: Any) -> jax.Array:
        return jax.grad(lambda t: jnp.sum(weight * solved(at(t)).x))(t)

    wanted = (slope(1e-5) - slope(-1e-5)) / 2e-5
    for second in (jax.jacfwd(slope), jax.jacfwd(gradient), jax.jacrev(gradient), jax.jacrev(slope)):
        np.testing.assert_allclose(second(0.0), wanted, rtol=1e-6)
