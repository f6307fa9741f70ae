"""Options of `track`, online and of a whole path."""

import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.qp_solver import QPOptions
from jaxik.solvers.differential.step import DAMPING


@pytree
class TrackOptions:
    """Options of `track`, traced by JAX but for `continuous`, so changing them never recompiles.

    Args:
      damping: (*batch,), on every degree of freedom, as of `step`.
      feed_forward: (*batch,), in [0, 1]: how much of a target's own motion is followed at once. With 1, a gain below 1
        says how fast errors shrink, and a target that moves is followed without lag; with 0 the gain applies to the
        target's motion as well, which lags, and smooths targets that jump. With a gain of 1 it makes no difference.
      qp_options: `QPOptions` of the quadratic program of each step.
      growth_limit: (*batch,), above zero: derivatives are shortened where a perturbation of the state, that is followed
        along the motion and to which every step adds 1, has grown beyond this [rad, m]; the motion stays as it is,
        exactly. From there on `Track.derivative_status` is APPROXIMATE. Of 10,240 UR5es with random lengths, on lines
        between random poses that pass singularities and limits, for 100 steps in float32, all gradients are finite:
        with 1e3 99 % of them are below 5,200 and all below 3e8, and 64 % are shortened; with 1e6 99 % are below 4e6,
        all below 3e10, and 40 % are shortened. Without it 3e34 was reached. A gradient takes 1.6 times as long. None:
        no limit. Of `track` online and of `track_step`.
      continuous: as of `step`: whether a `CollisionLimit` holds between steps as well; static.

    Raises:
      JaxikError: for a wrong type or a number out of range.
    """

    damping: Any = leaf(0, default=DAMPING)
    feed_forward: Any = leaf(0, default=1.0)
    qp_options: QPOptions | None = leaf(default=None)
    continuous: bool = static(default=False)
    growth_limit: Any = leaf(0, default=None)

    def __post_init__(self) -> None:
        limit = self.growth_limit
        share = validation.number("feed_forward", self.feed_forward)
        if not isinstance(share, Tracer) and (np.asarray(share) > 1).any():
            raise JaxikError(f"feed_forward is in [0, 1], not {np.asarray(share)!r}")
        if self.qp_options is not None and not isinstance(self.qp_options, QPOptions):
            raise JaxikError(f"qp_options is a jaxik.QPOptions, not {type(self.qp_options).__name__}")
        if not isinstance(self.continuous, bool):
            raise JaxikError(f"continuous is True or False, not {self.continuous!r}")
        set_fields(
            self,
            damping=validation.number("damping", self.damping),
            feed_forward=share,
            growth_limit=None if limit is None else validation.positive("growth_limit", limit),
        )


@pytree
class WholePathOptions:
    """Options of `track(..., mode="whole")`; all but `candidates` are traced by JAX.

    Args:
      candidates: how many solutions are continued along the path, each from a waypoint of its own; static. Arms with
        more joints than the path needs, and joints that make several turns, have more to choose from with more.
      longest_step: (*batch, nv), or one number: the longest displacement of a joint between two waypoints that is no
        jump [rad or m]. None: what `VelocityLimit` allows in a step, and 0.12, 7 degrees, where there is none; where
        one is `Elastic`, three times what it allows, and 0.12 at least.
      jump_cost: so many waypoints are missed rather than one more jump made (): what is out of reach for a moment is
        not worth two jumps.
      end_at_rest: whether joints are still in the last two steps (), bool.
      smoothing_steps: at most so many steps of Newton's method (); 0 leaves the solutions as they were found.
      smoothing_tolerance: a motion is smooth where a step changes no joint by more (), [rad or m].
      seed: of the random configurations from which solutions are sought ().

    Raises:
      JaxikError: for a wrong type or a number out of range.
    """

    candidates: int = static(default=128)
    longest_step: Any = leaf(1, default=None)
    jump_cost: Any = leaf(0, default=5)
    end_at_rest: Any = leaf(0, default=False)
    smoothing_steps: Any = leaf(0, default=60)
    smoothing_tolerance: Any = leaf(0, default=1e-5)
    seed: Any = leaf(0, default=0)

    def __post_init__(self) -> None:
        try:
            candidates = operator.index(self.candidates)
        except TypeError:
            candidates = 0
        if candidates < 1 or isinstance(self.candidates, bool):
            raise JaxikError(f"candidates is a count from 1 on, known before jit, not {self.candidates!r}")
        longest = self.longest_step
        if longest is not None:
            longest = validation.positive("longest_step", longest)
            longest = longest[..., None] if longest.ndim == 0 else longest
        set_fields(
            self,
            candidates=candidates,
            longest_step=longest,
            jump_cost=validation.option("jump_cost", self.jump_cost, jnp.int32, least=1),
            end_at_rest=validation.flags("end_at_rest is True or False, (*batch) of them", self.end_at_rest),
            smoothing_steps=validation.option("smoothing_steps", self.smoothing_steps, jnp.int32),
            smoothing_tolerance=validation.positive("smoothing_tolerance", self.smoothing_tolerance),
            seed=validation.option("seed", self.seed, jnp.int32),
        )
