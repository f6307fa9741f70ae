"""Functions of a robot and a configuration, compiled once and mapped over batch axes."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.batching.any_size import at_any_size
from jaxik.batching.broadcast import fold, over_batch
from jaxik.batching.linear_map import of_each
from jaxik.batching.method import lanes_that_fit
from jaxik.collision.pairs import PairTable
from jaxik.collision.sweep import Look, look, march
from jaxik.collision.world import World
from jaxik.core.pytree import core_ranks
from jaxik.kinematics import dynamics, home, manifold, sampling
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.kinematics.geometry import Geometry
from jaxik.kinematics.link_constants import segments
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.reduced import follow
from jaxik.kinematics.schedule import Plan
from jaxik.kinematics.topology import Topology
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.lie import Transform

PairFunction = Callable[[Geometry, World | None, PairTable, Kinematics], Any]
# Numbers of each pair that are in the cache at a time.
NUMBERS = 4
# Configurations on a way that are looked at, and the least part of it between two of them.
LOOKS, SHORTEST = 128, 2.0**-10


@partial(jax.jit, static_argnums=1)
def one(robot: RobotModel, evaluation: Plan, q: jax.Array) -> Kinematics:
    with jax.default_matmul_precision("highest"):
        return _evaluate(robot.astype(q.dtype), evaluation, q)


def on_robots(function: Callable[..., Any], evaluation: Plan | None, robot: RobotModel, q: jax.Array) -> Any:
    ranks = {"robot": core_ranks(robot), "q": 1}
    return at_any_size(partial(_compiled, function, evaluation), {"robot": robot, "q": q}, ranks, takes_present=False)


@partial(jax.jit, static_argnums=(0, 1))
def _compiled(function: Callable[..., Any], evaluation: Plan | None, robot: RobotModel, q: jax.Array) -> Any:
    robot = robot.astype(q.dtype)
    return over_batch(
        lambda robot, q: function(robot, evaluation, q), {"robot": robot, "q": q}, {"robot": core_ranks(robot), "q": 1}
    )


def sample(robot: RobotModel, key: jax.Array, unlimited_range: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    place = jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)
    given = {"robot": robot, "place": place, "key": key, "unlimited_range": unlimited_range}
    ranks = {"robot": core_ranks(robot), "place": 0, "key": key.ndim, "unlimited_range": 0}
    return at_any_size(_compiled_sample, given, ranks, takes_present=False)


@jax.jit
def _compiled_sample(robot: RobotModel, place: jax.Array, key: jax.Array, unlimited_range: jax.Array) -> jax.Array:
    """Samples by their places in a batch: the first keys of a split do not depend on how many there are."""
    robot = robot.astype(robot.q_home.dtype)
    if not place.ndim:
        return sampling.sample(robot, key, unlimited_range)
    keys = jax.random.split(key, place.size)[place.reshape(-1)].reshape(*place.shape, *key.shape)
    given = robot, keys, unlimited_range
    batch, structure = fold(given, (core_ranks(robot), key.ndim, 0)), jax.tree.structure(given)
    axes = jax.tree.unflatten(structure, [0 if mapped else None for mapped in batch.mapped])
    q = jax.vmap(sampling.sample, in_axes=axes)(*jax.tree.unflatten(structure, batch.leaves))
    return q.reshape(*batch.shape, robot.nq)


@jax.jit
def first_start(robot: RobotModel) -> jax.Array:
    """Where a search begins (*batch, nq), as `jaxik.kinematics.home` has it."""
    robot = robot.astype(robot.q_home.dtype)
    return over_batch(lambda robot: home.first_start(robot), {"robot": robot}, {"robot": core_ranks(robot)})


@partial(jax.jit, static_argnums=0)
def integrate(topology: Topology, q: jax.Array, dq: jax.Array) -> jax.Array:
    return over_batch(lambda q, dq: manifold.integrate(topology, q, dq), {"q": q, "dq": dq}, {"q": 1, "dq": 1})


@partial(jax.jit, static_argnums=0)
def difference(topology: Topology, q_from: jax.Array, q_to: jax.Array) -> jax.Array:
    return over_batch(
        lambda q_from, q_to: manifold.difference(topology, q_from, q_to),
        {"q_from": q_from, "q_to": q_to},
        {"q_from": 1, "q_to": 1},
    )


def clamp(robot: RobotModel, _: None, q: jax.Array) -> jax.Array:
    return manifold.clamp(robot, q)


@cache
def following(given: tuple[int, ...]) -> Callable[..., jax.Array]:
    """Sets what joints that are given drive."""

    def followed(robot: RobotModel, _: None, q: jax.Array) -> jax.Array:
        return follow(robot, sampling.coupled_coordinates(robot.topology), q, given)

    return followed


def limit_excess(robot: RobotModel, _: None, q: jax.Array) -> jax.Array:
    return manifold.limit_excess(robot, q)


def _evaluate(robot: RobotModel, evaluation: Plan, q: jax.Array) -> Kinematics:
    return forward(segments(robot, evaluation), q)


def of_pairs(
    function: PairFunction, table: PairTable, evaluation: Plan, robot: RobotModel, world: World | None, q: jax.Array
) -> Any:
    """A function of the pairs of a table, such as `jaxik.collision.distances.distances`."""
    program = partial(_compiled_of_pairs, function, table, evaluation)
    ranks = {"robot": core_ranks(robot), "world": core_ranks(world), "q": 1}
    return at_any_size(program, {"robot": robot, "world": world, "q": q}, ranks)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _compiled_of_pairs(
    function: PairFunction,
    table: PairTable,
    evaluation: Plan,
    robot: RobotModel,
    world: World | None,
    q: jax.Array,
    present: jax.Array | None = None,
) -> Any:
    def of_one(robot: RobotModel, world: World | None, q: jax.Array) -> Any:
        assert robot.geometry is not None
        return function(robot.geometry, world, table, _evaluate(robot, evaluation, q))

    given = robot.astype(q.dtype), world, q
    ranks, width = (core_ranks(robot), core_ranks(world), 1), lanes_that_fit(NUMBERS * len(table.names))
    return of_each(of_one, given, ranks, width, present)


def way_is_free(
    table: PairTable, evaluation: Plan, robot: RobotModel, world: World | None, ends: dict[str, jax.Array]
) -> jax.Array:
    """Whether all pairs of a table stay farther apart than a margin on the way between two configurations (*batch,).

    Args:
      ends: "q" and "to" (*batch, nq), and "margin" (*batch,).
    """
    program = partial(_compiled_way_is_free, table, evaluation)
    ranks = {"robot": core_ranks(robot), "world": core_ranks(world), "ends": {"q": 1, "to": 1, "margin": 0}}
    return at_any_size(program, {"robot": robot, "world": world, "ends": ends}, ranks)


@partial(jax.jit, static_argnums=(0, 1))
def _compiled_way_is_free(
    table: PairTable,
    evaluation: Plan,
    robot: RobotModel,
    world: World | None,
    ends: dict[str, jax.Array],
    present: jax.Array | None = None,
) -> jax.Array:
    dtype = ends["q"].dtype

    def of_one(robot: RobotModel, world: World | None, q: jax.Array, to: jax.Array, margin: jax.Array) -> jax.Array:
        geometry, constants = robot.geometry, segments(robot, evaluation)
        assert geometry is not None
        whole = manifold.difference(robot.topology, q, to)

        def at(share: jax.Array) -> Kinematics:
            return forward(constants, manifold.integrate(robot.topology, q, share * whole))

        def look_at(share: jax.Array, ahead: jax.Array, before: Look) -> tuple[Look, jax.Array, jax.Array]:
            found, free = look(geometry, world, table, at(share), ahead * whole, before, margin)
            return found, jnp.all(found.distance >= margin), jnp.all(free)

        shapes = jax.eval_shape(lambda: look(geometry, world, table, at(jnp.zeros((), dtype)))[0])
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return march(look_at, nothing, dtype, LOOKS, SHORTEST).share == 1

    given = robot.astype(dtype), world, ends["q"], ends["to"].astype(dtype), ends["margin"].astype(dtype)
    ranks = core_ranks(robot), core_ranks(world), 1, 1, 0
    return of_each(of_one, given, ranks, lanes_that_fit(NUMBERS * len(table.names)), present)


def poses(robot: RobotModel, evaluation: Plan, q: jax.Array) -> jax.Array:
    kin = _evaluate(robot, evaluation, q)
    return jax.vmap(lambda r, p: Transform(r, p).to_se3().wxyz_xyz)(kin.frame_rotations, kin.frame_positions)


class FrameData(NamedTuple):
    """A frame as numbers: the body that carries it (), and its row () in the table of `_offset`."""

    body: np.int32
    row: np.int32


def on_any_frame(
    function: Callable[..., Any], evaluation: Plan, robot: RobotModel, q: jax.Array, frame: FrameData
) -> Any:
    """A function of one frame, of which one program serves all frames of a robot; `evaluation` has all bodies."""
    program = partial(_compiled_for_any_frame, function, evaluation)
    ranks = {"robot": core_ranks(robot), "q": 1, "frame": FrameData(0, 0)}  # type: ignore[arg-type]
    return at_any_size(program, {"robot": robot, "q": q, "frame": frame}, ranks, takes_present=False)


@partial(jax.jit, static_argnums=(0, 1))
def _compiled_for_any_frame(
    function: Callable[..., Any], evaluation: Plan, robot: RobotModel, q: jax.Array, frame: FrameData
) -> Any:
    robot = robot.astype(q.dtype)

    def of_one(robot: RobotModel, q: jax.Array, body: jax.Array, row: jax.Array) -> Any:
        return function(*_evaluate(robot, evaluation, q).attached(body, _offset(robot, row)))

    given = {"robot": robot, "q": q, **frame._asdict()}
    return over_batch(of_one, given, {"robot": core_ranks(robot), "q": 1, "body": 0, "row": 0})


def _offset(robot: RobotModel, row: jax.Array) -> Transform:
    """Where a frame is on its body: sites, then geoms, then the identity, which is a body's own frame."""
    dtype = robot.body_position.dtype
    quaternion = jnp.concatenate([robot.site_quaternion, robot.geom_quaternion, unit_matrix(1, 4, dtype=dtype)])[row]
    position = jnp.concatenate([robot.site_position, robot.geom_position, jnp.zeros((1, 3), dtype)])[row]
    return Transform(lie.quaternion_to_matrix(quaternion), position)


