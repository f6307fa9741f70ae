"""`plan_motion`: free all the way by C MuJoCo, as fast as limits allow, and statuses that say what was wrong."""

import itertools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.solvers.planning.setting import Rates
from jaxik.solvers.planning.shortcuts import Path
from jaxik.solvers.planning.timing import timed
from jaxik.solvers.planning.trees import WAYPOINTS

MARGIN, SPEED, ACCELERATION, DT, STEPS = 0.01, 1.5, 6.0, 0.02, 500
DISCS = np.array([[0.75, 0.0, 0.0], [-0.3, 0.75, 0.0], [0.3, -0.75, 0.0]])
LINK = '<body name="link{i}" pos="{x} 0 0"><joint name="j{i}" axis="0 0 1" range="-2.8 2.8"/>'
LINK += '<geom name="g{i}" type="capsule" fromto="0 0 0 0.4 0 0" size="0.04"/>'


def xml(discs: np.ndarray = DISCS) -> str:
    """An arm of three links in a plane, and discs."""
    links = "".join(LINK.format(i=i, x=0.4 * (i > 0)) for i in range(3)) + "</body>" * 3
    shapes = "".join(f'<geom type="sphere" size="0.15" pos="{x} {y} {z}"/>' for x, y, z in discs)
    return f'<mujoco><compiler angle="radian"/><worldbody>{links}{shapes}</worldbody></mujoco>'


def limits(*more: jaxik.Limit, discs: np.ndarray = DISCS) -> tuple[jaxik.Limit, ...]:
    world = jaxik.World(spheres=jaxik.Spheres(discs, np.full(discs.shape[:-1], 0.15)))
    apart = jaxik.CollisionLimit(world, margin=MARGIN)
    speed, acceleration = jaxik.VelocityLimit(SPEED), jaxik.AccelerationLimit(ACCELERATION)
    return jaxik.ConfigurationLimit(), apart, speed, acceleration, *more


@pytest.fixture(scope="module")
def arm() -> jaxik.Robot:
    return jaxik.load_robot(mujoco.MjModel.from_xml_string(xml(np.zeros((0, 3)))), geometry="model")


def problem_of(arm: jaxik.Robot, *more: jaxik.Limit, discs: np.ndarray = DISCS, **fields: object) -> jaxik.Problem:
    tasks = {"rest": jaxik.PostureTask(arm.q_home)}
    return jaxik.Problem(arm, tasks, limits(*more, discs=discs), **fields)


def one_alone(arm: jaxik.Robot, moves: object = (True, True, True)) -> jaxik.Problem:
    """A problem without batch axes, whose program is one for all tests: with tasks that have some, and a mask."""
    points = jaxik.FrameTask(arm.frame("link2"), np.zeros((5, 3)), orientation_cost=None)
    return jaxik.Problem(arm, {"tip": points}, limits(), dof_mask=np.array(moves))


def planned(problem: jaxik.Problem, q0: object, q1: object, steps: int = STEPS, **options: int) -> jaxik.Track:
    options = jaxik.PlanningOptions(**options) if options else None
    return jaxik.plan_motion(problem, q0, q1, jax.random.key(0), dt=DT, num_steps=steps, options=options)


@pytest.fixture(scope="module")
def ends(arm: jaxik.Robot) -> tuple[np.ndarray, np.ndarray]:
    """Free configurations, of which the straight ways are mostly not free."""
    q = arm.sample(jax.random.key(5), (2048,))
    free = q[np.asarray(arm.clearance(q, limits()[1].world)) > MARGIN + 1e-3][:512]
    first, last = free[:256], free[256:]
    blocked = np.asarray(arm.in_collision(first, limits()[1].world, to=last))
    order = np.argsort(~blocked, kind="stable")[:64]
    return np.asarray(first[order]), np.asarray(last[order])


@pytest.fixture(scope="module")
def motion(arm: jaxik.Robot, ends: tuple[np.ndarray, np.ndarray]) -> jaxik.Track:
    """Each with obstacles of its own, which are the same."""
    return planned(problem_of(arm, discs=np.tile(DISCS, (len(ends[0]), 1, 1))), *ends)


def least_distance(q: np.ndarray, discs: np.ndarray = DISCS) -> float:
    """By C MuJoCo, over all pairs that the arm keeps apart, at configurations (n, 3)."""
    model = mujoco.MjModel.from_xml_string(xml(discs))
    data, links = mujoco.MjData(model), [model.geom(f"g{i}").id for i in range(3)]
    pairs = [(i, j) for i in links for j in range(model.ngeom) if j not in links] + [(links[0], links[2])]
    least = np.inf
    for each in q:
        data.qpos[:] = each
        mujoco.mj_kinematics(model, data)
        least = min(least, *(mujoco.mj_geomDistance(model, data, i, j, 1.0, None) for i, j in pairs))
    return least


