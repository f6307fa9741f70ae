"""The first phases of a search: Gauss-Newton from one start after the other.

Where limits keep shapes apart, attempts do not look at these before they have a solution: that takes a thirtieth of the
time, and many of the solutions are free. Where one overlaps, that of another start is looked at; of several arms only
those that overlap are drawn anew. Where all of the first ones overlap, solutions are moved out.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxik.batching.method import Phase
from jaxik.kinematics.topology import dofs_of_entries
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.chains import Group, branches
from jaxik.solvers.nonlinear.element import Context, Result, of_state, start
from jaxik.solvers.nonlinear.formulation import Formulation, in_whole_range, inside_elastic_limits
from jaxik.solvers.nonlinear.gauss_newton import GAUSS_NEWTON
from jaxik.solvers.nonlinear.hard_constraint import clearances
from jaxik.solvers.nonlinear.levenberg_marquardt import ROUGH, State, restarted
from jaxik.solvers.search import multistart
from jaxik.solvers.search.looks import Seen, look, nothing_seen

Names = functools.partial[Level]

# A step that looks at the distances of an arm among 20 obstacles takes 22 us, one that does not 0.7 us: attempts take
# these first, up to so many. Of 10,000 goals in five scenes, half of them missed by blind searches, a Panda's then take
# 0.5 to 0.7 of the time; with up to 30 blind steps up to 1.07 times as long as with 16, as lanes wait for each other.
BLIND_STEPS = 16
# Without others after them, so many at a time, then lanes that have ended take other elements.
BLIND_TURN = 4
# So often all elements look for a blind solution, and then at it. The few that are left over take attempts that do
# both, several at a time: a round takes as long for one element as for a tile. Processor time for each of 1,024 goals
# of a Panda among boxes with 2, 4 and 32 rounds: 49, 56 and 116 us.
ROUNDS = 3
# Where branches are drawn anew one by one, of a dual arm's goals in a cage 28 % are left after 3 looks, 7 % after 12.
ROUNDS_OF_BRANCHES = 12
# Of so many starts, up to half of all, a blind solution that overlaps is left at once: to move one out takes up to 30
# steps with distances, another start one. A UR5e, without a null space left, never needs it.
CHECKED = 16
# Where a part of the robot is free, after every so many looks all of it is drawn anew: what is kept may be in the way.
# A dual arm in a cage takes 68 to 71 steps with 2 to 4, where all is always drawn anew 94.
DRAWN_ANEW = 2
# Every so many attempts look at distances from their start on: there may be no blind solution near a free one.
STEERED = 32

# What an element does in a round: look for a blind solution, look at its distances, both until one is free, no more.
BLIND, LOOK, OUT, DONE = range(4)


class Progress(NamedTuple):
    """How far the search of an element is where limits keep shapes apart.

    Attributes:
      task (): what it does in the next round.
      looks (): how many blind solutions were looked at.
      failing (k,): of each branch (`chains.branches`), whether it overlapped something in the last of these.
    """

    task: jax.Array
    looks: jax.Array
    failing: jax.Array


class _Apart(NamedTuple):
    """One attempt where limits keep shapes apart.

    Attributes:
      state: its state.
      blind (): its next step is one without distances.
      only_blind (): so are all, and it leads to a blind solution.
      only_looks (): it looks at one, and no more.
      seen: what it has seen.
    """

    state: State
    blind: jax.Array
    only_blind: jax.Array
    only_looks: jax.Array
    seen: Seen


def first_phases(names: Names, apart: bool) -> tuple[Phase, ...]:
    """The attempts of a search on the rows of `names`; `apart`: limits keep shapes apart."""
    return (_apart(names),) if apart else (_attempts(names),)


def _attempts(names: Names) -> Phase:
    """From one start after the other, until one gets there."""

    def init(context: Context, result: Result, number: jax.Array) -> State:
        return _start(context, context.prepared, names, result.errors, number)

    def conclude(context: Context, so_far: Result, state: State) -> tuple[Result, jax.Array]:
        return _judged(context, context.prepared, names, _best(so_far), so_far, state)

    return Phase(
        active=None,
        init=init,
        step=lambda context, state: _step(context, context.prepared, names, state),
        ended=lambda state: state.ended,
        conclude=conclude,
        attempts=True,
    )


def begun(context: Context) -> Result:
    """Before the first phase of a search where limits keep shapes apart."""
    result, none = start(context), jnp.zeros((), jnp.int32)
    failing = jnp.ones(len(_branches(context)), bool)
    return result._replace(spent=result.spent._replace(progress=Progress(none, none, failing)))


def _branches(context: Context) -> list[Group]:
    found = branches(_without_distances(context))
    return found if len(found) > 1 else []


def _apart(names: Names) -> Phase:
    """Blind solutions, looked at once for all elements, until one is free; then attempts that do both, or move out.

    All are rounds of one phase: as two of them, with blind steps in each, a program takes a fifth longer to compile. In
    one round nearly all elements do the same, so that no lane waits for steps that it does not take.
    """

    def init(context: Context, result: Result, number: jax.Array) -> _Apart:
        progress = _progress(result)
        only_blind, looks = progress.task == BLIND, progress.task == LOOK
        # The best so far, as it is; not again where it was looked at.
        first = (number == 0) & (looks | ((progress.task == OUT) & (progress.looks == 0)))
        # Rounds before have had starts.
        number = jnp.where(first, 0, number + result.spent.starts)
        steered = ~only_blind & (first | (number % STEERED == 0))
        state = _start(context, context.prepared, names, result.errors, number)
        state = _meeting(state, looks | first)
        kept = _kept(context, progress)
        state = state._replace(q=jnp.where(first | kept, result.q, state.q))
        return _Apart(state, ~steered & ~looks, only_blind, looks, nothing_seen(_branches(context)))

    def step(context: Context, attempt: _Apart) -> _Apart:
        state = _with_distances(context, attempt, _blind_steps(context, names, attempt))
        groups = _branches(context)
        # Loops of at most one turn: none where no lane beside this one looks at distances.
        _, state = lax.while_loop(
            lambda carry: carry[0],
            lambda carry: (jnp.zeros((), bool), _step_apart(context, names, carry[1])),
            (~attempt.only_blind & ~attempt.only_looks if groups else ~attempt.only_blind, state),
        )
        # Without branches it is a step that looks: a program with 100 kernels less.
        seen = attempt.seen._replace(free=state.met)
        if groups:
            # What is looked at is used up: XLA takes a look at what stays the same out of the loop, into every step.
            _, _, seen = lax.while_loop(
                lambda carry: carry[0],
                lambda carry: (jnp.zeros((), bool), jnp.zeros_like(carry[1]), look(context.prepared, carry[1], groups)),
                (attempt.only_looks, state.q, attempt.seen),
            )
        state = state._replace(ended=state.ended | attempt.only_looks)
        return attempt._replace(state=state, blind=attempt.only_blind, seen=seen)

    def conclude(context: Context, so_far: Result, attempt: _Apart) -> tuple[Result, jax.Array]:
        blind = _judged_blind(context, names, so_far, attempt.state)
        apart = _judged_apart(context, names, so_far, attempt.state)
        seen = _looked_at(context, so_far, attempt.seen)
        found = jax.tree.map(lambda x, y: jnp.where(attempt.only_blind, x, y), blind, apart)
        return jax.tree.map(lambda x, y: jnp.where(attempt.only_looks, x, y), seen, found)

    return Phase(
        active=lambda result: _progress(result).task != DONE,
        init=init,
        step=step,
        ended=lambda attempt: attempt.state.ended,
        conclude=conclude,
        attempts=True,
        repeated=True,
    )


def _meeting(state: State, alone: jax.Array) -> State:
    """The state, on constraints and distances alone where `alone` () and where these suffice."""
    attempt = state.spent
    return state if attempt.meeting is None else state._replace(spent=attempt._replace(meeting=attempt.meeting | alone))


def _progress(result: Result) -> Progress:
    progress = result.spent.progress
    assert isinstance(progress, Progress)
    return progress


def _kept(context: Context, progress: Progress) -> jax.Array:
    """Entries (nq,) that stay as they are: where a blind solution overlaps in some branches, all others.

    Both arms of a pair have to be free at once. Drawn together, they rarely are.
    """
    groups, size = _branches(context), context.q.size
    if not groups:
        return jnp.zeros(size, bool)
    dofs = dofs_of_entries(context.prepared.problem.robot.topology)
    own = np.zeros((len(groups), size), bool)
    own[:, : len(dofs)] = [[dof in group for dof in dofs] for group in groups]
    some = jnp.any(progress.failing) & (progress.looks % DRAWN_ANEW != 0) & (progress.task == BLIND)
    return some & ~jnp.any(progress.failing[:, None] & own, axis=0) & (np.arange(size) < len(dofs))


def _blind_steps(context: Context, names: Names, attempt: _Apart) -> State:
    """Some steps without distances, if any; where others follow, all of them at once."""
    prepared = _without_distances(context)

    def going(carry: tuple[jax.Array, State]) -> jax.Array:
        count, state = carry
        more = jnp.where(attempt.only_blind, count < BLIND_TURN, state.iterations - state.before < BLIND_STEPS)
        return attempt.blind & ~state.ended & more

    def advance(carry: tuple[jax.Array, State]) -> tuple[jax.Array, State]:
        count, state = carry
        return count + 1, _step(context, prepared, names, state)

    state, none = _seen_blind(prepared, names, attempt.state), jnp.zeros((), jnp.int32)
    blind = lax.while_loop(going, advance, (none, state))[1]
    # Rows of distances mean nothing before the first step with these.
    model = jax.tree.map(lambda new, x: jnp.concatenate([new, x[new.shape[0] :]]), blind.model, attempt.state.model)
    return blind._replace(model=model, errors=attempt.state.errors | blind.errors)


def _seen_blind(prepared: Formulation, names: Names, state: State) -> State:
    """A state with as many rows, and reports, as the problem without distances has."""
    empty = GAUSS_NEWTON.empty(prepared, state.q, names(prepared.levels))
    model = jax.tree.map(lambda x, whole: whole[: x.shape[0]], empty, state.model)
    return state._replace(model=model, errors=_reported(prepared, state))


def _with_distances(context: Context, attempt: _Apart, blind: State) -> State:
    """The state before the first step with distances, where one without leads; otherwise as it is."""
    starts = attempt.blind & ~attempt.only_blind
    state = _meeting(restarted(blind, starts, context.options.initial_damping), starts)
    # No steps are left to an attempt without a blind solution: few of them get anywhere.
    looks_once = ~blind.met | (_few(context, blind.spent.number) & (blind.spent.number < CHECKED))
    left = jnp.where(starts & looks_once, context.starts.spread.steps, 0)
    polished = starts & blind.met & ~blind.crawling
    return state._replace(size=jnp.where(polished, blind.size, state.size), before=state.before - left)


def _step_apart(context: Context, names: Names, state: State) -> State:
    """One step with distances, which is the last where it finds a polished solution free."""
    moved = _step(context, context.prepared, names, state)
    free = jnp.isinf(state.cost) & moved.met & (state.size <= ROUGH)
    return moved._replace(size=jnp.where(free, state.size, moved.size), ended=moved.ended | free)


def _judged_blind(context: Context, names: Names, so_far: Result, state: State) -> tuple[Result, jax.Array]:
    prepared, progress = _without_distances(context), _progress(so_far)
    known = so_far._replace(errors=_reported(prepared, so_far))
    state = _seen_blind(prepared, names, state)
    result, again = _judged(context, prepared, names, _best(known), known, state)
    # What was looked at is moved out where no other solution is found.
    q = jnp.where(result.met | (progress.looks == 0), result.q, so_far.q)
    task = jnp.where(again, BLIND, jnp.where(result.met, LOOK, jnp.where(jnp.isfinite(result.cost), OUT, DONE)))
    result = result._replace(q=q, errors=so_far.errors | result.errors, solved=jnp.zeros((), bool))
    return _going_on(result, progress._replace(task=task)), again


def _judged_apart(context: Context, names: Names, so_far: Result, state: State) -> tuple[Result, jax.Array]:
    progress, first = _progress(so_far), state.spent.number == 0
    # Costs and errors of blind solutions are without distances.
    none = _best(so_far)._replace(cost=jnp.full_like(so_far.cost, jnp.inf), met=jnp.zeros_like(so_far.met))
    best = jax.tree.map(lambda new, old: jnp.where(first, new, old), none, _best(so_far))
    result, again = _judged(context, context.prepared, names, best, so_far, state)
    again = again & ((progress.looks > 0) | ~first)
    task = jnp.where(again, OUT, DONE)
    result = result._replace(spent=result.spent._replace(starts=result.spent.starts - first))
    return _going_on(result, progress._replace(task=task)), again


def _looked_at(context: Context, so_far: Result, seen: Seen) -> tuple[Result, jax.Array]:
    """A blind solution that is free is one; else another one is looked for, or what is is moved out."""
    free, looks = seen.free, _progress(so_far).looks + 1
    rounds = ROUNDS_OF_BRANCHES if _branches(context) else ROUNDS
    task = jnp.where((looks < rounds) & _few(context, so_far.spent.starts), BLIND, OUT)
    known = {name: jnp.where(free, 0, so_far.errors[name]) for name in clearances(context.prepared.problem)}
    result = so_far._replace(
        # Blind solutions are found without distances again.
        cost=jnp.where(free, so_far.cost, jnp.inf),
        errors=so_far.errors | known,
        met=free,
        solved=free & ~so_far.crawling & _is_solution(context, so_far.q),
    )
    progress = Progress(jnp.where(free, DONE, task), looks, seen.failing[looks // DRAWN_ANEW % 2])
    return _going_on(result, progress), jnp.zeros((), bool)


def _is_solution(context: Context, q: jax.Array) -> jax.Array:
    """Whether a configuration (nq,) that is there is a solution: what meets constraints alone has tasks left."""
    if multistart.constraints_suffice(context.prepared.problem):
        return jnp.zeros((), bool)
    return inside_elastic_limits(context.prepared, q)


def _few(context: Context, tried: jax.Array) -> jax.Array:
    """Whether more than half of the starts are left."""
    return 2 * tried < context.starts.spread.count


def _going_on(result: Result, progress: Progress) -> Result:
    progress = progress._replace(task=progress.task.astype(jnp.int32))
    return result._replace(spent=result.spent._replace(progress=progress))


def _without_distances(context: Context) -> Formulation:
    assert context.blind is not None
    return context.blind


def _reported(prepared: Formulation, result: Result | State) -> dict[str, jax.Array]:
    """What the tasks of a formulation report."""
    return {name: result.errors[name] for name in prepared.problem.tasks}


def _best(result: Result) -> multistart.Best:
    return multistart.Best(result.q, result.cost, result.errors, result.met)


def _start(
    context: Context, prepared: Formulation, names: Names, errors: dict[str, jax.Array], number: jax.Array
) -> State:
    level = names(prepared.levels)
    return multistart.start(prepared, context.starts, context.q, errors, context.options, level, number)


def _step(context: Context, prepared: Formulation, names: Names, state: State) -> State:
    # Where joint limits yield, no joint is beyond them before half of the starts have failed.
    prepared = in_whole_range(prepared, ~_few(context, state.spent.number))
    return multistart.step(prepared, state, context.starts, context.options, names(prepared.levels))


def _judged(
    context: Context, prepared: Formulation, names: Names, best: multistart.Best, so_far: Result, state: State
) -> tuple[Result, jax.Array]:
    """What an attempt leads to after the best of those before it, and whether another one is wanted.

    What comes after has steps of its own; Newton's tell whether the best failure could be no better.
    """
    tried = so_far.spent.starts
    verdict = multistart.judge(prepared, context.starts, names(prepared.levels), best, state, tried)
    result = of_state(state)._replace(
        q=verdict.best.q,
        cost=verdict.best.cost,
        errors=verdict.best.errors,
        met=verdict.best.met,
        crawling=verdict.unfinished,
        solved=verdict.best.met & ~verdict.unfinished & _is_solution(context, verdict.best.q),
        iterations=jnp.zeros_like(tried),
        spent=so_far.spent._replace(steps=so_far.spent.steps + state.iterations, starts=tried + 1),
    )
    return result, verdict.again
