"""Tasks: what is wanted of a configuration or of a motion, as residuals with Jacobians. One file a class.

A new task is a class with `residual`, in a file of its name; `base.py` is the contract. Imports core, numerics,
kinematics and robot.
"""
