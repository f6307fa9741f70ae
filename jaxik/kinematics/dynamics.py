"""The joint-space inertia of one evaluated configuration."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.link_constants import on_segments
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import WORLD
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import static_gather


def mass_matrix(robot: RobotModel, kin: Kinematics) -> jax.Array:
    """The mass matrix (nv, nv), so that 1/2 v' M v is the kinetic energy [J] at the velocity v (nv,).

    Composite rigid bodies (Featherstone 2008, chapter 6) as products over all bodies at once: what is behind each joint
    is one rigid body, and M_ij is the momentum of the body behind j, moving at unit rate of j, along the motion of i,
    for i nearer to the base. The armature of joints is on the diagonal; that of tendons is left out.

    Args:
      kin: with the whole robot announced, `subtrees` having 0, so that all joints are evaluated.

    Raises:
      JaxikError: if a joint was not evaluated.
    """
    plan, topology = kin.plan, kin.plan.topology
    if len(plan.joints) != len(topology.joints):
        raise JaxikError("the mass matrix needs all joints: list 0, the whole robot, in the task's `subtrees`")
    if not topology.joints:
        return jnp.zeros((0, 0), kin.q.dtype)
    moving = [body for body in range(len(topology.body_names)) if plan.segment_of_body(body) != WORLD]
    carriers, place = on_segments(robot, plan, moving)
    turn = static_gather(kin.rotations, carriers)
    rotation = jnp.einsum("bij,bjk->bik", turn, place.rotation)
    # Momenta count about one point amid the robot: the nearer it is, the fewer digits are lost.
    origin = jnp.mean(kin.positions, axis=0)
    offset = static_gather(kin.positions, carriers) - origin + jnp.einsum("bij,bj->bi", turn, place.position)
    center = offset + jnp.einsum("bij,bj->bi", rotation, static_gather(robot.body_center, moving))
    mass = static_gather(robot.body_mass, moving)
    steiner = jnp.sum(center * center, 1)[:, None, None] * unit_matrix(3, dtype=center.dtype)
    steiner = steiner - center[:, :, None] * center[:, None, :]
    own = jnp.einsum("bij,bjk,blk->bil", rotation, static_gather(robot.body_inertia, moving), rotation)
    inertia = own + mass[:, None, None] * steiner

    # moved[s, b]: body b moves with segment s.
    moved = np.array([[s in plan.ancestors[c] for c in carriers] for s in range(len(plan.joints))])
    member = jnp.asarray(moved, mass.dtype)
    total, moment = member @ mass, member @ (mass[:, None] * center)
    inertia = jnp.einsum("sb,bij->sij", member, inertia)

    segment = [
        s for _, s in sorted((dof, s) for s, j in enumerate(plan.joints) for dof in topology.joints[j].v_indices)
    ]
    angular, linear = kin.angular, kin.linear + lie.cross(kin.angular, origin[:, None] - kin.anchors)
    total, moment = static_gather(total, segment), static_gather(moment, segment).T
    momentum = total * linear + lie.cross(angular, moment)
    spin = jnp.einsum("vij,jv->iv", static_gather(inertia, segment), angular) + lie.cross(moment, linear)
    product = linear.T @ momentum + angular.T @ spin
    nearer = np.array([[i != j and i in plan.ancestors[j] for j in segment] for i in segment])
    same = np.array([[i == j for j in segment] for i in segment])
    upper = jnp.where(nearer, product, 0)
    return upper + upper.T + jnp.where(same, product, 0) + jnp.diag(robot.armature)
