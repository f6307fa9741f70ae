"""Options of the iterative solvers."""

import dataclasses
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.core.validation import one_of, option

TRACED = 100  # steps: as many as `solve` takes by default


STEP_RULES = ("lm", "dls", "sdls", "svd", "transpose")
# Of rules that take every step: the numbers of all of them, and those that some have, by rule; optax has no name.
COMMON_NUMBERS = {
    "translation_error_clamp": 0.5,
    "rotation_error_clamp": 0.5,
    "translation_factor": 1.0,
    "rotation_factor": 1.0,
    "stall_threshold": 1e-3,
    "divergence_threshold": 2.0,
}
OWN_NUMBERS = {
    "dls": {"damping": 0.05},
    "sdls": {"step_clamp": 0.785},
    "svd": {"truncation": 1e-3},
    "transpose": {"learning_rate": 1.0},
    "optax": {"learning_rate": 1.0},
}


@pytree
class SolveOptions:
    """Options of `solve`; all but `step_rule` and `record_trace` are traced, so changing them never recompiles.

    Step rules but "lm" have no acceptance test: they take every step, return the best iterate, are not polished, and
    hold constraints to 1e-4 m or rad alone, as rows with ten times the cost of tasks. They end where all tolerances are
    met, where steps are as small as `step_tolerance`, or where 20 steps have not improved the best iterate. All numbers
    from `damping` on are theirs; None: what is said last.

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
      step_rule: static. "lm", bounded Levenberg-Marquardt; "dls", damped least squares; "sdls", selectively damped
        least squares (Buss, Kim 2005); "svd", the pseudoinverse by truncated singular values; "transpose", the
        Jacobian's transpose; or an `optax.GradientTransformation`, one object for all calls, of the cost's gradient. Of
        one with a line search, as `optax.lbfgs()`, which looks at the cost itself, let the clamps reach all errors.
      damping: of "dls" (*batch,), in units of the weighted Jacobian; 0.05.
      truncation: of "svd" (*batch,): singular values below this share of the largest count as zero; 1e-3.
      step_clamp: of "sdls" (*batch,): no joint moves farther in a step [rad or m]; 0.785.
      learning_rate: of "transpose" and optax (*batch,): what steps are multiplied by; 1.
      translation_error_clamp, rotation_error_clamp: a step aims at no more of an error than this (*batch,) [m, rad];
        0.5. What is not in metres counts as rotation.
      translation_factor, rotation_factor: of the rows of errors (*batch,), besides their costs; 1.
      stall_threshold: of the cost (*batch,): 20 steps that reduce it by less than this share are too many; 1e-3.
      divergence_threshold: an element that ends so is DIVERGED, not STALLED, where its error is more than this many
        times that of its best iterate (*batch,); 2.

    Raises:
      JaxikError: for what is not a number, or is negative; for a `record_trace` that is neither bool nor a count; for
        an unknown step rule, and for numbers that it does not have.
    """

    max_steps: Any = leaf(0, default=100)
    initial_damping: Any = leaf(0, default=0.3)
    step_tolerance: Any = leaf(0, default=None)
    record_trace: bool | int = static(default=False)
    step_rule: Any = static(default="lm")
    damping: Any = leaf(0, default=None)
    truncation: Any = leaf(0, default=None)
    step_clamp: Any = leaf(0, default=None)
    learning_rate: Any = leaf(0, default=None)
    translation_error_clamp: Any = leaf(0, default=None)
    rotation_error_clamp: Any = leaf(0, default=None)
    translation_factor: Any = leaf(0, default=None)
    rotation_factor: Any = leaf(0, default=None)
    stall_threshold: Any = leaf(0, default=None)
    divergence_threshold: Any = leaf(0, default=None)

    def __post_init__(self) -> None:
        tolerance = self.step_tolerance
        _check_step_rule(self)
        set_fields(
            self,
            max_steps=option("max_steps", self.max_steps, jnp.int32),
            initial_damping=option("initial_damping", self.initial_damping, float),
            step_tolerance=None if tolerance is None else option("step_tolerance", tolerance, float),
            record_trace=_traced_steps(self.record_trace),
            **{name: option(name, value, float) for name, value in _rule_numbers(self).items()},
        )


def _rule_numbers(options: SolveOptions) -> dict[str, Any]:
    """The numbers of step rules that are given."""
    names = dict.fromkeys((*COMMON_NUMBERS, *(name for own in OWN_NUMBERS.values() for name in own)))
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _numbers_of(step_rule: Any) -> dict[str, float]:
    """The numbers that a step rule has, and their defaults."""
    if step_rule == "lm":
        return {}
    return COMMON_NUMBERS | OWN_NUMBERS[step_rule if isinstance(step_rule, str) else "optax"]


def _transforms_gradients(rule: Any) -> bool:
    return callable(getattr(rule, "init", None)) and callable(getattr(rule, "update", None))


def _check_step_rule(options: SolveOptions) -> None:
    rule = options.step_rule
    if not (rule in STEP_RULES if isinstance(rule, str) else _transforms_gradients(rule)):
        raise JaxikError(
            f"step_rule is one of {', '.join(STEP_RULES)}, or an optax.GradientTransformation such as optax.adam(0.1), "
            f"not {rule!r}"
        )
    for name in _rule_numbers(options):
        if name not in _numbers_of(rule):
            rules = [other for other, own in OWN_NUMBERS.items() if name in own] or [*OWN_NUMBERS]
            raise JaxikError(f"{name} is a number of the step rules {', '.join(rules)}, not of {rule!r}")


def with_rule_defaults(options: SolveOptions) -> SolveOptions:
    """The options with all numbers of their step rule, so that giving one does not change the program."""
    missing = {n: value for n, value in _numbers_of(options.step_rule).items() if getattr(options, n) is None}
    return dataclasses.replace(options, **missing) if missing else options


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
      solutions: how many distinct solutions to return of each element; more than one makes an axis after those of the
        batch. Static.
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
        if self.solve_options.step_rule != "lm":
            raise JaxikError("a search takes step_rule='lm': solve from starts of your own with the other rules")
        if self.solve_options.record_trace:
            raise JaxikError("a search records no trace: solve again from q, with SolveOptions(record_trace=True)")
        set_fields(
            self,
            max_starts=option("max_starts", self.max_starts, jnp.int32, least=1),
            max_steps_per_start=option("max_steps_per_start", self.max_steps_per_start, jnp.int32, least=1),
            solutions=count("solutions", self.solutions),
            num_candidates=None if num_candidates is None else count("num_candidates", num_candidates),
            min_separation=option("min_separation", self.min_separation, float),
            unlimited_range=option("unlimited_range", self.unlimited_range, float),
        )
        if self.num_candidates is not None and self.num_candidates < self.solutions:
            raise JaxikError(
                f"{self.solutions} solutions are chosen from at least as many candidates, not {self.num_candidates}"
            )


def count(name: str, value: Any) -> int:
    try:
        whole = operator.index(value)
    except (TypeError, jax.errors.JAXTypeError):
        whole = 0
    if whole < 1 or isinstance(value, bool):
        raise JaxikError(f"{name} is a count from 1 on, known before jit; not {value!r}")
    return whole
