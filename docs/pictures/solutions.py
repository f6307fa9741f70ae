"""Draw the first picture of the README: `python docs/pictures/solutions.py`."""

from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlie

import jaxik

robot = jaxik.load_robot("ur5e")
down = jaxlie.SO3.from_x_radians(jnp.pi)
pose = jaxlie.SE3.from_rotation_and_translation(down, jnp.array([0.55, 0.15, 0.35]))
reach = jaxik.Problem(robot, {"tip": jaxik.FrameTask(robot.frame("tcp"), pose)})
every = jaxik.search(reach, jax.random.key(1), options=jaxik.SearchOptions(solutions=8))
assert bool(jnp.all(every.converged)), every
# The one with the highest elbow is drawn whole.
elbow = robot.frame_pose(every.q, "forearm_link").translation()[:, 2]
whole = int(jnp.argmax(elbow))
camera = jaxik.Camera(lookat=(0.2, 0.05, 0.3), distance=2.0, azimuth=105.0, elevation=-15.0)
drawn = {"ghosts": jnp.delete(every.q, whole, axis=0), "targets": pose, "camera": camera, "size": (800, 400)}
robot.show(every.q[whole], **drawn).save(Path(__file__).with_suffix(".png"))
