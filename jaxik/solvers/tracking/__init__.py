"""`track`: a loop of steps that follows targets over time, and `interpolate`, which makes such targets of waypoints.

`track.py` is the verb, `loop.py` one step of the loop, `targets.py` what changes over time, `shapes.py` named paths.
Imports what solvers may, `solvers.differential` and `solvers.nonlinear`.
"""
