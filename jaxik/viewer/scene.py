"""The nodes of the page: the robot, its ghosts, and the handles of its targets."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jaxik.core.status import Status
from jaxik.pictures.drawing import BLUE, ORANGE, SKY, VERMILION
from jaxik.pictures.render import GHOST, GHOST_FACES
from jaxik.pictures.shapes import moved_shapes, shapes_of
from jaxik.pictures.simplify import simplified
from jaxik.problem.problem import Problem
from jaxik.robot.robot import Robot
from jaxik.tasks.frame import FrameTask
from jaxik.viewer.meshes import mesh, parts

# Corners around a circle: round enough from where a whole robot is in view; of ghosts, there are hundreds.
CORNERS, GHOST_CORNERS = 20, 8
# Triangles of the robot's meshes: half a megabyte.
FACES = 30_000
# Of the robot's size: handles, and how far away the camera is.
HANDLE, DISTANCE = 0.16, 1.5
# Handles nearer to each other than this share of the robot's size are at one place: smaller ones would not help.
CLOSEST = 0.02


class Scene:
    """The robot on a page.

    Args:
      server: a `viser.ViserServer`.
      robot: one robot.
      bodies (nbody, 7): poses of its bodies at first, wxyz and position [m].
    """

    def __init__(self, server: Any, robot: Robot, bodies: np.ndarray) -> None:
        """Draw the robot and its floor."""
        shapes = shapes_of(robot)
        self._scene, self._shapes = server.scene, simplified(shapes, FACES)
        moved = moved_shapes(shapes, robot.topology)
        self._parts_of_ghosts = functools.cache(lambda: parts(simplified(moved, GHOST_FACES), GHOST_CORNERS))
        self._handles: dict[str, Any] = {}
        self._ghosts: list[Any] = []
        self._parts: dict[int, list[tuple[Any, Any]]] = {}
        self._marked: frozenset[int] = frozenset()
        self.size = self._stage(server, bodies)
        self._bodies = {int(body): self._scene.add_frame(f"/robot/{body}", show_axes=False)
                        for body in np.unique(self._shapes.body)}  # fmt: skip
        for index in range(len(self._shapes.body)):
            self._add_shape(index)
        self.move(bodies)

    def _stage(self, server: Any, bodies: np.ndarray) -> float:
        """Floor, light and camera; returns the size of the robot [m]."""
        from viser.transforms import SO3

        at = bodies[self._shapes.body]
        position = at[:, 4:] + SO3(at[:, :4]) @ self._shapes.position
        low, high = position.min(axis=0), position.max(axis=0)
        size = max(float(np.linalg.norm(high - low)), 0.1)
        middle = (low + high) / 2
        self._scene.set_up_direction("+z")
        self._scene.add_grid("/floor", 6 * size, 6 * size, cell_size=size / 4, section_size=size,
                             position=(0.0, 0.0, min(0.0, float(low[2]))))  # fmt: skip
        server.initial_camera.look_at = tuple(middle)
        server.initial_camera.position = tuple(middle + DISTANCE * size * np.array([0.7, -0.6, 0.4]))
        return size

    def _add_shape(self, index: int) -> None:
        from viser.transforms import SO3

        shapes = self._shapes
        body = int(shapes.body[index])
        vertices, faces = mesh(shapes, index, CORNERS)
        color = _rgb(shapes.color[index, :3])
        node = self._scene.add_mesh_simple(
            f"/robot/{body}/{index}",
            vertices,
            faces,
            color=color,
            opacity=None if shapes.color[index, 3] == 1 else float(shapes.color[index, 3]),
            position=shapes.position[index],
            wxyz=SO3.from_matrix(shapes.rotation[index]).wxyz,
        )
        self._parts.setdefault(body, []).append((node, color))

    def move(self, bodies: np.ndarray) -> None:
        """Draw the robot with its bodies at poses (nbody, 7), wxyz and position [m]."""
        for body, node in self._bodies.items():
            node.wxyz, node.position = bodies[body, :4], bodies[body, 4:]

    def mark(self, bodies: frozenset[int]) -> None:
        """Draw these bodies, and no others, in the colour of what is at its limit."""
        for body in (bodies ^ self._marked) & self._parts.keys():
            for node, color in self._parts[body]:
                node.color = _rgb(VERMILION) if body in bodies else color
        self._marked = bodies

    def ghosts(self, bodies: np.ndarray, status: Any = None) -> None:
        """Draw robots (n, nbody, 7) transparent, those whose status (n,) is not CONVERGED in another colour.

        Replaces the ghosts that there were; where there are as many, they are moved.
        """
        count = len(bodies)
        converged = np.ones(count, bool) if status is None else np.asarray(status) == Status.CONVERGED
        if self._ghosts and len(self._ghosts[0].batched_positions) != count:
            self._scene.remove_by_name("/ghosts")
            self._ghosts = []
        for index, part in enumerate(self._parts_of_ghosts()):
            good, bad = (BLUE, VERMILION) if part.is_joint else (SKY, ORANGE)
            wxyz, position = bodies[:, part.body, :4], bodies[:, part.body, 4:]
            color = np.where(converged[:, None], _rgb(good), _rgb(bad)).astype(np.uint8)
            if index < len(self._ghosts):
                node = self._ghosts[index]
                node.batched_positions = position.astype(np.float32)
                node.batched_wxyzs = wxyz.astype(np.float32)
                node.batched_colors = color
                continue
            self._ghosts.append(
                self._scene.add_batched_meshes_simple(
                    f"/ghosts/{index}",
                    part.vertices,
                    part.faces,
                    wxyz,
                    position,
                    batched_colors=color,
                    opacity=GHOST,
                    lod="off",
                    cast_shadow=False,
                    receive_shadow=False,
                )
            )

    def show_ghosts(self, visible: bool) -> None:
        """Show the ghosts, or hide them."""
        for node in self._ghosts:
            node.visible = visible

    def targets(self, targets: dict[str, np.ndarray]) -> None:
        """Draw targets (7,) as axes, (3,) as balls; nobody drags them."""
        for name, target in targets.items():
            where = f"/targets/{name}"
            if target.shape == (3,):
                self._scene.add_icosphere(where, 0.02 * self.size, _rgb(ORANGE), position=target)
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
        size = self._handle_size([target[-3:] for target in targets.values()])
        for name, target in targets.items():
            task = problem.tasks[name]
            pose = target if target.shape == (7,) else np.concatenate([[1.0, 0, 0, 0], target])
            turns = isinstance(task, FrameTask) and task.orientation_cost is not None
            shifts = not isinstance(task, FrameTask) or task.position_cost is not None
            handle = self._scene.add_transform_controls(
                f"/handles/{name}",
                scale=size,
                disable_axes=not shifts,
                disable_sliders=not shifts,
                disable_rotations=not turns,
                depth_test=False,
                wxyz=pose[:4],
                position=pose[4:],
            )
            point = target.shape == (3,)
            if len(targets) > 1:
                self._scene.add_label(f"/handles/{name}/label", name)

            @handle.on_update
            def _(event: Any, name: str = name, point: bool = point) -> None:
                at = event.target
                moved(name, np.array(at.position) if point else np.concatenate([at.wxyz, at.position]))

            self._handles[name] = handle

    def _handle_size(self, points: list[np.ndarray]) -> float:
        """Of handles at points (3,) [m]: neighbours do not cover each other, however small that makes them."""
        apart = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(points, 2)]
        nearest = min((x for x in apart if x > CLOSEST * self.size), default=self.size)
        return min(HANDLE * self.size, nearest)

    def move_handle(self, name: str, pose: np.ndarray) -> None:
        """Put a handle at a pose (7,), wxyz and position [m], or at a point (3,) [m]."""
        self._handles[name].position = pose[-3:]
        if pose.shape == (7,):
            self._handles[name].wxyz = pose[:4]


def _rgb(color: Iterable[float]) -> tuple[int, int, int]:
    red, green, blue = (round(255 * share) for share in color)
    return red, green, blue
