"""The panel beside the scene: the verb, what became of the targets, and a slider for each joint."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxik.kinematics.topology import JointType
from jaxik.robot.robot import Robot
from jaxik.viewer.following import VERBS, Shown

# Texts and sliders change at most this often [1/s]: nobody reads faster, and each is a message to the browser.
REFRESH = 10.0
# Of a joint without limits [rad, m].
UNLIMITED = np.pi


class Panel:
    """Text, sliders and buttons.

    Args:
      server: a `viser.ViserServer`.
      robot: one robot.
      q (nq,): where the sliders are at first.
      choose: called with the verb that is chosen.
      place: called with the configuration that the sliders say.
      play: called by the button that plays a motion; None: there is none.
    """

    def __init__(
        self,
        server: Any,
        robot: Robot,
        q: np.ndarray,
        choose: Callable[[str], None],
        place: Callable[[np.ndarray], None],
        play: Callable[[], None] | None,
    ) -> None:
        """Put everything on the panel."""
        self._q, self._place, self._next = np.array(q), place, 0.0
        gui = server.gui
        verb = gui.add_dropdown("follow by", VERBS, initial_value=VERBS[0])
        verb.on_update(lambda _: choose(verb.value))
        self._text = gui.add_markdown("Drag a handle.")
        if play is not None:
            gui.add_button("Play").on_click(lambda _: play())
        self._sliders: dict[int, Any] = {}
        with gui.add_folder("joints", expand_by_default=len(robot.topology.joints) <= 10):
            for index, joint in enumerate(robot.topology.joints):
                if joint.type in (JointType.HINGE, JointType.SLIDE):
                    limits = float(robot.limit_lower[index]), float(robot.limit_upper[index])
                    self._add_slider(gui, joint.name or f"joint {index}", joint.q_index, *limits)

    def _add_slider(self, gui: Any, name: str, at: int, lower: float, upper: float) -> None:
        lower, upper = (lower if np.isfinite(lower) else -UNLIMITED), (upper if np.isfinite(upper) else UNLIMITED)
        if not upper > lower:
            return
        value = float(np.clip(self._q[at], lower, upper))
        slider = gui.add_slider(name, lower, upper, (upper - lower) / 1000, value)
        self._sliders[at] = slider

        @slider.on_update
        def _(event: Any) -> None:
            # Values that the program sets come without a client.
            if event.client_id is not None:
                self._q[at] = np.clip(slider.value, lower, upper)
                self._place(self._q.copy())

    def show(self, shown: Shown) -> None:
        """What became of the targets; at most ten times a second while the robot is on its way."""
        self._q = np.array(shown.q)
        now = time.perf_counter()
        if shown.status == "MOVING" and now < self._next:
            return
        self._next = now + 1 / REFRESH
        self._text.content = described(shown)
        for at, slider in self._sliders.items():
            value = float(np.clip(shown.q[at], slider.min, slider.max))
            if abs(slider.value - value) > slider.step / 2:
                slider.value = value


def described(shown: Shown) -> str:
    """What there is to show, as Markdown: residuals in mm and degrees."""
    if shown.error:
        return f"**error**\n\n{shown.error}"
    if not shown.status:
        return "Drag a handle."
    lines = [f"**{shown.status}** in {shown.milliseconds:.1f} ms", "", "| residual | |", "|---|---|"]
    for part, norm in shown.residuals.items():
        lines.append(f"| {part} | {_length_or_angle(part, norm)} |")
    lines += ["", "| cost | |", "|---|---|"]
    lines += [f"| {name} | {cost:.3g} |" for name, cost in shown.costs.items()]
    return "\n".join(lines)


def _length_or_angle(part: str, norm: float) -> str:
    if part.endswith("/position"):
        return f"{1e3 * norm:.3g} mm"
    return f"{np.degrees(norm):.3g} deg" if part.endswith("/orientation") else f"{norm:.3g}"
