"""The nodes of the page: the robot, its ghosts, and the handles of its targets."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.core.status import Status
from jaxik.pictures.drawing import BLUE, LINK, ORANGE, SKY, VERMILION, draw_robot
from jaxik.pictures.render import GHOST
from jaxik.pictures.shapes import CAPSULE, CYLINDER, SPHERE, Shapes, automatic_shapes
from jaxik.problem.problem import Problem
from jaxik.robot.robot import Robot
from jaxik.tasks.frame import FrameTask

# Corners around a circle: round enough from where a whole robot is in view; of ghosts, there are hundreds.
CORNERS, GHOST_CORNERS = 20, 8
# Of the robot's size: handles, and how far away the camera is.
HANDLE, DISTANCE = 0.16, 1.5


class Scene:
    """The robot on a page.

    Args:
      server: a `viser.ViserServer`.
      robot: one robot.
      q (nq,): where it is drawn.
    """

    def __init__(self, server: Any, robot: Robot, q: Any) -> None:
        """Draw the robot and its floor."""
        self._scene, self._robot = server.scene, robot
        self._shapes = automatic_shapes(robot)
        self._handles: dict[str, Any] = {}
        self._ghosts: list[Any] = []
        bodies = np.asarray(robot.forward(q).wxyz_xyz, float)
        self.size = self._stage(server, q)
        self._bodies = {int(body): self._scene.add_frame(f"/robot/{body}", show_axes=False)
                        for body in np.unique(self._shapes.body)}  # fmt: skip
        for index in range(len(self._shapes.body)):
            self._add_shape(index)
        self.move(bodies)

    def _stage(self, server: Any, q: Any) -> float:
        """Floor, light and camera; returns the size of the robot [m]."""
        drawn = draw_robot(self._robot, self._shapes, q)
        low, high = drawn.position.min(axis=0, initial=0.0), drawn.position.max(axis=0, initial=0.0)
        size = max(float(np.linalg.norm(high - low)), 0.1)
        middle = (low + high) / 2
        self._scene.set_up_direction("+z")
        self._scene.add_grid("/floor", 6 * size, 6 * size, cell_size=size / 4, section_size=size,
                             position=(0.0, 0.0, min(0.0, float(low[2]))))  # fmt: skip
        server.initial_camera.look_at = tuple(middle)
        server.initial_camera.position = tuple(middle + DISTANCE * size * np.array([0.7, -0.6, 0.4]))
        return size

    def _add_shape(self, index: int) -> None:
        shapes = self._shapes
        vertices, faces = mesh(shapes, index, CORNERS)
        self._scene.add_mesh_simple(
            f"/robot/{shapes.body[index]}/{index}",
            vertices,
            faces,
            color=tuple(BLUE if shapes.is_joint[index] else LINK),
            position=shapes.position[index],
            wxyz=_wxyz(shapes.rotation[index]),
        )

    def move(self, bodies: np.ndarray) -> None:
        """Draw the robot with its bodies at poses (nbody, 7), wxyz and position [m]."""
        for body, node in self._bodies.items():
            node.wxyz, node.position = bodies[body, :4], bodies[body, 4:]

    def ghosts(self, q: Any, status: Any = None) -> None:
        """Draw configurations (n, nq) transparent, those whose status (n,) is not CONVERGED in another colour.

        Replaces the ghosts that there were; where there are as many, they are moved.
        """
        shapes, count = self._shapes, len(q)
        converged = np.ones(count, bool) if status is None else np.asarray(status) == Status.CONVERGED
        drawn = draw_robot(self._robot, shapes, q)
        position = drawn.position.reshape(count, -1, 3)
        wxyz = _wxyz(drawn.rotation).reshape(count, -1, 4)
        if self._ghosts and len(self._ghosts[0].batched_positions) != count:
            self._scene.remove_by_name("/ghosts")
            self._ghosts = []
        for index in range(len(shapes.body)):
            good, bad = (BLUE, VERMILION) if shapes.is_joint[index] else (SKY, ORANGE)
            color = np.where(converged[:, None], *(np.round(255 * np.array(c)) for c in (good, bad))).astype(np.uint8)
            if index < len(self._ghosts):
                node = self._ghosts[index]
                node.batched_positions = position[:, index].astype(np.float32)
                node.batched_wxyzs = wxyz[:, index].astype(np.float32)
                node.batched_colors = color
                continue
            self._ghosts.append(
                self._scene.add_batched_meshes_simple(
                    f"/ghosts/{index}",
                    *mesh(shapes, index, GHOST_CORNERS),
                    wxyz[:, index],
                    position[:, index],
                    batched_colors=color,
                    opacity=GHOST,
                    lod="off",
                    cast_shadow=False,
                    receive_shadow=False,
                )
            )

    def targets(self, targets: dict[str, np.ndarray]) -> None:
        """Draw targets (7,) as axes, (3,) as balls; nobody drags them."""
        for name, target in targets.items():
            where = f"/targets/{name}"
            if target.shape == (3,):
                self._scene.add_icosphere(where, 0.02 * self.size, ORANGE, position=target)
                continue
            self._scene.add_frame(
                where,
                axes_length=HANDLE * self.size / 2,
                axes_radius=0.03 * HANDLE * self.size,
                wxyz=target[:4],
                position=target[4:],
            )

    def handles(
        self, problem: Problem, targets: dict[str, np.ndarray], moved: Callable[[str, np.ndarray], None]
    ) -> None:
        """Add a handle for each target, by which it is dragged; `moved` is called with its name and where it is."""
        for name, target in targets.items():
            task = problem.tasks[name]
            pose = target if target.shape == (7,) else np.concatenate([[1.0, 0, 0, 0], target])
            turns = isinstance(task, FrameTask) and task.orientation_cost is not None
            shifts = not isinstance(task, FrameTask) or task.position_cost is not None
            handle = self._scene.add_transform_controls(
                f"/handles/{name}",
                scale=HANDLE * self.size,
                disable_axes=not shifts,
                disable_sliders=not shifts,
                disable_rotations=not turns,
                depth_test=False,
                wxyz=pose[:4],
                position=pose[4:],
            )
            point = target.shape == (3,)

            @handle.on_update
            def _(event: Any, name: str = name, point: bool = point) -> None:
                at = event.target
                moved(name, np.array(at.position) if point else np.concatenate([at.wxyz, at.position]))

            self._handles[name] = handle

    def move_handle(self, name: str, pose: np.ndarray) -> None:
        """Put a handle at a pose (7,)."""
        self._handles[name].wxyz, self._handles[name].position = pose[:4], pose[4:]


def mesh(shapes: Shapes, index: int, corners: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (n, 3) [m] and triangles (m, 3) of a shape about its own origin."""
    from trimesh import creation

    kind, (a, b, _) = shapes.kind[index], shapes.size[index]
    if kind == SPHERE:
        made = creation.uv_sphere(a, [corners // 2, corners])
    elif kind == CAPSULE:
        made = creation.capsule(2 * b, a, [corners, corners])
    elif kind == CYLINDER:
        made = creation.cylinder(a, 2 * b, sections=corners)
    else:
        made = creation.box(2 * shapes.size[index])
    vertices = np.asarray(made.vertices) - np.mean(made.bounds, axis=0)
    return vertices, np.asarray(made.faces)


def _wxyz(rotation: np.ndarray) -> np.ndarray:
    return np.asarray(jaxlie.SO3.from_matrix(jnp.asarray(rotation)).wxyz, float)
