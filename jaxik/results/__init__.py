"""What verbs return, in words, pictures and files: `Solution`, `StepResult`, `Trace`, `save` and `load`.

Imports core, numerics, kinematics, robot and qp_solver.
"""
