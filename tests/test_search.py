"""`search`: global, honest, and bounded in effort."""

import dataclasses
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from own_tasks import MIXED
from searches import PLANE, arm, check_found, errors, found, planar, planar_targets, tip_task
from tables import exhaustive
from ur_kinematics import branches as closed_form

import jaxik
from jaxik import (
    FrameTask,
    JaxikError,
    PositionLimit,
    PostureTask,
    Problem,
    SearchOptions,
    SolveOptions,
    Status,
    search,
)
from jaxik.kinematics.sampling import dimensions
from jaxik.numerics.kronecker import offsets
from jaxik.solvers.nonlinear.formulation import formulation
from jaxik.solvers.search.starts import StartSampler, _inward, start_of, starts_of


def test_what_is_out_of_reach_stalls_at_the_closest_pose() -> None:
    solution = found()
    np.testing.assert_array_equal(solution.status, [0, 0, 0, 0, Status.STALLED, Status.STALLED])
    gaps = np.linalg.norm(solution.residuals["tip"]["position"], axis=-1)
    assert gaps[:4].max() < 1e-12
    np.testing.assert_allclose(gaps[4], 1e-3, atol=1e-12)
    # Behind its back: of all configurations on a fine grid none is closer.
    first, second = np.meshgrid(np.linspace(-0.3, 0.3, 301), np.linspace(-2.5, 2.5, 2001), indexing="ij")
    x, y = np.cos(first) + 0.7 * np.cos(first + second), np.sin(first) + 0.7 * np.sin(first + second)
    np.testing.assert_allclose(gaps[5], np.hypot(x + 3, y).min(), atol=1e-5)
    assert solution.stationarity[4:].max() < 1e-10


def test_every_pose_of_an_arm_is_found_inside_its_limits() -> None:
    """In a program that compiles quickly; as users compile it: tests/exact."""
    check_found("panda")


def test_bad_targets_are_told_and_do_not_touch_their_neighbours() -> None:
    targets = planar_targets().at[1].set(jnp.nan)
    solution = search(planar(targets), jax.random.key(0))
    assert solution.status[1] == Status.NONFINITE and jnp.isfinite(solution.q).all()
    np.testing.assert_array_equal(np.delete(solution.q, 1, 0), np.delete(found().q, 1, 0))


def test_what_is_solved_costs_little_and_what_is_not_its_bounded_effort() -> None:
    options = SearchOptions(max_starts=9, max_steps_per_start=12, solve_options=jaxik.SolveOptions(max_steps=20))
    solution = search(planar(planar_targets()), jax.random.key(0), options=options)
    np.testing.assert_array_equal(solution.status, found().status)
    np.testing.assert_array_equal(solution.num_starts[4:], 9)
    assert solution.num_starts[:4].max() <= 3
    assert solution.iterations.max() <= 9 * (12 + 1) + 20


@jaxik.pytree
class SidewaysRoot(jaxik.Task):
    """The root of the tip's way to the left: undefined at every other configuration."""

    target: Any = jaxik.leaf()
    tolerance: Any = jaxik.leaf(default=1e-6)

    @property
    def frames(self) -> tuple[Any, ...]:
        return (PLANE.frame("tip"),)

    def residual(self, robot: jaxik.Robot, kin: Any) -> jax.Array:
        return jnp.sqrt(kin.pose(PLANE.frame("tip")).translation()[1]) - self.target


def test_starts_where_nothing_can_be_evaluated_are_passed_over() -> None:
    targets = jnp.asarray([0.3, 0.5, 0.8, 2.0, jnp.nan])
    solution = search(
        Problem(PLANE, {"root": SidewaysRoot(targets)}), jax.random.key(0), starts=jnp.asarray([0.0, -1.0])
    )
    stalled = [Status.STALLED, Status.TIMEOUT]  # at the edge of where it is defined no step is small enough
    np.testing.assert_array_equal(solution.status[:3], Status.CONVERGED)
    assert int(solution.status[3]) in stalled and solution.num_starts[3] == 128
    assert solution.status[4] == Status.NONFINITE and solution.num_starts[4] == 16
    assert jnp.isfinite(solution.q).all()


