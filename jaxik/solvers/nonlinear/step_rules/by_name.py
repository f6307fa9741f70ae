"""Step rules by the name that `SolveOptions` gives them."""

from typing import Any

from jaxik.solvers.nonlinear.levenberg_marquardt import Rule
from jaxik.solvers.nonlinear.step_rules.damped_least_squares import DAMPED_LEAST_SQUARES
from jaxik.solvers.nonlinear.step_rules.first_order import first_order
from jaxik.solvers.nonlinear.step_rules.selectively_damped import SELECTIVELY_DAMPED
from jaxik.solvers.nonlinear.step_rules.transpose import TRANSPOSE
from jaxik.solvers.nonlinear.step_rules.truncated_svd import TRUNCATED_SVD

RULES = {"dls": DAMPED_LEAST_SQUARES, "sdls": SELECTIVELY_DAMPED, "svd": TRUNCATED_SVD, "transpose": TRANSPOSE}


def rule_of(step_rule: Any) -> Rule:
    """The rule of a name other than "lm", or of an `optax.GradientTransformation`."""
    return RULES[step_rule] if isinstance(step_rule, str) else first_order(step_rule)
