"""Equality constraints from forward kinematics, against C MuJoCo's efc_pos and efc_J."""

import dataclasses
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import models
import mujoco
import numpy as np
import oracle
import pytest
import random_trees
from second_order import second_order
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.core.errors import JaxikError, JaxikWarning, UnknownNameError
from jaxik.robot.robot import Robot
from jaxik.tasks.base import add_joint_rows, default_partials

UNOPTIMISED = {"xla_backend_optimization_level": 0}
BATCH = 5

# Each kind, between bodies and between sites, with the world and without, on every joint type.
EVERY_KIND = """
<mujoco model="closures"><compiler angle="radian"/><worldbody><site name="w" pos="0 0 1"/>
  <body name="a" pos="0 1 0"><freejoint/><geom size=".1"/><site name="s" pos=".1 .2 0" quat="1 .3 0 0"/></body>
  <body name="b" pos="1 0 0"><joint name="ball" type="ball"/><geom size=".1" pos=".3 0 0"/>
    <site name="t" pos=".1 .4 .5" quat="1 0 2 0"/>
    <body name="c" pos=".5 0 0"><joint name="h" axis="1 2 3" ref="0.2"/><joint name="sl" type="slide" axis="1 0 0"/>
      <geom name="g" size=".1" pos=".3 0 0"/><site name="u" pos=".1 0 0"/></body></body>
  <body name="m" mocap="true" pos="0 0 2"/></worldbody>
<tendon>
  <fixed name="sum"><joint joint="h" coef="2"/><joint joint="sl" coef="-1.5"/></fixed>
  <spatial name="rope"><site site="w"/><site site="t"/><site site="u"/><pulley divisor="3"/>
    <site site="u"/><site site="s"/><pulley divisor="2"/><site site="s"/><site site="w"/></spatial>
  <spatial name="around"><site site="w"/><geom geom="g"/><site site="s"/></spatial>
</tendon>
<equality>
  <weld name="weld sites" site1="s" site2="t" torquescale="0.7"/>
  <weld name="weld" body1="a" body2="c" torquescale="2" anchor="1 2 3"/>
  <weld name="weld to world" body1="a"/>
  <weld name="weld at a pose" body1="a" body2="b" relpose="1 2 3 .5 .6 .7 .8"/>
  <weld name="position only" body1="c" body2="a" torquescale="0"/>
  <connect name="off" body1="a" body2="b" anchor="0 0 0" active="false"/>
  <connect name="connect" body1="a" body2="c" anchor="1 .5 .2"/>
  <connect name="connect to world" body1="c" anchor=".1 .5 .2"/>
  <connect site1="s" site2="u"/>
  <joint name="coupled" joint1="h" joint2="sl" polycoef=".1 .2 .3 .4 .5"/>
  <joint name="held" joint1="h" polycoef=".1"/>
  <tendon name="tendons" tendon1="sum" tendon2="rope" polycoef=".1 .2 .3 .4 .5"/>
  <tendon name="length" tendon1="rope" polycoef=".1"/>
  <weld name="dragged" body1="m" body2="a"/>
  <tendon name="wound" tendon1="around"/>
</equality></mujoco>"""
CAN_BE_EVALUATED = tuple(i for i in range(13) if i != 5)

# Two rockers on the ground, 1 m apart, whose ends a rod of 1 m joins.
FOUR_BAR = """
<mujoco model="four bar"><compiler angle="radian" autolimits="true"/><worldbody>
  <body name="left"><joint name="left" axis="0 1 0" range="-1.2 1.2"/>
    <geom size=".02" fromto="0 0 0 0 0 .6" type="capsule"/>
    <body name="rod" pos="0 0 .6"><joint name="elbow" axis="0 1 0" range="-2 2"/>
      <geom size=".02" fromto="0 0 0 1 0 0" type="capsule"/><site name="middle" pos=".5 0 0"/></body></body>
  <body name="right" pos="1 0 0"><joint name="right" axis="0 1 0" range="-1.2 1.2"/>
    <geom size=".02" fromto="0 0 0 0 0 .6" type="capsule"/></body></worldbody>
<equality><connect name="loop" body1="rod" body2="right" anchor="1 0 0"/></equality></mujoco>"""


