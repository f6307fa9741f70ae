"""The way between two configurations: what is thin is not jumped over, by `step(continuous=True)` or a long motion."""

import functools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tables import exhaustive
from test_collision_limit import ARM, arm

import jaxik
from jaxik.core.errors import JaxikError

PLATE = ((0.45, 0, 0.75), (0.001, 0.3, 0.25))
STEPS, DT, COUNT, FEW, BETWEEN = 12, 0.05, 150, 60, 50
# A free base, a ball, a slide and a hinge; two branches that may touch each other.
TREE = """<mujoco model="tree"><compiler angle="radian"/><worldbody>
<body name="base"><freejoint/><geom name="base" type="box" size=".05 .04 .03"/>
 <body name="left" pos="0 .1 0"><joint name="ball" type="ball"/>
  <geom name="left" type="capsule" size=".03" fromto="0 0 .05 0 0 .3"/>
  <body name="drawer" pos="0 0 .35"><joint name="slide" type="slide" axis="1 0 0" range="-.2 .2"/>
   <geom name="drawer" size=".04"/></body></body>
 <body name="right" pos="0 -.1 0"><joint name="hinge" axis="1 0 0" range="-3 3"/>
  <geom name="right" type="box" size=".02 .02 .12" pos="0 0 .15"/>
  <body name="end" pos="0 0 .3"><joint name="wrist" axis="0 1 0" range="-3 3"/>
   <geom name="end" type="capsule" size=".03 .06" pos="0 0 .08"/></body></body>
</body></worldbody></mujoco>"""


def plate() -> jaxik.World:
    return jaxik.World(boxes=jaxik.Boxes([PLATE[0]], [PLATE[1]]))


@cache
def starts() -> tuple[jax.Array, jax.Array]:
    """Configurations away from the plate, and targets on both sides of it."""
    q = arm().sample(jax.random.key(0), 3 * COUNT)
    q = q[np.asarray(arm().clearance(q, plate())) > 0.006][:COUNT]
    return q, arm().frame_pose(arm().sample(jax.random.key(1), COUNT), "tip").translation()


@cache
def walked(continuous: bool, count: int = COUNT) -> tuple[np.ndarray, Any]:
    """Configurations (steps + 1, n, nq) of long steps without a velocity limit, and what `step` says of each."""
    q, targets = starts()
    return jax.device_get(_walk(continuous, q[:count], targets[:count]))