def test_motions_keep_the_margin_all_the_way(motion: jaxik.Track, ends: tuple[np.ndarray, np.ndarray]) -> None:
    status = np.asarray(motion.status)
    assert (status[:-1] == jaxik.Status.CONVERGED).all()  # some are not over at the last step
    for i in np.flatnonzero((status == jaxik.Status.CONVERGED).all(axis=0))[:12]:
        q = np.concatenate([ends[0][i][None], np.asarray(motion.q)[:, i]])
        way = np.stack([a + s * (b - a) for a, b in itertools.pairwise(q) for s in (0.0, 0.5)])
        # Between steps the path is a curve, and its chord is off by a dt^2 / 8 at most.
        assert least_distance(way) > MARGIN - 3e-4
        np.testing.assert_array_equal(q[-1], ends[1][i])


def test_straight_ways_would_have_collided(ends: tuple[np.ndarray, np.ndarray]) -> None:
    first, last = ends
    deep = [least_distance(a + np.linspace(0, 1, 50)[:, None] * (b - a)) < 0 for a, b in zip(first, last, strict=True)]
    assert np.mean(deep) > 0.9


def test_limits_hold_and_one_of_them_is_used_most_of_the_time(motion: jaxik.Track) -> None:
    assert float(motion.peak_speed.max()) <= 1 and float(motion.peak_acceleration.max()) <= 1 + 1e-6
    found = np.asarray(motion.status[-1]) == jaxik.Status.CONVERGED
    moves = (np.abs(np.asarray(motion.velocity)) > 1e-6).any(axis=-1)[:, found]
    used = np.maximum(np.asarray(motion.speed_share), np.asarray(motion.acceleration_share))[:, found]
    assert np.mean(used[moves] > 0.9) > 0.85


def test_a_lone_joint_takes_the_time_of_a_trapezoid() -> None:
    # 1 rad at 1 rad/s and 4 rad/s2: 1/4 s to gain speed, as much to lose it, and 3/4 rad at full speed.
    with jax.enable_x64(True):
        points, one = jnp.zeros((WAYPOINTS, 1)).at[1:].set(1.0), jnp.ones(1)
        path = Path(points, jnp.asarray(2))
        rates = Rates(-one, one, 4 * one)
        found = jax.jit(timed, static_argnums=4)(path, jnp.zeros(WAYPOINTS), rates, jnp.asarray(0.01), 150)
    np.testing.assert_allclose(found.duration, 1.25, rtol=1e-4)
    np.testing.assert_allclose(found.q[[24, 62, 99], 0], [0.125, 0.505, 0.875], atol=1e-4)


STATUSES = {
    "overlapping start": ((0.0, 0.0, 0.0), (1.5, 0.0, 0.0), {}, jaxik.Status.COLLIDES),
    "overlapping end": ((1.5, 0.0, 0.0), (0.0, 0.0, 0.0), {}, jaxik.Status.COLLIDES),
    "outside of limits": ((1.5, 0.0, 0.0), (1.5, 3.0, 0.0), {}, jaxik.Status.INFEASIBLE),
    "no number": ((1.5, 0.0, np.nan), (1.5, 0.5, 0.0), {}, jaxik.Status.NONFINITE),
    "too few looks": ((0.6, 0.0, 0.0), (-0.6, 0.0, 0.0), {"max_looks": 3, "max_attempts": 2}, jaxik.Status.TIMEOUT),
}


@pytest.mark.parametrize("case", STATUSES, ids=str)
def test_what_cannot_be_planned_stands_still_and_says_why(arm: jaxik.Robot, case: str) -> None:
    q0, q1, options, status = STATUSES[case]
    found = planned(one_alone(arm), q0, q1, **options)
    assert set(np.asarray(found.status).tolist()) == {status}
    assert np.isfinite(found.q).all()
    np.testing.assert_allclose(found.q, np.broadcast_to(np.nan_to_num(q0), found.q.shape), atol=1e-6)


def test_a_motion_that_is_not_over_says_so_at_its_last_step(arm: jaxik.Robot) -> None:
    found = planned(one_alone(arm), [1.0, 0.0, 0.0], [1.0, 0.0, 1.5], steps=20)
    assert (np.asarray(found.status[:-1]) == jaxik.Status.CONVERGED).all()
    assert found.status[-1] == jaxik.Status.TIMEOUT


