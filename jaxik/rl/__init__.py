"""Action terms of reinforcement learning: poses of frames as actions, joint targets as what a robot is told.

`pose_action.py` holds the term, pure and batched, on top of `step`; `adapting.py` puts it on environments of gymnasium,
Brax and Playground, none of which is imported here but gymnasium, by `gymnasium_wrapper.py`. Imports what
`solvers.differential` may, and that.
"""

from jaxik.rl.adapting import PoseActionEnv, wrap_vector_env
from jaxik.rl.pose_action import ActionInfo, ActionState, PoseAction

__all__ = ["ActionInfo", "ActionState", "PoseAction", "PoseActionEnv", "wrap_vector_env"]
