"""Draw the picture of the page on motion planning, of what the code there does: `python docs/pictures/planning.py`."""

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import jaxik

FOLDER = Path(__file__).parent
page: dict[str, Any] = {}
code = re.findall(r"^```python\n(.*?)^```$", (FOLDER.parent / "planning.md").read_text(), re.M | re.S)
exec(code[0], page)
arm, motion, shelf = page["arm"], page["motion"], page["shelf"]

moves = np.flatnonzero(np.any(np.asarray(motion.velocity) != 0, axis=-1))
moments = [0, *(round(share * moves[-1]) for share in (0.3, 0.5, 0.7)), moves[-1]]
figure, axes = plt.subplots(1, len(moments), figsize=(15, 3.4), layout="constrained")
camera = jaxik.Camera(lookat=(0.35, 0.0, 0.5), distance=2.2, azimuth=35.0, elevation=-20.0)
for moment, panel in zip(moments, axes, strict=True):
    panel.imshow(jaxik.render(arm, motion.q[moment], world=shelf, camera=camera, size=(520, 560)))
    panel.set_title(f"{float(motion.time[moment]):.1f} s")
    panel.axis("off")
figure.savefig(FOLDER / "planning.png", dpi=110)
