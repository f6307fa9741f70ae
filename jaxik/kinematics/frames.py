"""References to the frames of a robot."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Frame:
    """A static reference to a frame of a robot: kind "body", "site" or "geom", and index.

    Where it is, is looked up in the robot at use, so gradients reach tool offsets and randomised robots stay right.
    """

    kind: str
    index: int
    name: str = dataclasses.field(default="", compare=False)
