"""Play a path: a slider for the moment that is shown, and a button."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Seconds that a configuration is seen: where the path has more of them, some are passed over.
FRAME = 1 / 30


class Player:
    """The controls of a path.

    Args:
      gui: of a `viser.ViserServer`.
      path (T, nq): one configuration after the other.
      dt: seconds from one to the next.
      place: called with the configuration to show.
    """

    def __init__(self, gui: Any, path: np.ndarray, dt: float, place: Callable[[np.ndarray], None]) -> None:
        """Add a slider and a button; the first configuration is not placed."""
        self._path, self._dt, self._place = path, dt, place
        self._playing = threading.Event()
        self._thread: threading.Thread | None = None
        self._slider = gui.add_slider("time [s]", 0.0, max(len(path) - 1, 1) * dt, dt, 0.0)
        self._button = gui.add_button("Play")
        self._slider.on_update(lambda event: event.client_id is not None and self.seek(self._slider.value))
        self._button.on_click(lambda _: self.stop() if self._playing.is_set() else self.play())

    def seek(self, seconds: float) -> None:
        """Show the configuration at a time, and stop there."""
        self.stop()
        self._show(round(seconds / self._dt))

    def play(self) -> None:
        """Go on from where the slider is, from the start if that is the end."""
        self.stop()
        self._playing.set()
        self._button.label = "Pause"
        self._thread = threading.Thread(target=self._run, name="jaxik.play", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop where the robot is."""
        self._playing.clear()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        last = len(self._path) - 1
        first = round(self._slider.value / self._dt)
        first, began, index = (0 if first >= last else first), time.perf_counter(), -1
        while self._playing.is_set() and index < last:
            index = min(first + int((time.perf_counter() - began) / self._dt), last)
            self._slider.value = index * self._dt
            self._show(index)
            time.sleep(max(FRAME, self._dt) if index < last else 0.0)
        self._playing.clear()
        self._button.label = "Play"

    def _show(self, index: int) -> None:
        self._place(self._path[min(max(index, 0), len(self._path) - 1)])