def test_no_number_recompiles() -> None:
    traced = []

    @jax.jit
    def run(target: jax.Array, starts: jax.Array, options: SearchOptions) -> jax.Array:
        traced.append(1)
        return search(planar(target), jax.random.key(0), starts=starts, options=options).q

    for scale in (1.0, 2.0):
        options = SearchOptions(
            max_starts=int(3 * scale), unlimited_range=scale, min_separation=scale, reference=jnp.ones(2) * scale
        )
        run.lower(planar_targets() * scale, jnp.zeros((2, 2)) * scale, options)
    assert len(traced) == 1


def test_the_users_own_starts_come_first() -> None:
    q = jnp.array([[0.2, -2.0], [-0.25, 0.4], [0.0, 0.0], [0.3, 2.5]])
    given = jnp.stack([jnp.full((4, 2), 0.1), q], axis=1)
    solution = search(planar(planar_targets()[:4]), jax.random.key(0), starts=given[:, ::-1])
    np.testing.assert_array_equal(solution.iterations, 0)
    np.testing.assert_array_equal(solution.num_starts, 1)
    np.testing.assert_allclose(solution.q, q, atol=1e-12)
    both = search(planar(jnp.array([[-3.0, 0, 0]] * 4)), jax.random.key(0), starts=given, options=SearchOptions(2))
    assert (both.num_starts == 2).all()


def test_a_start_that_is_not_finite_is_told_if_it_is_the_first_and_harms_no_other() -> None:
    bad = jnp.tile(jnp.array([[0.1, 0.2], [jnp.nan, 0.0]]), (4, 1, 1))
    far = planar(jnp.array([[-3.0, 0, 0], [0.9, -1.0, 0]] * 2))
    first = search(far, jax.random.key(0), starts=bad[:, ::-1])
    np.testing.assert_array_equal(first.status, [Status.NONFINITE] * 4)
    second = search(far, jax.random.key(0), starts=bad, options=SearchOptions(max_starts=9))
    np.testing.assert_array_equal(second.status[0], Status.STALLED)
    assert jnp.isfinite(first.q).all() and second.num_starts[0] == 9


@exhaustive
def test_joints_that_are_held_or_of_no_use_stay_at_the_first_start() -> None:
    robot = jaxik.load_robot("panda")
    start = robot.q_home + 0.1
    hand = robot.frame_pose(start, robot.frame("tcp"))
    mask = jnp.ones(robot.nv, bool).at[2].set(False)
    task = FrameTask(robot.frame("tcp"), jaxlie.SE3(hand.wxyz_xyz.at[4].add(-0.1)), orientation_cost=None)
    solution = search(Problem(robot, {"tip": task}, dof_mask=mask), jax.random.key(0), starts=start)
    assert solution.converged and solution.q[2] == start[2]


@exhaustive
def test_lower_levels_are_solved_from_what_was_found() -> None:
    robot, target, _ = arm("panda")
    robot = dataclasses.replace(robot)
    goals = jaxlie.SE3(target.wxyz_xyz[:40].astype(np.float32))
    home = robot.q_home.astype(np.float32)
    tasks = {"tip": FrameTask(robot.frame("tcp"), goals), "rest": PostureTask(home, priority=1)}
    solution = search(Problem(robot, tasks), jax.random.key(0), starts=home)
    assert np.mean(solution.converged) >= 0.9
    position, angle = errors("panda", np.asarray(solution.q), goals)
    assert (position < 1e-4).all() and (angle < 1e-3).all()
    alone = arm("panda")[2].q[:40]
    closer = np.linalg.norm(solution.q - home, axis=-1) - np.linalg.norm(alone - home, axis=-1)
    assert np.mean(closer < 1e-3) > 0.8 and np.median(closer) < -0.01  # the others go to another branch


