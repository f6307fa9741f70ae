"""Words for the nearest pair of shapes of each element."""

from typing import Any, Protocol, Self

import jax
import numpy as np

from jaxik.core.status import Outcome, Status, check

# Pairs that are named of a batch, those of the most elements.
NAMED = 3


class _Looked(Protocol):
    """A result that looked at distances."""

    @property
    def clearance(self) -> Any: ...
    @property
    def nearest(self) -> Any: ...
    @property
    def pair_names(self) -> tuple[tuple[str, str], ...]: ...


def nearest_pair(result: _Looked, index: tuple[int, ...]) -> str:
    """The nearest pair of an element and how deep it is, or how far apart: "link5 - boxes/3 12 mm deep"."""
    if result.clearance is None:
        return ""
    pair, distance = int(np.asarray(result.nearest)[index]), float(np.asarray(result.clearance)[index])
    return f"{_name(result, pair)}{_depth(distance)}"


def nearest_pairs(result: _Looked, which: np.ndarray) -> str:
    """The nearest pairs of some elements (*batch,), most frequent first, each with its least distance."""
    if result.clearance is None or not which.any():
        return ""
    distance = np.asarray(result.clearance)[which]
    pairs, of, counts = np.unique(np.asarray(result.nearest)[which], return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    said = [f"{_name(result, int(pairs[i]))}{_depth(distance[of == i].min())}, in {counts[i]}" for i in order[:NAMED]]
    return f" ({'; '.join(said)}{'; ...' if len(order) > NAMED else ''})"


def _name(result: _Looked, pair: int) -> str:
    return " - ".join(result.pair_names[pair]) + " " if pair < len(result.pair_names) else ""


def _depth(distance: float) -> str:
    return f"{1e3 * abs(distance):.3g} mm {'deep' if distance < 0 else 'apart'}"


class NearestOutcome(Outcome):
    """A result that may have looked at distances, as `_Looked` has them."""

    clearance: jax.Array | None
    nearest: jax.Array | None
    pair_names: tuple[tuple[str, str], ...]

    def check(self) -> Self:
        """Return this if every element converged.

        Raises:
          JaxikError: otherwise, on the host; names the elements, the reason, of those that are COLLIDES the nearest
            pair and its depth, and the remedy.
        """
        check(self.status, notes={Status.COLLIDES: lambda index: nearest_pair(self, index)})
        return self
