"""How a distance changes: its two points of contact move with their shapes, along the normal.

That is exact, as the points are nearest or deepest: where they are on their shapes, and the normal, change the distance
to second order only. So nobody differentiates how they were found: `jax.grad` of a robot's distances compiles in a
quarter of the time.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from jaxik.collision.boxes import Box
from jaxik.collision.contact import Contact
from jaxik.collision.segments import Segment
from jaxik.numerics.custom_rules import pure_rule
from jaxik.numerics.vectors import Vector, divide, dot

Core = Vector | Segment | Box


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def contact_by_points(function: Callable[[Any, Any], Contact], a: Any, b: Any) -> Contact:
    """`function` of two cores, points, segments or boxes, with the derivative of the distance by the points of contact.

    The function's normal and points are those of the distance, and keep their own derivatives.
    """
    return function(a, b)


@contact_by_points.defjvp
@pure_rule
def _moved(
    function: Callable[[Any, Any], Contact], primals: tuple[Any, Any], tangents: tuple[Any, Any]
) -> tuple[Contact, Contact]:
    (a, b), (contact, turned) = primals, jax.jvp(function, primals, tangents)
    on_a, on_b = material_point(a, contact.point), material_point(b, contact.point_of_b)
    _, apart = jax.jvp(lambda a, b: on_b(b) - on_a(a), primals, tangents)
    return contact, turned._replace(distance=dot(contact.normal, apart))


def material_point(core: Core, point: Vector) -> Callable[[Any], Vector]:
    """Where a point of a core is once the core has moved, or changed its size."""
    if isinstance(core, Vector):
        return lambda moved: moved
    if isinstance(core, Segment):
        t = divide(dot(point - core.center, core.half), dot(core.half, core.half))
        return lambda moved: moved.at(t)
    share = core.inward(point - core.center).map(divide, core.half)
    return lambda moved: moved.center + moved.outward(share.map(lambda s, h: s * h, moved.half))