@cache
def of_frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a frame's pose and Jacobian as one of robot, plan of that frame, and configuration."""

    def evaluated(robot: RobotModel, evaluation: Plan, q: jax.Array) -> Any:
        kin, frame = _evaluate(robot, evaluation, q), evaluation.frames[0]
        return function(kin.transform(frame), *kin.jacobian_world_aligned(frame))

    return evaluated


def one_pose(pose: Transform, linear: jax.Array, angular: jax.Array) -> jax.Array:
    return pose.to_se3().wxyz_xyz


def _body_jacobian(pose: Transform, linear: jax.Array, angular: jax.Array) -> jax.Array:
    return jnp.concatenate([pose.rotation.T @ linear, pose.rotation.T @ angular])


def _world_aligned_jacobian(pose: Transform, linear: jax.Array, angular: jax.Array) -> jax.Array:
    return jnp.concatenate([linear, angular])


def _world_jacobian(pose: Transform, linear: jax.Array, angular: jax.Array) -> jax.Array:
    origin = jnp.broadcast_to(pose.position[:, None], linear.shape)
    return jnp.concatenate([linear + lie.cross(origin, angular), angular])


def center_of_mass(robot: RobotModel, evaluation: Plan, q: jax.Array) -> jax.Array:
    return _evaluate(robot, evaluation, q).center_of_mass(evaluation.subtrees[0])


def center_of_mass_jacobian(robot: RobotModel, evaluation: Plan, q: jax.Array) -> jax.Array:
    return _evaluate(robot, evaluation, q).center_of_mass_jacobian(evaluation.subtrees[0])


def mass_matrix(robot: RobotModel, evaluation: Plan, q: jax.Array) -> jax.Array:
    return dynamics.mass_matrix(robot, _evaluate(robot, evaluation, q))


REFERENCES = {"body": _body_jacobian, "world": _world_jacobian, "world_aligned": _world_aligned_jacobian}
