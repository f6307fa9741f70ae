"""How a solve ended, for each element."""

import enum


class Status(enum.IntEnum):
    """How a solve ended. Arrays of statuses are int32.

    CONVERGED: every tolerance is met; without tolerances, the solution is stationary.
    STALLED: stationary, tolerances not met: the target is out of reach from here, within the limits.
    DIVERGED: only of step rules that accept every step.
    TIMEOUT: the steps were used up; the best configuration found is returned.
    INFEASIBLE: constraints contradict each other or the limits.
    NONFINITE: a target, cost or start is NaN or infinite; the returned configuration is finite.
    """

    CONVERGED = 0
    STALLED = 1
    DIVERGED = 2
    TIMEOUT = 3
    INFEASIBLE = 4
    NONFINITE = 5


REMEDIES = {
    Status.STALLED: "no small motion within the limits improves it: try other starts q0, or ask for less",
    Status.DIVERGED: "use a step rule with an acceptance test",
    Status.TIMEOUT: "raise SolveOptions(max_steps=...), or start nearer",
    Status.INFEASIBLE: "drop or relax a constraint or limit",
    Status.NONFINITE: "look for NaN, infinity and values whose squares overflow in targets, costs and q0",
}