@cache
def branches() -> tuple[jaxik.Robot, jaxlie.SE3, jaxik.Solution]:
    """Up to eight solutions of 30 poses of a UR5e, in float64."""
    robot = jaxik.load_robot("ur5e")
    target = robot.frame_pose(branched(robot), robot.frame("tcp"))
    problem = Problem(robot, {"tip": FrameTask(robot.frame("tcp"), target)})
    return robot, target, search(problem, jax.random.key(0), options=SearchOptions(solutions=8, min_separation=1e-3))


def branched(robot: jaxik.Robot) -> jax.Array:
    return robot.sample(jax.random.key(3), (30,))


@exhaustive
def test_all_branches_of_a_six_joint_arm_are_found() -> None:
    robot, target, solution = branches()
    assert solution.q.shape == (30, 8, 6) and solution.status.shape == (30, 8)
    count = np.asarray(solution.converged.sum(-1))
    expected = closed_form(np.asarray(target.as_matrix())).exists.sum(axis=1)
    np.testing.assert_array_equal(count, expected)
    assert np.mean(count == 8) > 0.5
    for i in range(30):
        q = np.asarray(solution.q[i, : count[i]])
        position, angle = errors("ur5e", q, jaxlie.SE3(jnp.tile(target.wxyz_xyz[i], (count[i], 1))))
        assert (position < 1e-4).all() and (angle < 1e-3).all()
        away = (q[:, None] - q + np.pi) % (2 * np.pi) - np.pi
        assert np.abs(away).max(-1)[~np.eye(count[i], dtype=bool)].min(initial=1) > 1e-3  # straight elbows bend by 2e-3
        # In the turn nearest to home, where the limits have room for it.
        home = np.asarray(robot.q_home)
        inside = (np.abs(home) < np.pi) & (np.asarray(robot.limit_upper) > 6)
        assert (np.abs(q - home)[:, inside] <= np.pi + 1e-9).all()


@exhaustive
@pytest.mark.parametrize("rank_by", ["reference", "limits"])
def test_the_preferred_solution_is_the_best_of_all(rank_by: str) -> None:
    robot, target, several = branches()
    reference = jnp.array([0.5, -1.0, 1.0, -0.5, 0.5, 0.0])
    options = SearchOptions(rank_by=rank_by, reference=reference, num_candidates=64)
    problem = Problem(robot, {"tip": FrameTask(robot.frame("tcp"), target)})
    solution = search(problem, jax.random.key(1), options=options)
    assert solution.converged.all()

    def merit(q: Any) -> np.ndarray:
        q = np.asarray(q)
        if rank_by == "limits":
            lower, upper = np.asarray(robot.limit_lower), np.asarray(robot.limit_upper)
            return -np.min(np.minimum(q - lower, upper - q) / (upper - lower), axis=-1)
        turns = np.round((q - reference) / (2 * np.pi)) * (np.asarray(robot.limit_upper) > 6)  # of all but the elbow
        turned = q - 2 * np.pi * turns
        return np.sum((turned - reference) ** 2, axis=-1)

    of_all = np.where(several.converged, merit(several.q), np.inf).min(-1)
    assert np.mean(merit(solution.q) <= of_all + 1e-6) > 0.95


def held_tips(robot: jaxik.Robot, far: float, *limits: Any) -> tuple[Any, jaxik.Solution]:
    """Targets of a tip that is held beside a posture, the last one `far` away in each direction; and what is found."""
    tip = robot.frame("tcp")
    q = robot.sample(jax.random.key(0), (256,))
    q = q[~np.asarray(robot.in_collision(q, limits[1].world))] if len(limits) > 1 else q
    target = robot.frame_pose(q[:64], tip).translation().at[-1].set(far)
    aim = FrameTask(tip, target, orientation_cost=None)
    problem = Problem(robot, {"rest": PostureTask(robot.q_home, cost=0.1)}, limits or None, {"tip": aim})
    found = search(problem, jax.random.key(1), options=SearchOptions(max_starts=48))
    return robot.frame_pose(found.q, tip).translation() - target, found