def test_an_element_in_a_batch_is_planned_as_alone(
    arm: jaxik.Robot, ends: tuple[np.ndarray, np.ndarray], motion: jaxik.Track
) -> None:
    alone = planned(one_alone(arm), ends[0][0], ends[1][0])
    np.testing.assert_allclose(alone.q, motion.q[:, 0], atol=1e-5)


def test_each_element_has_obstacles_of_its_own(arm: jaxik.Robot) -> None:
    discs = np.stack([DISCS, DISCS + np.array([[0.0, 0.0, 5.0]])])
    found = planned(problem_of(arm, discs=discs), np.tile([0.6, 0.0, 0.0], (2, 1)), np.tile([-0.6, 0.0, 0.0], (2, 1)))
    assert (np.asarray(found.status[-1]) == jaxik.Status.CONVERGED).all()
    sideways = np.abs(np.asarray(found.q)[:, :, 1:]).max(axis=(0, 2))
    assert sideways[0] > 0.3 and sideways[1] < 1e-6  # nothing is in the way of the second


def test_tasks_and_their_batches_do_not_count(arm: jaxik.Robot) -> None:
    found = planned(one_alone(arm), [0.6, 0.0, 0.1], [0.6, 0.5, 0.1])
    assert found.q.shape == (STEPS, 3) and (np.asarray(found.status) == jaxik.Status.CONVERGED).all()


def test_what_is_held_stays(arm: jaxik.Robot) -> None:
    held = one_alone(arm, (True, True, False))
    found = planned(held, [0.6, 0.0, 0.1], [-0.6, 0.0, 0.1])
    assert (np.asarray(found.status[-1]) == jaxik.Status.CONVERGED).all()
    np.testing.assert_allclose(found.q[:, 2], 0.1, atol=1e-7)
    assert planned(held, [0.6, 0.0, 0.1], [-0.6, 0.0, 0.4]).status[0] == jaxik.Status.INFEASIBLE


def test_ends_limits_obstacles_and_effort_are_traced(arm: jaxik.Robot, ends: tuple[np.ndarray, np.ndarray]) -> None:
    """So that a program of theirs is compiled once."""

    def plan(discs: jax.Array, speed: jax.Array, q0: jax.Array, q1: jax.Array, looks: jax.Array) -> jax.Array:
        world = jaxik.World(spheres=jaxik.Spheres(discs, jnp.full(3, 0.15)))
        every = jaxik.CollisionLimit(world), jaxik.VelocityLimit(speed), jaxik.ConfigurationLimit()
        problem = jaxik.Problem(arm, {"rest": jaxik.PostureTask(arm.q_home)}, every)
        options = jaxik.PlanningOptions(max_looks=looks)
        return jaxik.plan_motion(problem, q0, q1, jax.random.key(0), dt=DT, num_steps=10, options=options).q

    assert jax.eval_shape(plan, DISCS, jnp.asarray(1.0), *ends, jnp.asarray(100)).shape == (10, *ends[0].shape)


COUPLED = """<mujoco><compiler angle="radian"/><worldbody><body>
  <joint name="a" type="slide" axis="1 0 0" range="-0.1 0.1"/><geom size=".01"/>
  <body pos="0 1 0"><joint name="b" type="slide" axis="1 0 0" range="-0.2 0.2"/><geom size=".01"/></body></body>
  </worldbody>
  <equality><joint joint1="b" joint2="a" polycoef="{}"/></equality></mujoco>"""


@pytest.mark.parametrize(
    "polynomial, last, status",
    [("0 -2 0 0 0", -0.16, "CONVERGED"), ("0 -2 0 0 0", 0.1, "INFEASIBLE"), ("0 0 25 0 0", 0.16, "INFEASIBLE")],
)
def test_couplings_hold_if_they_are_linear(polynomial: str, last: float, status: str) -> None:
    """Of slides that go a decimetre."""
    robot = jaxik.load_robot(mujoco.MjModel.from_xml_string(COUPLED.format(polynomial)))
    problem = jaxik.Problem(robot, {"rest": jaxik.PostureTask(robot.q_home)}, limits()[2:] + limits()[:1])
    found = planned(problem, [0.0, 0.0], [0.08, last])
    assert set(np.asarray(found.status).tolist()) == {jaxik.Status[status]}
    if status == "CONVERGED":
        np.testing.assert_allclose(found.q[:, 1], -2 * np.asarray(found.q[:, 0]), atol=1e-6)


