"""`search`: attempts from start after start, then the phases of `solve`, then a choice among what was found.

`search.py` is the verb, `method.py` one element, `starts.py` where attempts begin. Imports what solvers may, and
nonlinear.
"""