@exhaustive
def test_a_pose_that_is_a_constraint_takes_as_few_starts_as_one_that_is_a_task() -> None:
    """Beside a posture, which has no tolerance, every start used to be tried: 48 of them, where one suffices."""
    off, found = held_tips(jaxik.load_robot("double_pendulum"), 9.0)
    assert found.converged[:-1].all() and found.num_starts[:-1].mean() < 4
    np.testing.assert_allclose(off[:-1], 0, atol=1e-9)
    assert found.status[-1] == Status.INFEASIBLE and found.num_starts[-1] == 48
    assert found.iterations[-1] <= 48 * (SearchOptions().max_steps_per_start + 1) + SolveOptions().max_steps


@exhaustive
def test_a_pose_that_is_a_constraint_takes_few_starts_among_obstacles_too() -> None:
    robot = jaxik.load_robot("double_pendulum", geometry="model")
    world = jaxik.World(spheres=jaxik.Spheres([[0.5, 0, 0.5]], 0.2))
    off, found = held_tips(robot, 9.0, jaxik.ConfigurationLimit(), jaxik.CollisionLimit(world))
    assert found.converged[:-1].mean() > 0.9 and found.num_starts[:-1].mean() < 3
    np.testing.assert_allclose(off[found.converged], 0, atol=1e-9)
    assert not np.any(robot.in_collision(found.q, world)[found.converged])


@exhaustive
def test_constraints_and_half_spaces_hold_in_a_search() -> None:
    robot = jaxik.load_robot("panda")
    tip, elbow = robot.frame("tcp"), robot.frame("link4")
    q = robot.sample(jax.random.key(2), (200,))
    low = robot.frame_pose(q, elbow).translation()[:, 0] < 0.2
    target = jaxlie.SE3(robot.frame_pose(q, tip).wxyz_xyz[low][:8])
    limits = (jaxik.ConfigurationLimit(), PositionLimit(elbow, normal=jnp.array([1.0, 0, 0]), offset=0.2))
    solution = search(Problem(robot, {"tip": FrameTask(tip, target)}, limits), jax.random.key(0))
    assert solution.converged.all()
    assert robot.frame_pose(solution.q, elbow).translation()[:, 0].max() < 0.2 + 1e-9


@exhaustive
def test_every_joint_type_is_searched() -> None:
    robot = jaxik.load_robot(MIXED)
    q = robot.sample(jax.random.key(0), (8,))
    target = robot.frame_pose(q, robot.frame("tip"))
    solution = search(Problem(robot, {"tip": tip_task(robot, target)}), jax.random.key(1))
    assert solution.converged.all()
    assert robot.check_limits(solution.q, 1e-12).all()


def test_an_empty_batch_is_an_empty_solution() -> None:
    solution = search(planar(jnp.zeros((0, 3))), jax.random.key(0))
    assert solution.q.shape == (0, 2)


