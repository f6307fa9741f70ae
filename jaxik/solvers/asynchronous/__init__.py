"""`solve_async`: a solve in a thread of its own, on top of `solve`.

Imports solvers and what is below; `solvers.tracking` for targets that change.
"""
