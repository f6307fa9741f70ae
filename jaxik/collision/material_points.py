"""How a distance changes: its two points of contact move with their shapes, along the normal.

That is exact, as the points are nearest or deepest: where they are on their shapes, and the normal, change the distance
to second order only. So nobody differentiates how they were found: `jax.grad` of a robot's distances compiles in a
quarter of the time.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from jaxik.collision.boxes import Box
from jaxik.collision.contact import Contact
from jaxik.collision.convex import Convex, Hull, Primitive, at_number, farthest_number
from jaxik.collision.segments import Segment
from jaxik.numerics.custom_rules import pure_rule
from jaxik.numerics.vectors import Vector, divide, dot

Core = Vector | Segment | Box | Convex


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def contact_by_points(function: Callable[[Any, Any], Contact], a: Any, b: Any) -> Contact:
    """`function` of two cores, with the derivative of the distance by the points of contact.

    The function's normal and points are those of the distance, and keep their own derivatives.
    """
    return function(a, b)


@contact_by_points.defjvp
@pure_rule
def _moved(
    function: Callable[[Any, Any], Contact], primals: tuple[Any, Any], tangents: tuple[Any, Any]
) -> tuple[Contact, Contact]:
    (a, b), (contact, turned) = primals, jax.jvp(function, primals, tangents)
    on_a, on_b = _points(a, b, contact)
    _, apart = jax.jvp(lambda a, b: on_b(b) - on_a(a), primals, tangents)
    return contact, turned._replace(distance=dot(contact.normal, apart))


def moving_apart(a: Any, b: Any, contact: Contact) -> jax.Array:
    """A number that changes as the distance does, to first order, where the contact of two cores is differentiated."""
    here, there, contact = lax.stop_gradient((a, b, contact))
    on_a, on_b = _points(here, there, contact)
    return dot(contact.normal, on_b(b) - on_a(a))


def _points(a: Any, b: Any, contact: Contact) -> tuple[Callable[[Any], Vector], Callable[[Any], Vector]]:
    return material_point(a, contact.point, contact.normal), material_point(b, contact.point_of_b, -contact.normal)


def material_point(core: Core, point: Vector, direction: Vector) -> Callable[[Any], Vector]:
    """Where a point of a core is once the core has moved, or changed its size."""
    if isinstance(core, Vector):
        return lambda moved: moved
    if isinstance(core, Segment):
        t = divide(dot(point - core.center, core.half), dot(core.half, core.half))
        return lambda moved: moved.at(t)
    if isinstance(core, Hull):
        # Where corners of a hull are moved, with the one that is farthest: near enough for what nobody asks for.
        place, number = core.box.inward(point - core.center), farthest_number(core.corners, core.box.inward(direction))
        corner = at_number(core.corners, number)
        return lambda moved: moved.center + moved.box.outward(place + at_number(moved.corners, number) - corner)
    if isinstance(core, Primitive):
        of_box = material_point(core.box, point, direction)
        return lambda moved: of_box(moved.box)
    # Axes are of length 1, but of a segment that is a box without width.
    sizes = Vector(*(h * dot(axis, axis) for h, axis in zip(core.half.components, core.axes, strict=True)))
    share = core.inward(point - core.center).map(divide, sizes)
    return lambda moved: moved.center + moved.outward(share.map(lambda s, h: s * h, moved.half))
