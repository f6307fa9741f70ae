"""Step rules of `solve` by name, besides Levenberg-Marquardt: each proposes a step, on the one loop.

Imports what `solvers.nonlinear` imports.
"""