MISTAKES: dict[str, tuple[Any, str]] = {
    "a number for a key": (lambda: search(planar(planar_targets()), 0), "key is a key of jax.random, jax.random.key"),
    "too many keys": (
        lambda: search(planar(planar_targets()), jax.random.split(jax.random.key(0), 5)),
        "the leading batch axes do not broadcast: .*key: ",
    ),
    "starts of another robot": (
        lambda: search(planar(planar_targets()), jax.random.key(0), starts=jnp.zeros((3, 7))),
        r"starts has shape \(\*batch, nq\) with nq = 2, not \(3, 7\)",
    ),
    "no starts": (
        lambda: search(planar(planar_targets()), jax.random.key(0), starts=jnp.zeros((0, 2))),
        "k >= 1; leave it out to start from q_home",
    ),
    "options of solve": (
        lambda: search(planar(planar_targets()), jax.random.key(0), options=jaxik.SolveOptions()),  # type: ignore[arg-type]
        "options is a jaxik.SearchOptions, not SolveOptions",
    ),
    "fewer candidates than solutions": (
        lambda: SearchOptions(solutions=8, num_candidates=4),
        "8 solutions are chosen from",
    ),
    "no starts at all": (lambda: SearchOptions(max_starts=0), "max_starts is a count from 1 on, not 0"),
    "starts without a step": (
        lambda: SearchOptions(max_steps_per_start=np.asarray([3, 0])),
        "max_steps_per_start is a count from 1 on",
    ),
    "no solutions": (lambda: SearchOptions(solutions=0), "solutions is a count from 1 on, known before jit; not 0"),
    "an unknown preference": (lambda: SearchOptions(rank_by="best"), "rank_by is one of cost, reference, limits, not"),
    "a trace": (
        lambda: SearchOptions(solve_options=jaxik.SolveOptions(record_trace=True)),
        "a search records no trace",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_on_the_host(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(JaxikError, match=message):
        call()


@pytest.mark.parametrize(("stride", "moved"), [(1, True), (8, False)])
def test_the_first_starts_are_from_the_middle_of_joints_with_ends(stride: int, moved: bool) -> None:
    """Not of hinges that turn all the way round or slides without limits, nor where several solutions are wanted."""
    robot = jaxik.load_robot(
        '<mujoco><worldbody><body><joint name="short" axis="0 0 1" range="-1 3"/><geom size="0.1" mass="1"/><body>'
        '<joint name="round" axis="0 0 1" range="-6.3 6.3"/><geom size="0.1" mass="1"/><body><joint name="rail" '
        'type="slide"/><geom size="0.1" mass="1"/></body></body></body></worldbody><compiler angle="radian"/></mujoco>'
    )
    sampler = SimpleNamespace(stride=np.asarray(stride))
    found = _inward(robot.topology, cast(Any, sampler), robot.limit_lower, robot.limit_upper)
    np.testing.assert_allclose(found, [1.0 if moved else 0.0, 0, 0], rtol=1e-6)


def test_a_search_starts_four_times_from_the_middle_half_after_the_users_own_starts() -> None:
    robot = jaxik.load_robot("panda")
    problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask(robot.frame("tcp"), robot.frame_pose(robot.q_home, "tcp"))})

    def starts(problem: jaxik.Problem, key: jax.Array) -> jax.Array:
        q, number = robot.q_home, lambda value: jnp.asarray(value, jnp.int32)
        shift = offsets(key[None], dimensions(robot.topology))[0]
        sampler = StartSampler(q[None], q, shift, number(0), number(1), number(128), jnp.ones(()), number(30))
        prepared = formulation(problem)
        found = starts_of(prepared, sampler)
        return jnp.stack([start_of(prepared, found, q, number(turn)) for turn in range(9)])

    own, *drawn = np.asarray(jax.jit(starts)(problem, jax.random.key(4)))
    middle, half = (robot.limit_upper + robot.limit_lower) / 2, (robot.limit_upper - robot.limit_lower) / 2
    shares = np.abs(np.asarray(drawn) - np.asarray(middle)) / np.asarray(half)
    np.testing.assert_array_equal(own, robot.q_home)
    assert shares[:4].max() <= 0.5 + 1e-6
    assert (shares[4:].max(axis=1) > 0.5).all()


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_starts_are_spread_evenly_and_not_where_samples_of_the_same_keys_are(impl: str) -> None:
    robot, count = jaxik.load_robot("panda"), 4096
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(0, impl=impl), i))(jnp.arange(count))
    shares = np.asarray(offsets(keys, dimensions(robot.topology)), float) / 2**32
    # As `robot.sample` draws them: searches for poses sampled with the key that starts come from would begin there.
    samples = np.asarray(jax.vmap(lambda key: jax.random.uniform(key, (robot.nq,), jnp.float32))(keys), float)
    independent = np.corrcoef(np.concatenate([shares, samples], axis=1).T) - np.eye(2 * robot.nq)
    assert np.abs(independent).max() < 5 / np.sqrt(count)
    for column in shares.T:
        held = np.bincount((16 * column).astype(int), minlength=16)
        assert np.abs(held - count / 16).max() < 5 * np.sqrt(count / 16)
