"""Options of the iterative solvers."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.core.validation import one_of, option

TRACED = 100  # steps: as many as `solve` takes by default


@pytree
class SolveOptions:
    """Options of `solve`; all but `record_trace` are traced by JAX, so changing them never recompiles.

    Args:
      max_steps: at most so many steps (*batch,), rejected ones included; polishing comes on top.
      initial_damping: the first damping, relative to the largest squared column of the Jacobian in units of joint range
        (*batch,), is at most this; it is less where the residual is small, so that a start nearby takes few steps. From
        one mid-range start 0.01 solves 82 % of Panda targets and 75 % of UR5e's, 0.3 88 % and 87 %; from 0.3 to 1 it is
        flat.
      step_tolerance: an undamped step below this (*batch,) [rad or m] is stationary; None: 1e-11 in float64, 1e-5 in
        float32.
      record_trace: record the first so many steps of every element in `Solution.trace`; True: 100. Static; off by
        default, and then it costs nothing.

    Raises:
      JaxikError: for what is not a number, or is negative; for a `trace` that is neither bool nor a count.
    """

    max_steps: Any = leaf(0, default=100)
    initial_damping: Any = leaf(0, default=0.3)
    step_tolerance: Any = leaf(0, default=None)
    record_trace: bool | int = static(default=False)

    def __post_init__(self) -> None:
        tolerance = self.step_tolerance
        set_fields(
            self,
            max_steps=option("max_steps", self.max_steps, jnp.int32),
            initial_damping=option("initial_damping", self.initial_damping, float),
            step_tolerance=None if tolerance is None else option("step_tolerance", tolerance, float),
            record_trace=_traced_steps(self.record_trace),
        )


def _traced_steps(value: Any) -> int:
    if isinstance(value, bool | np.bool):
        return TRACED if value else 0
    try:
        steps = operator.index(value)
    except (TypeError, jax.errors.JAXTypeError):
        steps = -1
    if steps < 0:
        raise JaxikError(f"record_trace is True, False, or how many steps to record, known before jit; not {value!r}")
    return steps


def step_tolerance(options: SolveOptions, dtype: Any) -> jax.Array | float:
    if options.step_tolerance is not None:
        return options.step_tolerance
    return 1e-11 if dtype == jnp.float64 else 1e-5


# What a search prefers among the solutions of one target.
PREFERENCES = ("cost", "reference", "limits")


@pytree
class SearchOptions:
    """Options of `search`; all but `solutions`, `num_candidates` and `rank_by` are traced by JAX.

    Args:
      max_starts: an element makes at most so many attempts (*batch,), from 1 on. Its candidates share them, each of
        which makes at least one.
      max_steps_per_start: an attempt takes at most so many steps (*batch,), from 1 on; most that fail show it sooner.
      solutions: how many distinct solutions to return of each element; more than one is an axis behind the batch.
        Static.
      num_candidates: how many attempts of an element must get there before it chooses among them. Static; None: one
        where the first that meets all tolerances will do, else 8 for each of the solutions.
      rank_by: "cost": the lowest cost, lower levels included; "reference": closest to `reference`; "limits": farthest
        from the joint limits, as a share of each joint's range. Static.
      reference: configuration (*batch, nq) to which hinges that make several turns stay close, and what has no limits;
        None: the first of the user's starts, else `q_home`.
      min_separation: solutions are distinct that differ by more than this in some joint (*batch,) [rad or m], whole
        turns of hinges left out.
      unlimited_range: slides without limits and free joints start within this of the reference (*batch,) [m].
      solve_options: how attempts are made, and what is done with the best of them: Newton's steps where none got there,
        and the lower levels, for each of which its `max_steps` counts.

    Raises:
      JaxikError: for what is not a number, or is negative; for counts below one; for a `trace`.
    """

    max_starts: Any = leaf(0, default=128)
    max_steps_per_start: Any = leaf(0, default=30)
    solutions: int = static(default=1)
    num_candidates: int | None = static(default=None)
    rank_by: str = static(default="cost")
    reference: Any = leaf(1, default=None)
    min_separation: Any = leaf(0, default=0.05)
    unlimited_range: Any = leaf(0, default=1.0)
    solve_options: SolveOptions = leaf(default_factory=lambda: SolveOptions(initial_damping=0.1))

    def __post_init__(self) -> None:
        one_of("rank_by", self.rank_by, PREFERENCES)
        num_candidates = self.num_candidates
        if not isinstance(self.solve_options, SolveOptions):
            raise JaxikError(f"solve_options is a jaxik.SolveOptions, not {type(self.solve_options).__name__}")
        if self.solve_options.record_trace:
            raise JaxikError("a search records no trace: solve again from q, with SolveOptions(record_trace=True)")
        set_fields(
            self,
            max_starts=option("max_starts", self.max_starts, jnp.int32, least=1),
            max_steps_per_start=option("max_steps_per_start", self.max_steps_per_start, jnp.int32, least=1),
            solutions=_count("solutions", self.solutions),
            num_candidates=None if num_candidates is None else _count("num_candidates", num_candidates),
            min_separation=option("min_separation", self.min_separation, float),
            unlimited_range=option("unlimited_range", self.unlimited_range, float),
        )
        if self.num_candidates is not None and self.num_candidates < self.solutions:
            raise JaxikError(
                f"{self.solutions} solutions are chosen from at least as many candidates, not {self.num_candidates}"
            )


def _count(name: str, value: Any) -> int:
    try:
        count = operator.index(value)
    except (TypeError, jax.errors.JAXTypeError):
        count = 0
    if count < 1 or isinstance(value, bool):
        raise JaxikError(f"{name} is a count from 1 on, known before jit; not {value!r}")
    return count
