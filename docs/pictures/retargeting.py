"""Draw the picture of the page on retargeting, of what the code there does: `python docs/pictures/retargeting.py`."""

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import jaxik

FOLDER = Path(__file__).parent
SCALE = 228  # pixels of a metre, where the robot stands
page: dict[str, Any] = {}
exec(
    "\n".join(re.findall(r"^```python\n(.*?)^```$", (FOLDER.parent / "retargeting.md").read_text(), re.M | re.S)), page
)
robot, motion, poses = page["robot"], page["motion"], page["poses"]

moments = (0, 29, 59, 89)
arms = [["Chest", *(f"{side}{body}" for body in ("Arm", "ForeArm", "Hand"))] for side in ("left", "right")]
legs = [["Hips", *(f"{side}{body}" for body in ("Leg", "Foot"))] for side in ("left", "right")]
figure, axes = plt.subplots(1, len(moments), figsize=(12, 2.3), layout="constrained")
camera = jaxik.Camera(lookat=(0.0, 0.55, 0.83), distance=3.2, azimuth=180.0, elevation=-5.0)
for moment, panel in zip(moments, axes, strict=True):
    panel.imshow(jaxik.render(robot, motion.q[moment], camera=camera, size=(640, 440)))
    # The person stands beside the robot; from the front, y goes to the right.
    for chain in [["Head", "Chest", "Hips"], *arms, *legs]:
        points = np.stack([np.asarray(poses[body].translation()[moment]) for body in chain])
        across, up = 320 + SCALE * (points[:, 1] + 0.62), 220 - SCALE * (points[:, 2] - 0.83)
        panel.plot(across, up, "o-", color="tab:orange", linewidth=3, markersize=4)
    panel.set_title(f"{float(motion.time[moment]):.1f} s")
    panel.set(xlim=(0, 640), ylim=(440, 0))
    panel.axis("off")
figure.savefig(FOLDER / "retargeting.png", dpi=130)
