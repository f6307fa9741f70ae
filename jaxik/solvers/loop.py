"""The loop that all solvers share, written for one element."""

from typing import Any, Protocol, TypeVar

import jax
from jax import lax

from jaxik.problem import Prepared

State = TypeVar("State")


class Method(Protocol[State]):
    """An iterative method: what it starts from, one step, and when it has ended.

    A step is never asked of a state that has ended; where elements run side by side, the state of one that has ended
    stays as it is.
    """

    def init(self, prepared: Prepared, q: jax.Array, options: Any) -> State: ...

    def step(self, prepared: Prepared, state: State, options: Any) -> State: ...

    def ended(self, state: State) -> jax.Array: ...


def iterate(method: Method[State], prepared: Prepared, q: jax.Array, options: Any) -> State:
    """Run `method` from the configuration `q` (nq,) until it ends."""
    return lax.while_loop(
        lambda state: ~method.ended(state),
        lambda state: method.step(prepared, state, options),
        method.init(prepared, q, options),
    )
