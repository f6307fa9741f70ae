"""Problems: tasks that a user writes as one residual, what is refused, and what `solve` cannot hold."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
from own_tasks import Apart, Center, Height, Joint
from second_order import level_hessian
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import ConfigurationLimit, FrameTask, JaxikError, JaxikWarning, Problem, SolveOptions
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import integrate
from jaxik.problem.problem import effective_joint_limits
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import evaluate, formulation, rows
from jaxik.solvers.nonlinear.hard_constraint import with_hard_constraints
from jaxik.tasks.base import Task, default_jacobian

COUNT = 3


@cache
def mixed() -> Robot:
    return jaxik.load_robot(own_tasks.MIXED)


def own(robot: Robot) -> dict[str, Task]:
    topology = robot.topology
    tip, elsewhere = robot.frame("tip"), robot.frame("elsewhere")
    return {
        "apart": Apart((tip, elsewhere), 0.3, cost=0.7),
        "center": Center(topology.body_index("rail"), jnp.array([0.1, 0.2, 0.3]), cost=2.0),
        "everything": Center(0, jnp.zeros(3)),
        "height": Height(tip, 0.4),
        "joint": Joint(robot.q_indices("slide")[0], 0.1),
        "free height": Joint(robot.q_indices("free")[2], 0.1),
    }


# A task of several frames, of a centre of mass, of a height and of a coordinate; the others differ in which.
FEW = ("apart", "center", "free height", "height")
KINDS = pytest.mark.parametrize("kinds", mostly_exhaustive([FEW, (*FEW, "everything", "joint")], [FEW]), ids=len)


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, None, 0))
def derivatives(kinds: tuple[str, ...], robot: Robot, q: jax.Array) -> dict[str, Any]:
    tasks = {kind: own(robot)[kind] for kind in kinds}
    alone = {name: formulation(Problem(robot, {name: task})) for name, task in tasks.items()}
    shared = formulation(Problem(robot, tasks))

    def residuals(dq: jax.Array) -> dict[str, Any]:
        kin = evaluate(shared, integrate(robot.topology, q, dq))
        return {name: task.residual(robot, kin) for name, task in tasks.items()}

    def costs(dq: jax.Array) -> jax.Array:
        parts = [
            tasks[n].cost ** 2 * sum(0.5 * jnp.sum(x * x) for x in jax.tree.leaves(r)) for n, r in residuals(dq).items()
        ]
        return jnp.stack(parts)

    zero = jnp.zeros(robot.nv)
    return {
        "jacobian": {n: default_jacobian(task, robot, evaluate(shared, q)) for n, task in tasks.items()},
        "true jacobian": jax.jacfwd(residuals)(zero),
        "hessian": jnp.stack([level_hessian(p, q) for p in alone.values()]),
        "true hessian": jax.jacfwd(jax.jacfwd(costs))(zero),
        "objective": 0.5 * jnp.sum(rows(shared, evaluate(shared, q), shared.levels[0]).residual ** 2),
        "costs": costs(zero),
    }


@cache
def found(kinds: tuple[str, ...]) -> dict[str, Any]:
    return jax.device_get(derivatives(kinds, mixed(), mixed().sample(jax.random.key(0), (COUNT,))))


@KINDS
def test_a_task_is_one_residual_and_gets_its_jacobian(kinds: tuple[str, ...]) -> None:
    for name, jacobian in found(kinds)["jacobian"].items():
        for ours, true in zip(*map(jax.tree.leaves, (jacobian, found(kinds)["true jacobian"][name])), strict=True):
            np.testing.assert_allclose(ours, true, atol=1e-12, err_msg=name)
            assert np.abs(true).max() > 0.01


@KINDS
def test_a_task_is_one_residual_and_gets_its_hessian(kinds: tuple[str, ...]) -> None:
    for k, name in enumerate(kinds):
        true = found(kinds)["true hessian"][:, k]
        np.testing.assert_allclose(found(kinds)["hessian"][:, k], true, atol=1e-9 * np.abs(true).max(), err_msg=name)


def test_default_jacobians_agree_with_central_differences() -> None:
    robot, step = mixed(), 1e-6
    q = robot.sample(jax.random.key(0), (COUNT,))
    tip, root = robot.frame("tip"), "rail"

    def seen(q: jax.Array) -> np.ndarray:
        return np.concatenate([robot.frame_pose(q, tip).translation()[..., 2:], robot.center_of_mass(q, root)], -1)

    moves = step * np.eye(robot.nv)[:, None]
    differences = np.moveaxis(seen(robot.integrate(q, moves)) - seen(robot.integrate(q, -moves)), 0, -1) / (2 * step)
    jacobian = found(FEW)["jacobian"]
    np.testing.assert_allclose(jacobian["height"], differences[:, 0], atol=1e-6)
    np.testing.assert_allclose(jacobian["center"], differences[:, 1:], atol=1e-6)


def test_rows_are_weighted_with_the_costs() -> None:
    np.testing.assert_allclose(found(FEW)["objective"], found(FEW)["costs"].sum(1), rtol=1e-12)


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float64, np.float32], [np.float64]))
def test_own_tasks_are_solved(dtype: Any) -> None:
    robot = mixed()
    tip, root = robot.frame("tip"), robot.topology.body_index("rail")
    goal = robot.center_of_mass(robot.q_home, "rail") + jnp.array([0.05, -0.1, 0.1])
    turn = robot.q_indices("endless")[0]
    tasks = {"height": Height(tip, 0.75), "center": Center(root, goal), "turn": Joint(turn, 0.7, tolerance=1e-5)}
    q0 = robot.sample(jax.random.key(3)).astype(dtype)
    solution = jaxik.solve(Problem(robot, tasks), q0)
    assert solution.q.dtype == dtype
    assert solution.status == jaxik.Status.CONVERGED, solution
    assert solution.stationarity < (1e-8 if dtype == np.float64 else 1e-3)
    accuracy = 1e-6 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(robot.frame_pose(solution.q, tip).translation()[2], 0.75, atol=accuracy)
    np.testing.assert_allclose(robot.center_of_mass(solution.q, "rail"), goal, atol=accuracy)
    np.testing.assert_allclose(solution.q[turn], 0.7, atol=accuracy)
    assert {name: x.shape for name, x in solution.residuals.items()} == {"height": (), "center": (3,), "turn": ()}


@jaxik.pytree
class Unannounced(jaxik.Task):
    frame: Any = jaxik.static()

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return kin.transform(self.frame).position


@jaxik.pytree
class Differential(jaxik.Task):
    frames: Any = jaxik.static()

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return kin.jacobian(self.frames[0])[0]


@jaxik.pytree
class Empty(jaxik.Task):
    pass


def test_what_a_residual_may_not_do_is_said() -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    tip = robot.frame("tip")
    for task, message in (
        (Unannounced(tip), r"tip.* was not announced: list it in the task's `frames`"),
        (Differential((tip,)), r"a residual that looks at kin\.jacobian has to define its own jacobian\(robot, kin\)"),
    ):
        with pytest.raises(JaxikError, match=message):
            jaxik.solve(Problem(robot, {"own": task}))
    with pytest.raises(TypeError, match=r"Empty has to define residual\(robot, kin\)"):
        jaxik.solve(Problem(robot, {"own": Empty()}))


def planar_problem(**changes: Any) -> Problem:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    given: dict[str, Any] = {"robot": robot, "tasks": {"tip": FrameTask(robot.frame("tip"), jaxlie.SE3.identity())}}
    return Problem(**(given | changes))


FOREIGN = FrameTask(jaxik.Frame("site", 7, "wrist"), jaxlie.SE3.identity())
TASK = FrameTask(jaxik.Frame("site", 0, "tip"), jaxlie.SE3.identity())
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a name as the robot", {"robot": "panda"}, r"robot is a Robot, from jaxik\.load_robot\(\.\.\.\); not str"),
    ("no tasks", {"tasks": {}}, "a problem needs at least one task"),
    ("a list of tasks", {"tasks": [TASK]}, "tasks is a dict from name to task, not list"),
    ("a task without a name", {"tasks": {0: TASK}}, "names of tasks are strings, not 0"),
    ("what is no task", {"tasks": {"tip": np.zeros(3)}}, r"tasks\['tip'\] is a Task such as FrameTask, not ndarray"),
    ("a frame of another robot", {"tasks": {"tip": FOREIGN}}, "task 'tip': site index 7 is out of range"),
    (
        "a limit without a tuple",
        {"limits": ConfigurationLimit()},
        r"limits is a tuple such as \(ConfigurationLimit\(\),\), not",
    ),
    (
        "what is no limit",
        {"limits": (0.1,)},
        r"limits is a tuple of limits such as ConfigurationLimit\(\), not of 0\.1",
    ),
    ("a mask of the wrong length", {"dof_mask": [True]}, r"dof_mask has shape \(\*batch, nv\) with nv = 2, not \(1,\)"),
    ("constraints as a list", {"constraints": [TASK]}, "constraints is a dict from name to task, not list"),
]


@pytest.mark.parametrize(("changes", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_no_problem_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JaxikError, match=message):
        planar_problem(**changes)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ConfigurationLimit(gain=0.0), r"gain is in \(0, 1\], not 0\.0"),
        (lambda: ConfigurationLimit(gain=np.array([0.5, 2.0])), r"gain is in \(0, 1\], not"),
        (
            lambda: ConfigurationLimit(margin=-0.1),
            "margin is a finite distance to keep from the limits, not negative: -0.1",
        ),
        (lambda: ConfigurationLimit(margin=np.array([0.1, -1])), "margin is a finite distance to keep"),
        (lambda: jaxik.solve("panda"), r"problem is a jaxik\.Problem, not str"),
        (lambda: jaxik.solve(planar_problem(), np.zeros(3)), r"q0 has shape \(\*batch, nq\) with nq = 2, not \(3,\)"),
        (lambda: jaxik.solve(planar_problem(), 0.0), r"q0 has shape .* not \(\)"),
        (lambda: jaxik.solve(planar_problem(), "home"), r"q0 is an array \(\*batch, nq\), not 'home'"),
        (
            lambda: jaxik.solve(planar_problem(), options={"max_steps": 3}),
            r"options is a jaxik\.SolveOptions, not dict",
        ),
        (
            lambda: jaxik.solve(
                planar_problem(tasks={"tip": FrameTask(TASK.frame, np.zeros((4, 3)), orientation_cost=None)}),
                np.zeros((5, 2)),
                options=SolveOptions(max_steps=np.arange(6)),
            ),
            r"do not broadcast: .*options\.max_steps: \(6,\) of which batch \(6,\), .*problem\.tasks\.tip\.target.*: "
            r"\(4, 7\) of which batch \(4,\), .*q0: \(5, 2\) of which batch \(5,\)\. Give",
        ),
    ],
)
def test_what_cannot_be_solved_is_said(build: Any, message: str) -> None:
    with pytest.raises(JaxikError, match=message):
        build()


CLOSED = own_tasks.PLANAR.replace(
    "</mujoco>", '<equality><connect name="hinged" body1="lower" anchor="0.7 0 0"/></equality></mujoco>'
)


def closed(**constraints: Any) -> Problem:
    robot = jaxik.load_robot(CLOSED)
    return Problem(robot, {"tip": FrameTask(robot.frame("tip"), [1.2, 0.5, 0], orientation_cost=None)}, **constraints)


def test_the_models_equality_constraints_are_asked_for_unless_they_are_declined() -> None:
    asked, declined = (jax.eval_shape(jaxik.solve, given) for given in (closed(), closed(constraints={})))
    assert set(asked.residuals) == {"tip", "model"} and set(declined.residuals) == {"tip"}


@exhaustive
def test_the_models_equality_constraints_hold_unless_they_are_declined() -> None:
    held = jaxik.solve(closed())
    assert float(jnp.abs(held.residuals["model"]).max()) <= 1e-9 and held.status == jaxik.Status.STALLED
    declined = jaxik.solve(closed(constraints={}))
    assert declined.converged and set(declined.residuals) == {"tip"}


def test_constraints_and_limits_keep_names_of_their_own() -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    plane = jaxik.PositionLimit(robot.frame("tip"), [1.0, 0, 0], 2.0)
    tasks = dict.fromkeys(("a", "constraints.a", "0"), TASK)
    constraints = dict.fromkeys(("a", "constraints.a", "limits.0", "b"), TASK)
    held = with_hard_constraints(Problem(robot, tasks, (plane,), constraints), 1e-9)
    assert len(held.tasks) == len(tasks) + len(constraints) + 1
    assert all(held.tasks[name] is task for name, task in tasks.items())
    assert not any("/" in name for name in held.tasks)  # which separates parts in a file


def test_the_tightest_of_several_margins_counts() -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    both = (ConfigurationLimit(margin=0.2), ConfigurationLimit(margin=0.1))
    kept = effective_joint_limits(Problem(robot, {"tip": TASK}, both))
    np.testing.assert_allclose(kept.limit_upper, robot.limit_upper - 0.2)
    np.testing.assert_allclose(kept.limit_lower, robot.limit_lower + 0.2)


def test_limits_that_only_a_step_can_keep_are_said() -> None:
    @jaxik.pytree
    class Sum(jaxik.Limit):
        def inequalities(self, robot: Any, kin: Any, motion: Any) -> Any:
            return jnp.ones((1, robot.nv)), jnp.ones(1)

    with pytest.warns(JaxikWarning, match="does not hold Sum, which defines neither tightened nor inequality_tasks"):
        jax.eval_shape(lambda: jaxik.solve(planar_problem(limits=(ConfigurationLimit(), Sum()))))
    fast = planar_problem(limits=(ConfigurationLimit(), jaxik.VelocityLimit(1.0)))
    jax.eval_shape(lambda: jaxik.solve(fast))  # warnings are errors here


def test_negative_priorities_belong_to_nobody() -> None:
    class Early(Height):
        priority = -1

    robot = mixed()
    with pytest.raises(JaxikError, match="priority is 0, the highest, or more, not -1"):
        Problem(robot, {"early": jaxik.pytree(Early)(robot.frame("tip"), 0.1)})


def test_evaluating_what_no_task_announced_is_an_error() -> None:
    robot = mixed()

    def elsewhere(q: jax.Array) -> jaxlie.SE3:
        prepared = formulation(Problem(robot, {"height": Height(robot.frame("tip"), 0.1)}))
        return evaluate(prepared, q).pose(robot.frame("elsewhere"))

    with pytest.raises(JaxikError, match="was not announced"):
        jax.eval_shape(elsewhere, robot.q_home)
