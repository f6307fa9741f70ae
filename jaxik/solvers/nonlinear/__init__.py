"""`solve`: bounded Levenberg-Marquardt for the highest priority, null-space Newton steps for those below.

`solve.py` is the verb, `formulation.py` the problem at one configuration, `phases.py` what comes after what, and
`levenberg_marquardt.py` the loop. A new step rule is a file of `step_rules`, listed in its `by_name.py`; one with an
acceptance test stands beside `gauss_newton.py`, as a phase in `phases.py`. Imports what solvers may.
"""
