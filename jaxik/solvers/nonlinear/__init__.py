"""`solve`: bounded Levenberg-Marquardt for the highest priority, null-space Newton steps for those below.

`solve.py` is the verb, `formulation.py` the problem at one configuration, `phases.py` what comes after what, and
`levenberg_marquardt.py` the loop; a new step rule is a file beside `gauss_newton.py` and `newton.py`. Imports what
solvers may.
"""
