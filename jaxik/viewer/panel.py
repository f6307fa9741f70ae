"""The panel beside the scene: the verb, what became of the targets, costs, and a slider for each joint."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.kinematics.topology import JointType
from jaxik.robot.robot import Robot
from jaxik.viewer.following import VERBS, Shown

# Texts and sliders change at most this often [1/s]: nobody reads faster, and each is a message to the browser.
REFRESH = 10.0
# Of a joint without limits [rad, m].
UNLIMITED = np.pi
# A joint is at a limit from so near on [rad, m].
AT_LIMIT = 1e-4
# In front of the name of a joint that is at a limit.
MARK = "● "


class Panel:
    """Text, sliders and buttons, added from top to bottom by those who have something to control.

    Args:
      gui: of a `viser.ViserServer`.
      choose: called with the verb that is chosen.
    """

    def __init__(self, gui: Any, choose: Callable[[str], None]) -> None:
        """Put the verb and the status on the panel."""
        self.gui, self._next = gui, 0.0
        self._sliders: dict[int, tuple[str, Any]] = {}
        verb = gui.add_dropdown("follow by", VERBS, initial_value=VERBS[0])
        verb.on_update(lambda _: choose(verb.value))
        self._status = gui.add_markdown(status_line(None))
        self._details: Any = None

    def add_buttons(self, recall: Callable[[], None], save: Callable[[], Any] | None) -> None:
        """Add a button that brings the handles to the robot, and one that saves its pose and says where."""
        self.gui.add_button("Handles to the robot").on_click(lambda _: recall())
        if save is None:
            return
        button, said = self.gui.add_button("Save pose"), self.gui.add_markdown("")

        @button.on_click
        def _(_: Any) -> None:
            try:
                said.content = f"saved as {save()}"
            except JaxikError as error:
                said.content = f"**not saved**: {error}"

    def add_ghost_switch(self, show: Callable[[bool], None]) -> None:
        """Add a switch that hides the ghosts."""
        switch = self.gui.add_checkbox("ghosts", True)
        switch.on_update(lambda _: show(switch.value))

    def add_costs(
        self,
        priorities: Mapping[str, int],
        costs: Mapping[str, Mapping[str, np.ndarray]],
        weigh: Callable[[str, str, np.ndarray], None],
    ) -> None:
        """Add the costs of each task, its largest row by row; others keep their share of it."""
        with self.gui.add_folder("costs of tasks", expand_by_default=len(costs) <= 3):
            for name, priority in priorities.items():
                for field, cost in costs[name].items():
                    kind = field.removesuffix("cost").rstrip("_")
                    label = f"{name} {kind}".rstrip() + (f" (priority {priority})" if priority else "")
                    self._add_cost(label, cost, lambda new, name=name, field=field: weigh(name, field, new))

    def _add_cost(self, label: str, cost: np.ndarray, weigh: Callable[[np.ndarray], None]) -> None:
        largest = float(np.max(cost, initial=0.0))
        shares = cost / largest if largest > 0 else np.ones_like(cost)
        number = self.gui.add_number(label, float(f"{largest:.6g}"), min=0.0)
        number.on_update(lambda _: weigh(number.value * shares))

    def add_sliders(self, robot: Robot, q: np.ndarray, place: Callable[[int, float], None]) -> None:
        """Add a slider for each hinge and slide, with its limits; `place` gets the index in q and the value."""
        joints = robot.topology.joints
        with self.gui.add_folder("joints [rad, m]", expand_by_default=len(joints) <= 10):
            for index, joint in enumerate(joints):
                if joint.type in (JointType.HINGE, JointType.SLIDE):
                    limits = float(robot.limit_lower[index]), float(robot.limit_upper[index])
                    self._add_slider(joint.name, joint.q_index, q, limits, place)

    def _add_slider(
        self, name: str, at: int, q: np.ndarray, limits: tuple[float, float], place: Callable[[int, float], None]
    ) -> None:
        lower, upper = (x if np.isfinite(x) else side * UNLIMITED for x, side in zip(limits, (-1, 1), strict=True))
        if not upper > lower:
            return
        # Steps of a round number, of which there are a thousand or more.
        step = 10.0 ** np.floor(np.log10((upper - lower) / 1000))
        slider = self.gui.add_slider(name, lower, upper, step, _on_slider(q[at], lower, upper, step))
        self._sliders[at] = name, slider
        # Values that the program sets come without a client.
        slider.on_update(
            lambda event: event.client_id is not None and place(at, float(np.clip(slider.value, lower, upper)))
        )

    def add_details(self) -> None:
        """Add what is left of each task, which may be of any length: last."""
        self._details = self.gui.add_markdown("")

    def show(self, shown: Shown, limited: Mapping[int, str]) -> None:
        """What became of the targets; at most ten times a second while the robot is on its way.

        Args:
          shown: what there is to show.
          limited: of the joints at a limit, by index in q, which it is.
        """
        now = time.perf_counter()
        if shown.status == "MOVING" and now < self._next:
            return
        self._next = now + 1 / REFRESH
        names = [f"{self._sliders[at][0]} ({which})" for at, which in limited.items() if at in self._sliders]
        self._status.content = status_line(shown)
        self._details.content = table(shown) + (f"\n\n{MARK}at its limit: {', '.join(names)}" if names else "")
        for at, (name, slider) in self._sliders.items():
            label = MARK + name if at in limited else name
            if slider.label != label:
                slider.label = label
            value = _on_slider(shown.q[at], slider.min, slider.max, slider.step)
            if slider.value != value:
                slider.value = value


def _on_slider(value: float, lower: float, upper: float, step: float) -> float:
    """A value as the slider has it: in whole steps, which are round numbers, but for the limits."""
    return float(np.clip(float(f"{round(float(value) / step) * step:.9g}"), lower, upper))


def at_limits(robot: Robot, q: np.ndarray) -> dict[int, str]:
    """Of the hinges and slides that are at a limit, "lower" or "upper" by index in q (nq,)."""
    found = {}
    for j in robot.topology.scalar_joints:
        at = robot.topology.joints[j].q_index
        if q[at] <= robot.limit_lower[j] + AT_LIMIT:
            found[at] = "lower"
        elif q[at] >= robot.limit_upper[j] - AT_LIMIT:
            found[at] = "upper"
    return found


def status_line(shown: Shown | None) -> str:
    """How it ended, as Markdown: one line, so that what is below stays where it is."""
    if shown is None or not (shown.status or shown.error):
        return "Drag a handle."
    if shown.error:
        return f"**error**: {shown.error}"
    if shown.status == "COMPILING":
        return "**COMPILING**, then the robot follows"
    return f"**{shown.status}** in {shown.milliseconds:.1f} ms"


def table(shown: Shown) -> str:
    """What is left of each task, as Markdown: residuals in mm and degrees, and 1/2 |cost * residual|^2."""
    if not shown.residuals:
        return ""
    lines = ["| task | residual | objective |", "|---|---|---|"]
    costs = dict(shown.costs)
    for part, norm in shown.residuals.items():
        cost = costs.pop(part.split("/")[0], None)
        lines.append(f"| {part} | {_length_or_angle(part, norm)} | {'' if cost is None else f'{cost:.3g}'} |")
    return "\n".join(lines)


def _length_or_angle(part: str, norm: float) -> str:
    if part.endswith("/position"):
        return f"{norm:.3g} m" if norm >= 1 else f"{1e3 * norm:.3g} mm"
    return f"{np.degrees(norm):.3g} deg" if part.endswith("/orientation") else f"{norm:.3g}"
