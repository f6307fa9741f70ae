"""Reading robots: MJCF, URDF, MuJoCo's and MJX's models, `.npz` files, and the names of bundled ones.

The only package that imports mujoco. Imports core, numerics, kinematics and robot.
"""