def test_a_joint_that_may_not_move_is_held(arm: jaxik.Robot) -> None:
    rest = {"rest": jaxik.PostureTask(arm.q_home)}
    for speed in ({"j0": 1.0, "j1": 1.0, "j2": 0.0}, {"j0": 1.0, "j1": 1.0}):
        every = (*limits()[:2], jaxik.VelocityLimit(speed))
        found = planned(jaxik.Problem(arm, rest, every), [0.6, 0.0, 0.1], [-0.6, 0.0, 0.1])
        assert (np.asarray(found.status) == jaxik.Status.CONVERGED).all()
        np.testing.assert_allclose(found.q[:, 2], 0.1, atol=1e-7)
        assert planned(jaxik.Problem(arm, rest, every), [0.6, 0.0, 0.1], [0.6, 0.0, 0.2]).status[0] == (
            jaxik.Status.INFEASIBLE
        )


HEIGHT = 0.45


def on_a_line(arm: jaxik.Robot, height: float) -> jaxik.FrameTask:
    """The last link's origin at a distance [m] to the left of the x axis."""
    point = np.array([0.0, height, 0.0])
    across = np.array([0.0, 1.0, 0.0])
    return jaxik.FrameTask(arm.frame("link2"), point, position_cost=across, orientation_cost=None, axes="world")


@pytest.fixture(scope="module")
def ends_on_a_line(arm: jaxik.Robot) -> tuple[np.ndarray, np.ndarray]:
    """Free configurations with the last link's origin on a line, of which the straight ways leave it."""
    rng = np.random.default_rng(1)
    first, last = rng.uniform(-2.8, 2.8, (2, 4096))
    sine = HEIGHT / 0.4 - np.sin(first)  # of the direction of the second link, which is 0.4 m long as the first is
    second = np.where(rng.random(4096) < 0.5, 0, np.pi) - first
    second += np.where(np.cos(first + second) > 0, 1, -1) * np.arcsin(np.clip(sine, -1, 1))
    q = np.stack([first, (second + np.pi) % (2 * np.pi) - np.pi, last], axis=-1)
    kept = (np.abs(sine) < 1) & (np.abs(q[:, 1]) < 2.8)
    kept &= np.asarray(arm.clearance(q, limits()[1].world)) > MARGIN + 1e-3
    return q[kept][:16], q[kept][16:32]


@pytest.fixture(scope="module")
def motion_on_a_line(arm: jaxik.Robot, ends_on_a_line: tuple[np.ndarray, np.ndarray]) -> jaxik.Track:
    # Few shortcuts: with the usual ones these look at configurations for 8 s.
    problem = problem_of(arm, constraints={"line": on_a_line(arm, HEIGHT)})
    return planned(problem, *ends_on_a_line, shortcuts=4)


def heights(q: np.ndarray) -> np.ndarray:
    """Of the last link's origin by C MuJoCo, at configurations (n, 3)."""
    model = mujoco.MjModel.from_xml_string(xml())
    data, found = mujoco.MjData(model), []
    for each in q:
        data.qpos[:] = each
        mujoco.mj_kinematics(model, data)
        found.append(data.body("link2").xpos[1])
    return np.array(found)


def test_constraints_hold_all_the_way(
    motion_on_a_line: jaxik.Track, ends_on_a_line: tuple[np.ndarray, np.ndarray]
) -> None:
    motion, over = motion_on_a_line, np.asarray(motion_on_a_line.status[-1]) == jaxik.Status.CONVERGED
    assert over.sum() >= 10  # discs cut parts of the line off from each other
    assert float(motion.peak_speed.max()) <= 1 and float(motion.peak_acceleration.max()) <= 1 + 1e-3
    for i in np.flatnonzero(over):
        q = np.concatenate([ends_on_a_line[0][i][None], np.asarray(motion.q)[:, i]])
        np.testing.assert_allclose(heights(q), HEIGHT, atol=2e-6)
        np.testing.assert_allclose(motion.residuals["line"]["position"][:, i, 1], 0, atol=1e-6)
        moves = q[np.abs(np.diff(q, axis=0, prepend=np.nan)).max(axis=1) != 0]
        way = np.stack([a + s * (b - a) for a, b in itertools.pairwise(moves) for s in (0.0, 0.5)])
        assert least_distance(way) > MARGIN - 3e-4
        np.testing.assert_allclose(q[-1], ends_on_a_line[1][i], atol=2e-6)
    straight = [a + np.linspace(0, 1, 9)[:, None] * (b - a) for a, b in zip(*ends_on_a_line, strict=True)]
    assert np.mean([np.ptp(heights(way)) > 0.02 for way in straight]) > 0.6  # or nothing is shown


