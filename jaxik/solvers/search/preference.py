"""What makes one solution of a redundant or many-branched robot better than another."""

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import forward
from jaxik.kinematics.manifold import difference
from jaxik.kinematics.topology import JointType
from jaxik.numerics.linalg import set_rows, static_gather
from jaxik.solvers.nonlinear.formulation import Formulation, in_whole_range
from jaxik.tasks.dependencies import reading


def unwrap_to_reference(prepared: Formulation, q: jax.Array, reference: jax.Array) -> jax.Array:
    """The configuration (nq,) with hinges moved by whole turns to be nearest to a reference, within the limits.

    Joints whose angle a task reads stay, and those of couplings: a turn is no small thing to them. Limits are those
    that yield as well: what is beyond them stays there if no whole turn leads inside.
    """
    robot, turn = prepared.robot, 2 * jnp.pi
    joints = [robot.topology.joints[j] for j in _free_to_turn(prepared)]
    if not joints:
        return q
    places, indices = [joint.q_index for joint in joints], [robot.topology.joints.index(joint) for joint in joints]
    at, wanted = static_gather(q, places), static_gather(reference, places)
    lower, upper = static_gather(robot.limit_lower, indices), static_gather(robot.limit_upper, indices)
    least, most = jnp.ceil((lower - at) / turn), jnp.floor((upper - at) / turn)
    turns = jnp.where(least <= most, jnp.clip(jnp.round((wanted - at) / turn), least, most), 0)
    # A joint without room for a whole turn stays exactly where it is.
    there = jnp.where(turns == 0, at, jnp.clip(at + turn * turns, lower, upper))
    return set_rows(q, places, there)


def _free_to_turn(prepared: Formulation) -> list[int]:
    problem, topology = prepared.problem, prepared.problem.robot.topology

    def read() -> set[int]:
        kin = forward(prepared.constants, problem.robot.q_home)
        return set().union(*(reading(task, problem.robot, kin).dofs for task in problem.tasks.values()))

    found: list[set[int]] = []
    jax.eval_shape(lambda: found.append(read()))
    coupled = {joint for coupling in topology.couplings for joint in (coupling.follower, coupling.leader)}
    own = [dof for dof in prepared.moving.own if dof not in found[0]]
    return [
        j
        for j, joint in enumerate(topology.joints)
        if joint.type is JointType.HINGE and j not in coupled and joint.v_index in own
    ]


def merit(rank_by: str, prepared: Formulation, q: jax.Array, cost: jax.Array, reference: jax.Array) -> jax.Array:
    """What is to be small (): of a solution (nq,) of some cost, by a preference of `SearchOptions`."""
    topology, robot = prepared.problem.robot.topology, in_whole_range(prepared, jnp.asarray(True)).robot
    if rank_by == "reference":
        away = difference(topology, reference, q)
        return jnp.sum(away * away)
    if rank_by == "limits":
        joints = [j for j in topology.scalar_joints if topology.joints[j].v_index in prepared.moving.own]
        at = static_gather(q, [topology.joints[j].q_index for j in joints])
        lower, upper = static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
        limited = jnp.isfinite(lower) & jnp.isfinite(upper) & (upper > lower)
        width = jnp.where(limited, upper - lower, 1)
        room = jnp.where(limited, jnp.minimum(at - lower, upper - at) / width, 0.5)
        return -jnp.min(room, initial=0.5)
    return cost
