"""Hinges that stand whole turns away from where they might."""

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import forward
from jaxik.kinematics.topology import JointType
from jaxik.numerics.linalg import set_rows, static_gather
from jaxik.solvers.nonlinear.formulation import Formulation
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
