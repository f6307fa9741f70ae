"""`Robot`, the batched methods that users call, and where robots come from.

`robot.py` is the class, `loading` the only place that imports MuJoCo, `bundled` the models that come along. Imports
core, numerics, batching, kinematics and collision.
"""