@functools.partial(jax.jit, static_argnums=0)
def _walk(continuous: bool, q: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
    limits = jaxik.ConfigurationLimit(), jaxik.CollisionLimit(plate(), pairs=[("fore", "world"), ("hand", "world")])
    tip = jaxik.FrameTask(arm().frame("tip"), targets, orientation_cost=None)
    given = jaxik.Problem(arm(), {"tip": tip}, limits=limits)

    def one(q: jax.Array, _: None) -> Any:
        result = jaxik.step(given, q, DT, damping=1e-3, continuous=continuous)
        return result.q, (result.q, (result.status, result.fraction, result.clearance))

    _, (path, said) = jax.lax.scan(one, q, length=STEPS)
    return jnp.concatenate([q[None], path]), said


@cache
def on_the_way(continuous: bool, count: int = COUNT) -> np.ndarray:
    """Depth (steps, n) of fore and hand in the plate, the most at 50 points of each step, by MuJoCo."""
    spec = mujoco.MjSpec.from_string(ARM)
    spec.worldbody.add_geom(name="plate", type=mujoco.mjtGeom.mjGEOM_BOX, size=PLATE[1], pos=PLATE[0])
    model = spec.compile()
    data, (path, _) = mujoco.MjData(model), walked(continuous, count)
    plate_geom, upper = model.geom("plate").id, model.geom("upper").id
    depth = np.zeros((STEPS, count))
    for at in np.ndindex(depth.shape):
        first, last = path[at], path[at[0] + 1, at[1]]
        if np.abs(last - first).max() > 1e-6:
            for t in np.linspace(0, 1, BETWEEN + 2):
                data.qpos[:] = first + t * (last - first)
                mujoco.mj_kinematics(model, data)
                mujoco.mj_comPos(model, data)
                mujoco.mj_collision(model, data)
                found = [c.dist for c in data.contact if plate_geom in c.geom and upper not in c.geom]
                depth[at] = max(depth[at], *(-d for d in found), 0)
    return depth


@exhaustive
def test_no_step_jumps_over_a_thin_plate_where_its_way_is_looked_at() -> None:
    assert on_the_way(True, FEW).max() < 1e-6
    assert (walked(True, FEW)[1][0] == jaxik.Status.CONVERGED).all()


@exhaustive
def test_steps_jump_over_a_thin_plate_where_only_their_ends_are_looked_at() -> None:
    assert (on_the_way(False).max(0) > 1e-3).sum() > 5


@exhaustive
def test_steps_far_from_obstacles_are_what_they_were_and_few_targets_are_lost() -> None:
    path, (_, fraction, clearance) = walked(True)
    before, (_, all_of_it, _) = walked(False)
    same = (fraction[0] == 1) & (all_of_it[0] == 1)
    assert same.sum() > 0.8 * COUNT
    np.testing.assert_allclose(path[1][same], before[1][same], atol=1e-12)
    ends = [arm().frame_pose(x[-1], "tip").translation() for x in (path, before)]
    arrived = [np.mean(np.linalg.norm(x - starts()[1], axis=-1) < 0.01) for x in ends]
    assert arrived[0] > arrived[1] - 0.1 and 0 <= fraction.min() < 1
    ours = [("fore", "world"), ("hand", "world")]
    np.testing.assert_allclose(clearance[-1], arm().clearance(path[-1], plate(), ours), atol=1e-12)


@cache
def tree() -> tuple[jaxik.Robot, jaxik.World]:
    world = jaxik.World(
        boxes=jaxik.Boxes([[0.3, 0, 0], [0, 0, 0.55]], [[0.002, 0.4, 0.4], [0.3, 0.3, 0.003]]),
        spheres=jaxik.Spheres([[-0.3, 0.2, 0.2]], 0.1),
        planes=jaxik.Planes([[0.0, 0, 1]], -0.5),
    )
    return jaxik.load_robot(TREE, geometry="model"), world


def test_a_way_that_is_called_free_is_free_everywhere_and_most_that_are_free_are_called_so() -> None:
    robot, world = tree()
    start, end = (robot.sample(jax.random.key(i), (400,), unlimited_range=0.25) for i in (0, 1))
    # Short and long ways, of one joint and of all.
    share = jnp.asarray(np.resize([0.02, 0.1, 0.3, 1.0], 400))[:, None]
    way = share * robot.difference(start, end) * jnp.where(jnp.arange(400)[:, None] % 3 > 0, 1, jnp.eye(robot.nv)[3])
    colliding = np.asarray(robot.in_collision(start, world, to=robot.integrate(start, way)))
    t = jnp.linspace(0, 1, 300)[:, None, None]
    clear = np.asarray(robot.clearance(robot.integrate(start, t * way), world))
    least, ends = clear.min(0), np.minimum(clear[0], clear[-1])
    assert colliding[least < -1e-6].all() and not colliding[least > 0.003].any()
    assert (least[ends > 0] < 0).sum() > 10 and (~colliding).sum() > 50
    apart = np.asarray(robot.in_collision(start, world, to=robot.integrate(start, way), margin=0.02))
    assert apart[least < 0.02 - 1e-6].all() and not apart[least > 0.023].any()


@exhaustive
def test_an_arc_that_bulges_over_a_plane_or_a_point_between_its_ends_is_found() -> None:
    """A ball of 1 cm at 0.5 m turns by 0.6 rad: in the middle it is 22 mm farther out than at both ends."""
    robot = jaxik.load_robot(
        """<mujoco><compiler angle="radian"/><worldbody><body><joint axis="0 0 1" range="-1 1"/>
        <geom size=".01" pos=".5 0 0"/></body></worldbody></mujoco>""",
        geometry="model",
    )
    ends = jnp.asarray([[-0.3], [0.3]])
    bulge = 0.5 * (1 - np.cos(0.3))

    @jax.jit
    def crosses(left: jax.Array, place: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Planes that both ends are a distance away from, and points at a radius."""
        solid = jaxik.Planes([[-1.0, 0, 0]], -(0.5 * jnp.cos(0.3) + 0.01 + left)[:, None])
        points = jaxik.Points(place[:, None, None] * jnp.asarray([1.0, 0, 0]), 0.01)
        worlds = jaxik.World(planes=solid), jaxik.World(points=points)
        return tuple(robot.in_collision(ends[:1], world, to=ends[1:]) for world in worlds)  # type: ignore[return-value]

    over, through = crosses(bulge * np.array([0.1, 0.5, 0.9, 1.1, 3.0]), np.array([0.45, 0.49, 0.5, 0.51, 0.55]))
    assert over.tolist() == [True, True, True, False, False]
    assert through.tolist() == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jaxik.TrackOptions(continuous=1), "continuous is True or False"),  # type: ignore[arg-type]
        (lambda: arm().in_collision(arm().q_home, to=np.zeros(2)), "nq = 3"),
        (lambda: arm().in_collision(np.zeros((2, 3)), to=np.zeros((4, 3))), "batch"),
    ],
)
def test_mistakes_are_told_in_a_line(make: Any, words: str) -> None:
    with pytest.raises(JaxikError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


@exhaustive
def test_a_tracked_path_crosses_nothing_either() -> None:
    q, targets = starts()
    limits = jaxik.ConfigurationLimit(), jaxik.CollisionLimit(plate(), pairs=[("hand", "world")])
    tip = jaxik.FrameTask(arm().frame("tip"), targets, orientation_cost=None)
    problem, options = jaxik.Problem(arm(), {"tip": tip}, limits=limits), jaxik.TrackOptions(1e-3, continuous=True)
    path = np.concatenate([q[None], jaxik.track(problem, q, DT, {}, num_steps=STEPS, options=options).q])
    ours = [("hand", "world")]
    assert not arm().in_collision(path[:-1], plate(), ours, -1e-5, to=path[1:]).any()
