"""`track`: a loop of steps that follows targets over time, and `interpolate`, which makes such targets of waypoints.

`track.py` is the verb, `loop.py` one step of the loop, `targets.py` what changes over time, `shapes.py` named paths.
`whole_path.py` is the mode that knows the path: `candidates.py`, the `shortest_path.py` through them, `smoothing.py`.
Imports what solvers may, `solvers.differential` and `solvers.nonlinear`.
"""
