"""`Problem`: a robot, tasks, limits and constraints, checked on the host, and what every verb does with its arguments.

Imports core, numerics, kinematics, robot, tasks and limits.
"""
