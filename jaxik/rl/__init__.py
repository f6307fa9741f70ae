"""Action terms of reinforcement learning: poses of frames as actions, joint targets as what a robot is told.

`pose_action.py` holds the term, pure and batched, on top of `step`. Imports what `solvers.differential` may, and that.
"""

from jaxik.rl.pose_action import ActionInfo, ActionState, PoseAction

__all__ = ["ActionInfo", "ActionState", "PoseAction"]