@cache
def model_of(name: str) -> mujoco.MjModel:
    compiled = mujoco.MjModel.from_xml_string(EVERY_KIND) if name == "every kind" else models.reference_model(name)
    return oracle.exact(compiled)


@cache
def robot_of(name: str) -> Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxikWarning)
        return jaxik.load_robot(model_of(name))


def configurations(model: mujoco.MjModel, count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.stack([random_trees.random_qpos(model, rng) for _ in range(count)])


def constraint_rows(model: mujoco.MjModel, qpos: np.ndarray, ids: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """C MuJoCo's residual (m,) and Jacobian (m, nv) of equality constraints, in their order."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    jacobian = np.zeros((data.nefc, model.nv))
    if mujoco.mj_isSparse(model):
        parts = data.efc_J, data.efc_J_rownnz, data.efc_J_rowadr, data.efc_J_colind
        mujoco.mju_sparse2dense(jacobian, *parts)
    else:
        jacobian = data.efc_J.reshape(data.nefc, model.nv)
    rows = (data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY) & np.isin(data.efc_id, ids)
    return data.efc_pos[rows], jacobian[rows]


def imaginary(vector: jax.Array) -> jax.Array:
    """Imaginary part of the quaternion of a rotation vector: what MuJoCo has in a weld's rows."""
    square = vector @ vector
    angle = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    return vector * jnp.where(square > 0, jnp.sin(angle / 2) / angle, 0.5)


@partial(jax.jit, compiler_options=UNOPTIMISED)
def evaluated(task: jaxik.EqualityConstraintTask, robot: Robot, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Residuals (*batch, m) and Jacobians (*batch, m, nv); welds as MuJoCo has them, through the chain rule."""

    def one(q: jax.Array) -> tuple[jax.Array, jax.Array]:
        kin = robot.kinematics(q, task.frames)
        residual, jacobian = task.residual(robot, kin), task.jacobian(robot, kin)
        start = 0
        for equality, count in zip(task.equalities, counts(task), strict=True):
            if equality.kind == "weld":
                turn = slice(start + 3, start + 6)
                scale = robot.equality_data[equality.index, 10]
                vector = residual[turn] / jnp.where(scale > 0, scale, 1.0)
                residual = residual.at[turn].set(scale * imaginary(vector))
                jacobian = jacobian.at[turn].set(jax.jacfwd(imaginary)(vector) @ jacobian[turn])
            start += count
        return residual, jacobian

    return jax.vmap(one)(q)


@partial(jax.jit, compiler_options=UNOPTIMISED)
def residual_of(task: jaxik.EqualityConstraintTask, robot: Robot, q: jax.Array) -> jax.Array:
    """One configuration's residual, as it is."""
    return task.residual(robot, robot.kinematics(q, task.frames))


def counts(task: jaxik.EqualityConstraintTask) -> list[int]:
    return [{"connect": 3, "weld": 6}.get(equality.kind, 1) for equality in task.equalities]


@pytest.mark.parametrize(
    "name", mostly_exhaustive(["every kind", "robotiq_2f85", "gym_hil_panda", "yam"], ["every kind"])
)
def test_residual_and_jacobian_agree_with_c_mujoco(name: str) -> None:
    model, robot = model_of(name), robot_of(name)
    task = jaxik.EqualityConstraintTask(robot.equalities())
    ids = tuple(equality.index for equality in task.equalities)
    assert ids == (CAN_BE_EVALUATED if name == "every kind" else tuple(range(model.neq)))
    qs = configurations(model, BATCH)
    got = evaluated(task, robot, qs)
    for q, residual, jacobian in zip(qs, *map(np.array, got), strict=True):
        want, slope = constraint_rows(model, q, ids)
        # MuJoCo's quaternion may be the negative of ours, which is the same rotation.
        start = 0
        for equality, count in zip(task.equalities, counts(task), strict=True):
            turn = slice(start + 3, start + 6)
            if equality.kind == "weld" and residual[turn] @ want[turn] < 0:
                residual[turn], jacobian[turn] = -residual[turn], -jacobian[turn]
            start += count
        np.testing.assert_allclose(residual, want, atol=1e-12)
        np.testing.assert_allclose(jacobian, slope, atol=1e-12)


COSTS: dict[str | int, float] = {"weld sites": 1.0, "weld": 0.5, 8: 2.0, "tendons": 0.7, "coupled": 1.5}


@pytest.mark.parametrize("names", mostly_exhaustive([[*COSTS], ["weld", "tendons"]], [["weld", "tendons"]]), ids=len)
def test_slopes_and_second_derivatives_agree_with_automatic_ones(names: list[str | int]) -> None:
    robot = robot_of("every kind")
    task = jaxik.EqualityConstraintTask(robot.equalities(names), cost=[COSTS[name] for name in names])
    q = configurations(model_of("every kind"), 1)[0]

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def both(q: jax.Array) -> Any:
        def cost(dq: jax.Array) -> jax.Array:
            kin = robot.kinematics(robot.integrate(q, dq), task.frames)
            return jnp.sum((task.weights() * task.residual(robot, kin)) ** 2) / 2

        kin, zero = robot.kinematics(q, task.frames), jnp.zeros(robot.nv)
        rows = task.jacobian(robot, kin)
        default = add_joint_rows(kin, default_partials(task, robot, kin), jnp.zeros_like(rows))
        return (
            (rows, default),
            second_order(task, robot, kin, task.weights()),
            (jax.grad(cost)(zero), jax.hessian(cost)(zero)),
        )

    slopes, ours, automatic = both(q)
    np.testing.assert_allclose(*slopes, atol=1e-13)
    for derivative, want in zip(ours, automatic, strict=True):
        np.testing.assert_allclose(derivative, want, atol=1e-11 * np.abs(want).max())


def test_a_weld_s_rotation_rows_are_a_rotation_vector() -> None:
    robot = robot_of("every kind")
    task = jaxik.EqualityConstraintTask(robot.equalities("weld to world"))
    angle = 2.5  # MuJoCo has sin(1.25) = 0.95 there
    q = robot.qpos0.at[3:7].set(jnp.asarray([np.cos(angle / 2), 0, np.sin(angle / 2), 0]))
    np.testing.assert_allclose(residual_of(task, robot, q)[3:], [0, angle, 0], atol=1e-12)


def test_constraints_that_hold_at_the_reference_are_zero_there() -> None:
    robot = robot_of("every kind")
    names = ["weld", "weld to world", "position only", "connect", "connect to world"]
    task = jaxik.EqualityConstraintTask(robot.equalities(names))
    residual, jacobian = evaluated(task, robot, robot.qpos0[None])
    np.testing.assert_allclose(residual, 0, atol=1e-12)
    assert np.isfinite(jacobian).all()


def test_rows_come_in_the_order_given_and_costs_go_with_their_constraint() -> None:
    robot = robot_of("every kind")
    given = [10, "weld", "connect"]
    task = jaxik.EqualityConstraintTask(robot.equalities(given), cost=[2.0, 3.0, 4.0])
    np.testing.assert_array_equal(task.weights(), [2.0] + [3.0] * 6 + [4.0] * 3)
    q = configurations(model_of("every kind"), 1)[0]
    alone = [jaxik.EqualityConstraintTask(robot.equalities([name])) for name in given]
    parts = [residual_of(one, robot, q) for one in alone]
    np.testing.assert_allclose(residual_of(task, robot, q), np.concatenate(parts), atol=1e-14)
    np.testing.assert_array_equal(dataclasses.replace(task, cost=1.5).weights(), np.full(10, 1.5))


def test_a_mocap_body_s_weld_is_there_when_named_and_left_out_otherwise() -> None:
    model, robot = model_of("every kind"), robot_of("every kind")
    (dragged,) = robot.equalities("dragged")
    assert dragged not in robot.equalities()
    q = configurations(model, 1)
    residual = residual_of(jaxik.EqualityConstraintTask(dragged), robot, q[0])
    want, _ = constraint_rows(model, q[0], (dragged.index,))
    np.testing.assert_allclose(residual[:3], want[:3], atol=1e-12)


def test_robots_of_other_sizes_have_their_own_residuals() -> None:
    robot = robot_of("every kind")
    task = jaxik.EqualityConstraintTask(robot.equalities(["connect", "length", "coupled"]))
    q = jnp.asarray(configurations(model_of("every kind"), 1)[0])
    fields = ("body_position", "equality_data", "tendon_coefficients", "site_position")
    scales = np.asarray([1.0, 0.7, 1.4])
    robots = dataclasses.replace(
        robot, **{name: np.stack([np.asarray(getattr(robot, name)) * s for s in scales]) for name in fields}
    )
    axes = dataclasses.replace(jax.tree.map(lambda _: None, robot), **dict.fromkeys(fields, 0))
    got = jax.vmap(lambda robot: residual_of(task, robot, q), in_axes=(axes,))(robots)
    for i in range(3):
        alone = dataclasses.replace(robot, **{name: getattr(robots, name)[i] for name in fields})
        np.testing.assert_allclose(got[i], residual_of(task, alone, q), atol=1e-13)
    assert np.abs(got[0] - got[1]).max() > 0.1


def test_float32_stays_float32() -> None:
    robot, q = robot_of("every kind"), configurations(model_of("every kind"), 1)[0].astype(np.float32)
    task = jaxik.EqualityConstraintTask(robot.equalities())
    ours = residual_of(jax.tree.map(lambda x: x.astype(np.float32), task), robot.astype(np.float32), q)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, residual_of(task, robot, q.astype(float)), atol=1e-4)


def put_on_mjx() -> Any:
    from mujoco import mjx

    spec = mujoco.MjSpec.from_string(EVERY_KIND)
    # MJX has no tendon that goes round a geom.
    spec.delete(spec.equality("wound"))
    spec.delete(spec.tendon("around"))
    return mjx.put_model(spec.compile())


SOURCES: dict[str, Callable[[], Any]] = {
    "XML": lambda: EVERY_KIND,
    "MjSpec": lambda: mujoco.MjSpec.from_string(EVERY_KIND),
    "mjx.Model": put_on_mjx,
}


@pytest.mark.parametrize("source", mostly_exhaustive(SOURCES, ["XML", "MjSpec"]))
def test_every_source_gives_the_same_constraints(source: str, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        robot = jaxik.load_robot(SOURCES[source]())
    want = robot_of("every kind")
    assert robot.topology.equalities[:14] == want.topology.equalities[:14]
    for leaf in ("equality_data", "tendon_coefficients", "tendon_reference", "body_inertia", "armature"):
        ours = np.asarray(getattr(robot, leaf))
        np.testing.assert_allclose(ours, np.asarray(getattr(want, leaf))[: len(ours)], atol=1e-7, err_msg=leaf)


def test_a_mimic_joint_of_a_urdf_is_a_constraint() -> None:
    inertia = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    robot = jaxik.load_robot(f"""
      <robot name="gripper"><link name="palm"/><link name="left">{inertia}</link><link name="right">{inertia}</link>
        <joint name="left" type="prismatic"><parent link="palm"/><child link="left"/><axis xyz="1 0 0"/>
          <limit lower="0" upper="1" effort="1" velocity="1"/></joint>
        <joint name="right" type="prismatic"><parent link="palm"/><child link="right"/><axis xyz="1 0 0"/>
          <limit lower="-1" upper="1" effort="1" velocity="1"/>
          <mimic joint="left" multiplier="-2" offset="0.25"/></joint></robot>""")
    task = jaxik.EqualityConstraintTask(robot.equalities())
    residual = task.residual(robot, robot.kinematics(robot.configuration({"left": 0.1, "right": 0.3})))
    np.testing.assert_allclose(residual, [0.3 - (0.25 - 2 * 0.1)], atol=1e-12)


def test_what_cannot_be_evaluated_is_said_once_at_loading() -> None:
    with pytest.warns(JaxikWarning, match=r"mocap body .*: dragged; .*cannot evaluate .* are left out: wound$") as said:
        jaxik.load_robot(model_of("every kind"))
    assert len(said) == 1


MISTAKES: dict[str, tuple[Callable[[Robot], Any], str]] = {
    "unknown name": (lambda robot: robot.equalities("conect"), "did you mean 'connect'"),
    "no name": (lambda robot: robot.equalities(""), "unknown equality constraint ''"),
    "index out of range": (lambda robot: robot.equalities([99]), "no equality constraint 99; it has 0: weld sites"),
    "not active": (lambda robot: robot.equalities("off"), r"'off' .* not active; it has .*5: off \(not active\)"),
    "round a geom": (
        lambda robot: robot.equalities("wound"),
        "'wound' .* cannot be evaluated: .* connect, weld",
    ),
    "no constraints": (lambda _: jaxik.load_robot("panda").equalities(), "no active equality constraint .* has none"),
    "given twice": (
        lambda robot: jaxik.EqualityConstraintTask(robot.equalities(["held", "weld", 10])),
        "given twice: held",
    ),
    "names instead of references": (
        lambda robot: jaxik.EqualityConstraintTask(("held",)),  # type: ignore[arg-type]
        r"robot\.equalities\(names or indices\)",
    ),
    "none": (lambda robot: jaxik.EqualityConstraintTask(()), r"robot\.equalities\(\) has all"),
    "costs that do not fit": (
        lambda robot: jaxik.EqualityConstraintTask(robot.equalities(["held", "weld"]), cost=jnp.ones(3)),
        r"\(\*batch, 2\)",
    ),
    "negative cost": (
        lambda robot: jaxik.EqualityConstraintTask(robot.equalities("held"), cost=-1.0),
        "must not be negative",
    ),
    "another robot": (
        lambda robot: jaxik.Problem(robot, {"t": jaxik.EqualityConstraintTask(four_bar().equalities())}),
        "task 't': the equality constraint 'loop' is of another robot",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    make, said = MISTAKES[mistake]
    with pytest.raises(JaxikError, match=said) as raised:
        make(robot_of("every kind"))
    assert isinstance(raised.value, UnknownNameError) == (mistake in ("unknown name", "no name"))


@cache
def four_bar() -> Robot:
    return jaxik.load_robot(FOUR_BAR)


@exhaustive
def test_solve_closes_a_loop_and_reaches_a_point_with_it() -> None:
    robot = four_bar()
    loop = jaxik.EqualityConstraintTask(robot.equalities("loop"), tolerance=1e-9)
    # A parallelogram: at 0.5 rad of both rockers the rod's middle is half-way between their ends.
    middle = [0.5 + 0.6 * np.sin(0.5), 0.0, 0.6 * np.cos(0.5)]
    point = jaxik.FrameTask(robot.frame("middle"), middle, orientation_cost=None, position_tolerance=1e-9)
    problem = jaxik.Problem(robot, {"loop": loop, "point": point}, constraints={})
    solution = jaxik.solve(problem, robot.configuration({"left": np.array([0.3, 0.6, 0.0])})).check()
    np.testing.assert_allclose(solution.q, [[0.5, -0.5, 0.5]] * 3, atol=1e-6)
    assert np.abs(solution.residuals["loop"]).max() < 1e-9


def test_ranges_of_tendons_are_named_as_no_limits() -> None:
    limited = EVERY_KIND.replace('<fixed name="sum">', '<fixed name="sum" limited="true" range="-1 1">')
    with pytest.warns(jaxik.JaxikWarning, match="ranges of tendons are no limits here: sum"):
        jaxik.load_robot(mujoco.MjModel.from_xml_string(limited))


def test_what_carries_both_ends_of_a_loop_moves_none_of_its_rows() -> None:
    # In float32 rounding of an arm's columns made redundant rows independent: steps were INFEASIBLE.
    arm = jaxik.load_robot(
        """<mujoco><compiler angle="radian"/><worldbody>
        <body name="arm"><joint name="lift" axis="0 1 0"/><geom size=".1"/>
          <body name="wrist" pos="1 .1 0" quat="1 .2 .3 .1"><joint name="turn" axis="1 2 3"/><geom size=".1"/>
            <body name="a"><joint name="one" axis="0 0 1"/><geom size=".1"/></body>
            <body name="b" pos=".1 0 0"><joint name="other" axis="0 0 1"/><geom size=".1"/></body></body></body>
        </worldbody></mujoco>"""
    )
    robot = arm.with_closure("loop", "a", "b", "weld")
    task = jaxik.EqualityConstraintTask(robot.equalities())
    kin = robot.kinematics(jnp.array([0.7, -0.4, 0.3, 0.0], jnp.float32), task.frames, task.subtrees)
    rows = np.asarray(task.jacobian(robot, kin))
    assert np.all(rows[:, :2] == 0) and np.abs(rows[:, 2:]).max() > 0.05
