"""`plan_motion`: a motion from one configuration to another, around obstacles, as fast as limits allow.

`plan_motion.py` is the verb. `planner.py` looks at one configuration a step: first two trees grow until they meet
(`trees.py`), then the path is shortened (`shortcuts.py`), then its corners become arcs (`corners.py`). `timing.py` says
how fast it is followed, `projection.py` how constraints hold on the way. Imports what solvers may, and
`solvers.nonlinear`.
"""
