"""`step` and `linearize`: one quadratic program for each priority, and where its minimum leads.

`step.py` is the verb, `one_step.py` one element, `linearization.py` the program. A rule for accelerations would stand
here. Imports what solvers may.
"""
