"""What a check of `jaxik doctor` found."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

State = Literal["ok", "missing", "fault"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line.

    Attributes:
      said: what there is, or what is wrong.
      data: the same for a program.
      state: "missing" is optional and no fault.
      advice: what to do about it, where something is not as it should be.
    """

    said: str
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    state: State = "ok"
    advice: str = ""


def examined(check: Callable[[], Finding]) -> Finding:
    """Run a check; one that raises has found a fault, whatever it raises."""
    try:
        return check()
    except Exception as error:
        return Finding(reason(error), state="fault", advice="please report it with this line")


def reason(error: Exception) -> str:
    """Kind and message of an error in one line; JAX has some without a message."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