def test_an_end_off_the_constraints_is_infeasible(
    arm: jaxik.Robot, ends_on_a_line: tuple[np.ndarray, np.ndarray]
) -> None:
    problem, (first, last) = problem_of(arm, constraints={"line": on_a_line(arm, HEIGHT)}), ends_on_a_line
    off = 0.01 * (np.arange(len(first)) % 2)[:, None]
    found = planned(problem, first + off, last + 0.01 - off)
    assert set(np.asarray(found.status).ravel().tolist()) == {jaxik.Status.INFEASIBLE}


@exhaustive
def test_ends_that_are_a_little_off_the_constraints_are_no_jumps(
    arm: jaxik.Robot, ends_on_a_line: tuple[np.ndarray, np.ndarray], motion_on_a_line: jaxik.Track
) -> None:
    problem, (first, last) = problem_of(arm, constraints={"line": on_a_line(arm, HEIGHT)}), ends_on_a_line
    off = [q - [5e-5, 0.0, 0.0] * np.sign(q) for q in (first, last)]  # not beyond joint limits
    exact, found = motion_on_a_line, planned(problem, *off, shortcuts=4)
    over = (np.asarray(exact.status[-1]) == jaxik.Status.CONVERGED) & (np.asarray(found.status[-1]) == 0)
    assert over.sum() >= 8
    # The way onto the constraints, 2.5e-3 rad/s in a step of 20 ms and more in shorter ones, is none of the motion.
    jump = (np.asarray(found.q[0]) - off[0]) / DT - np.asarray(found.velocity[0])
    assert (np.abs(jump[over]).max(axis=-1) > 5e-4).mean() > 0.8
    np.testing.assert_allclose(found.q[-1][over], last[over], atol=2e-4)
    np.testing.assert_allclose(found.residuals["line"]["position"][:, over, 1], 0, atol=1e-6)


@exhaustive
def test_a_constraint_that_is_told_twice_is_as_if_told_once(
    arm: jaxik.Robot, ends_on_a_line: tuple[np.ndarray, np.ndarray], motion_on_a_line: jaxik.Track
) -> None:
    twice = {"line": on_a_line(arm, HEIGHT), "again": on_a_line(arm, HEIGHT)}
    found = planned(problem_of(arm, constraints=twice), *ends_on_a_line)
    over = [np.sum(np.asarray(each.status[-1]) == jaxik.Status.CONVERGED) for each in (motion_on_a_line, found)]
    assert over[1] >= 0.9 * over[0]


@exhaustive
def test_closed_loops_stay_closed() -> None:
    robot = jaxik.load_robot("five_bar")
    near = robot.sample(jax.random.key(0), (16,))
    ends = jaxik.solve(jaxik.Problem(robot, {"rest": jaxik.PostureTask(near)}), near)
    moving = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(3.0), jaxik.AccelerationLimit(12.0)
    problem = jaxik.Problem(robot, {"rest": jaxik.PostureTask(robot.q_home)}, moving)
    found = planned(problem, ends.q[:8], ends.q[8:], steps=200, max_attempts=1, max_looks=1000)
    over = np.asarray(found.status[-1]) == jaxik.Status.CONVERGED
    assert over.sum() >= 5  # others lead through where the loop may open in two ways
    assert np.abs(np.asarray(found.residuals["model"])[:, over]).max() < 1e-6
    assert float(np.asarray(found.acceleration_share)[:, over].max()) <= 1 + 1e-3


ERRORS = {
    "no limit of speed": (lambda arm: jaxik.Problem(arm, {"r": jaxik.PostureTask(arm.q_home)}), "VelocityLimit"),
    "a limit it does not hold": (lambda arm: problem_of(arm, jaxik.JerkLimit(9.0)), "JerkLimit"),
    "a constraint that yields": (
        lambda arm: problem_of(arm, constraints={"tip": jaxik.Elastic(on_a_line(arm, 0.5), penalty=1.0)}),
        "no Elastic one",
    ),
}


@pytest.mark.parametrize("case", ERRORS, ids=str)
def test_what_is_not_held_is_an_error(arm: jaxik.Robot, case: str) -> None:
    make, words = ERRORS[case]
    with pytest.raises(jaxik.JaxikError, match=words):
        planned(make(arm), arm.q_home, arm.q_home)


def test_there_are_no_derivatives(arm: jaxik.Robot) -> None:
    def last(q0: jax.Array) -> jax.Array:
        return planned(problem_of(arm), q0, jnp.array([1.0, 0.3, 0.0])).q.sum()

    with pytest.raises(jaxik.JaxikError, match="no derivatives"):
        jax.grad(last)(jnp.array([1.0, 0.0, 0.0]))
