"""MuJoCo's renderer, without a screen."""

import atexit
import ctypes.util
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.kinematics.visual import Mesh
from jaxik.pictures.camera import Camera
from jaxik.pictures.drawing import Drawing

INSTALL = "on Debian or Ubuntu `apt-get install libegl1 libosmesa6`; MUJOCO_GL=egl, osmesa or glfw chooses one"


class Canvas:
    """A picture of some size that shapes are drawn on. It belongs to the thread that makes it."""

    def __init__(self, width: int, height: int, meshes: Sequence[Mesh] = ()) -> None:
        """Open MuJoCo's renderer, with the meshes that can be drawn.

        Raises:
          JaxikError: where there is no OpenGL.
        """
        spec = mujoco.MjSpec.from_string(_SCENE.format(width=width, height=height))
        for index, mesh in enumerate(meshes):
            spec.add_mesh(
                name=str(index),
                uservert=mesh.vertices.ravel(),
                userface=mesh.faces.ravel(),
                inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,  # others refuse what is flat or not closed
            )
        self._model = spec.compile()
        self._meshes = {mesh: index for index, mesh in enumerate(meshes)}
        self._data = mujoco.MjData(self._model)
        self._gl = _context(width, height)
        self._gl.make_current()
        try:
            self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_150)
        except mujoco.FatalError as error:  # a context that opens, as glfw's without a display, and is none
            raise JaxikError(f"OpenGL by {backend()} does not work here ({error}): {INSTALL}") from None
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._rect = mujoco.MjrRect(0, 0, width, height)

    def draw(self, drawing: Drawing, camera: Camera, floor: float) -> np.ndarray:
        """The picture (height, width, 3) uint8 of a drawing above a floor at some height [m]."""
        model, data = self._model, self._data
        self._gl.make_current()
        model.vis.global_.fovy = camera.field_of_view
        # In units of this is what is cut off as too near or too far, and what casts shadows.
        model.stat.extent = camera.distance / 2
        model.light_pos[0] = camera.lookat - 1.5 * camera.distance * model.light_dir[0]
        mujoco.mj_forward(model, data)
        view = mujoco.MjvCamera()
        view.lookat[:], view.distance = camera.lookat, camera.distance
        view.azimuth, view.elevation = camera.azimuth, camera.elevation
        scene = mujoco.MjvScene(model, maxgeom=len(drawing.kind) + 10)
        option, every = mujoco.MjvOption(), mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(model, data, option, None, view, every, scene)
        scene.geoms[0].pos[2] = floor
        for kind, size, position, rotation, color, mesh in zip(*drawing, strict=True):
            geom = scene.geoms[scene.ngeom]
            if mesh is not None:
                size, position, rotation = np.ones(3), *self._placed(mesh, position, rotation)
            mujoco.mjv_initGeom(geom, int(kind), size, position, rotation.ravel(), color.astype(np.float32))
            if mesh is not None:
                geom.dataid = 2 * self._meshes[mesh]  # odd ones are convex hulls
            geom.specular, geom.shininess = 0.3, 0.3
            scene.ngeom += 1
        picture = np.empty((self._rect.height, self._rect.width, 3), np.uint8)
        mujoco.mjr_render(self._rect, scene, self._context)
        mujoco.mjr_readPixels(picture, None, self._rect, self._context)
        return picture[::-1].copy()

    def _placed(self, mesh: Mesh, position: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where a mesh goes whose vertices MuJoCo's compiler has put about their centre and main axes."""
        index, turned = self._meshes[mesh], np.empty(9)
        mujoco.mju_quat2Mat(turned, self._model.mesh_quat[index])
        return position + rotation @ self._model.mesh_pos[index], rotation @ turned.reshape(3, 3)

    def free(self) -> None:
        """Give the memory back; after that nothing can be drawn."""
        self._gl.make_current()
        self._context.free()
        self._gl.free()


_SCENE = """
<mujoco>
  <visual>
    <global offwidth="{width}" offheight="{height}"/>
    <headlight ambient=".35 .35 .35" diffuse=".5 .5 .5" specular=".1 .1 .1"/>
    <map znear="0.02" zfar="60" shadowclip="10"/>
    <quality shadowsize="4096" offsamples="8"/>
  </visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="1 1 1" rgb2=".86 .9 .94" width="64" height="64"/>
    <texture name="floor" type="2d" builtin="checker" rgb1=".93 .94 .95" rgb2=".88 .89 .91" width="128" height="128"/>
    <material name="floor" texture="floor" texrepeat="2 2" texuniform="true" reflectance="0"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 4" dir="-.2 .3 -.93" diffuse=".45 .45 .45" specular="0 0 0"/>
    <geom type="plane" size="0 0 1" material="floor"/>
  </worldbody>
</mujoco>
"""


# Canvases that a thread keeps: opening one takes 0.3 s.
KEPT = 4
Key = tuple[int, int, int, tuple[Mesh, ...]]
_canvases: dict[Key, Canvas] = {}


def canvas(width: int, height: int, drawing: Drawing | None = None) -> Canvas:
    """A canvas of this size for drawings with these meshes, which is kept for the next picture."""
    thread = threading.get_ident()
    meshes = () if drawing is None else tuple(dict.fromkeys(mesh for mesh in drawing.mesh if mesh is not None))
    key = width, height, thread, meshes
    if key not in _canvases:
        # A context is current in one thread at most: those of others are left to them.
        own = [known for known in _canvases if known[2] == thread]
        if len(own) >= KEPT:
            _canvases.pop(own[0]).free()
        _canvases[key] = Canvas(width, height, meshes)
        # What is registered last runs first: before MuJoCo closes the display.
        atexit.unregister(_free)
        atexit.register(_free)
    return _canvases[key]


def _free() -> None:
    """Give contexts back before the interpreter takes away what they are freed with."""
    for key in [key for key in _canvases if key[2] == threading.get_ident()]:
        _canvases.pop(key).free()


def backend() -> str | None:
    """How to draw without a window: as MUJOCO_GL says, else what is installed; None where nothing is.

    Only one may be tried in a process: PyOpenGL keeps to the first.
    """
    asked = os.environ.get("MUJOCO_GL", "").strip().lower()
    if asked in ("egl", "osmesa", "glfw", "cgl"):
        return asked
    if sys.platform == "darwin":
        return "cgl"
    if sys.platform != "linux":
        return "glfw"
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            return name
    return "glfw" if os.environ.get("DISPLAY") else None


def _context(width: int, height: int) -> Any:
    name = backend()
    if name is None:
        raise JaxikError(f"there is no OpenGL to draw with: {INSTALL}")
    try:
        return importlib.import_module(f"mujoco.{name}").GLContext(width, height)
    except Exception as error:  # each backend has errors of its own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise JaxikError(f"OpenGL by {name} does not work here ({reason}): {INSTALL}") from None
