"""All obstacles of a robot, of every kind."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.batching.broadcast import batch_shape
from jaxik.collision.fields import Points, VoxelField
from jaxik.collision.mesh_hulls import hull_vertices, padded
from jaxik.collision.obstacles import Boxes, Capsules, Cylinders, Ellipsoids, Hulls, Planes, Spheres
from jaxik.collision.pairs import FIELDS
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import core_ranks, leaf, pytree

# The numbers of MuJoCo's kinds of geoms (mjtGeom).
_HEIGHTS, _MESH = 1, 7
_OF_MUJOCO = {0: "planes", 2: "spheres", 3: "capsules", 4: "ellipsoids", 5: "cylinders", 6: "boxes", _MESH: "hulls"}


@pytree
class World:
    """What a robot must not touch.

    Each leaf may have leading batch axes, which broadcast: a thousand robots may each have their own world, and the
    calls of jaxik take it as it is, and `element(i)` is that of one of them. For a `jax.vmap` of your own, make the
    world inside.

    Args:
      spheres, capsules, boxes, cylinders, ellipsoids, hulls, planes: obstacles of each kind; None for none.
      field: a grid of distances, as of a height field or a scan; points: a cloud. From these, capsules or spheres that
        enclose the robot's shapes are kept away.

    Raises:
      JaxikError: for a wrong type, and for a world without obstacles.
    """

    spheres: Spheres | None = leaf(default=None)
    capsules: Capsules | None = leaf(default=None)
    boxes: Boxes | None = leaf(default=None)
    cylinders: Cylinders | None = leaf(default=None)
    ellipsoids: Ellipsoids | None = leaf(default=None)
    hulls: Hulls | None = leaf(default=None)
    planes: Planes | None = leaf(default=None)
    field: VoxelField | None = leaf(default=None)
    points: Points | None = leaf(default=None)

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise JaxikError(f"World: {name} are jaxik.{kind.__name__}(...), not {type(value).__name__}")
        if not self.counts:
            raise JaxikError(f"World() has no obstacles: give it {', '.join(_KINDS)}; or say world=None")

    @classmethod
    def from_mujoco(cls, model: Any, data: Any = None, *, cell: float | None = None) -> World:
        """What stands still in a model and collides (contype, conaffinity), meshes as their convex hulls.

        A height field becomes a `VoxelField`: of 100 x 100 heights in about a second, of more with a larger cell.

        Args:
          model: a mujoco.MjModel of a scene, with or without a robot; nothing that moves is taken. It is not modified.
          data: its mujoco.MjData with the kinematics computed, for bodies that were put elsewhere (mocap); None: all
            stand where the model has them.
          cell: of the grid of a height field [m]; None: as wide as its own are.

        Raises:
          JaxikError: if nothing stands still that collides; for a second height field, what is of no kind here, and
            what is no model.
        """
        if not hasattr(model, "geom_contype"):
            raise JaxikError(
                f"model is a mujoco.MjModel, not {type(model).__name__}: of a file, mujoco.MjModel.from_xml_path(path)"
            )
        return cls(**_standing(model, data, cell))

    def element(self, index: Any) -> World:
        """The World of one robot of a batch, or of some.

        Args:
          index: of the batch axes, as of an array: a number, a slice, or a tuple of such.
        """
        batch = batch_shape((self,), (core_ranks(self),))

        def taken(x: Any, rank: int) -> Any:
            return jnp.broadcast_to(x, (*batch, *np.shape(x)[np.ndim(x) - rank :]))[index]

        return jax.tree.map(taken, self, core_ranks(self))

    @property
    def counts(self) -> dict[str, int]:
        """How many obstacles there are of each kind that has any, those that are masked included."""
        every = {name: getattr(self, name) for name in _KINDS}
        for name, value in every.items():
            if name not in FIELDS and value is not None and np.ndim(value.mask) < 1:
                raise JaxikError(
                    f"the {name} of this World were taken apart leaf by leaf, as by jax.tree.map or jax.vmap, and not "
                    "each leaf has the batch axes: take world.element(i), call jaxik with the whole batch, or make the "
                    "World inside of what is mapped"
                )
        return {
            name: 1 if name in FIELDS else value.mask.shape[-1] for name, value in every.items() if value is not None
        }


_KINDS = {
    "spheres": Spheres,
    "capsules": Capsules,
    "boxes": Boxes,
    "cylinders": Cylinders,
    "ellipsoids": Ellipsoids,
    "hulls": Hulls,
    "planes": Planes,
    "field": VoxelField,
    "points": Points,
}


def _standing(model: Any, data: Any, cell: float | None) -> dict[str, Any]:
    """The obstacles of a model by kind."""
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    still = np.flatnonzero(collides & (model.body_weldid[model.geom_bodyid] == 0))
    terrain = [int(g) for g in still if model.geom_type[g] == _HEIGHTS]
    still = np.setdiff1d(still, terrain)
    unknown = [model.geom(g).name or f"geom {g}" for g in still if model.geom_type[g] not in _OF_MUJOCO]
    if unknown:
        raise JaxikError(f"only {', '.join(_OF_MUJOCO.values())} are obstacles, not {', '.join(unknown)}")
    if len(terrain) > 1:
        raise JaxikError(f"a World has one height field, this model {len(terrain)}: take their geoms in turn")
    poses = _placed(model, data, still)
    found: dict[str, Any] = {}
    if terrain:
        axes, position = (x[0] for x in _placed(model, data, np.array(terrain)))
        found["field"] = _height_field(model, terrain[0], axes, position, cell)
    for number in dict.fromkeys(model.geom_type[still].tolist()):
        rows = model.geom_type[still] == number
        axes, position = (x[rows] for x in poses)
        vertices = [hull_vertices(model, int(i)) for i in model.geom_dataid[still[rows]]] if number == _MESH else []
        found[_OF_MUJOCO[number]] = _obstacles(
            _OF_MUJOCO[number], axes, position, model.geom_size[still[rows]], vertices
        )
    if not found:
        raise JaxikError("nothing of this model stands still and collides: no World can be made of it")
    return found


def _obstacles(kind: str, axes: np.ndarray, position: np.ndarray, size: np.ndarray, vertices: list[np.ndarray]) -> Any:
    """Obstacles of one kind from axes (n, 3, 3), positions (n, 3) and MuJoCo's sizes (n, 3)."""
    z = axes[:, :, 2]
    pose = jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.from_matrix(jnp.asarray(axes)), jnp.asarray(position))
    match kind:
        case "spheres":
            return Spheres(position, size[:, 0])
        case "capsules":
            return Capsules(position - z * size[:, 1:2], position + z * size[:, 1:2], size[:, 0])
        case "boxes":
            return Boxes(pose, size)
        case "cylinders":
            return Cylinders(pose, size[:, 0], size[:, 1])
        case "ellipsoids":
            return Ellipsoids(pose, size)
        case "planes":
            return Planes(z, np.sum(z * position, axis=1))
        case _:
            return Hulls(pose, padded(vertices))


def _height_field(model: Any, geom: int, axes: np.ndarray, position: np.ndarray, cell: float | None) -> VoxelField:
    """A height field of MuJoCo: rows along y, heights as shares of the largest, over a base that is solid."""
    number = model.geom_dataid[geom]
    half_x, half_y, largest, base = model.hfield_size[number]
    rows, columns = model.hfield_nrow[number], model.hfield_ncol[number]
    start = model.hfield_adr[number]
    heights = largest * model.hfield_data[start : start + rows * columns].reshape(rows, columns).T
    spacing = np.array([2 * half_x / (columns - 1), 2 * half_y / (rows - 1)])
    corner = position + axes @ [-half_x, -half_y, 0]
    rotation = jaxlie.SO3.from_matrix(jnp.asarray(axes))
    pose = jaxlie.SE3.from_rotation_and_translation(rotation, jnp.asarray(corner))
    return VoxelField.from_heights(heights, spacing, pose, cell=cell, room=max(float(base), 0.2))


def _placed(model: Any, data: Any, geoms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if data is None:
        return _poses_of(model, geoms)
    return data.geom_xmat[geoms].reshape(-1, 3, 3), data.geom_xpos[geoms]


def _poses_of(model: Any, geoms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotations (n, 3, 3) and positions (n, 3) of geoms whose bodies do not move."""

    def matrix(quaternion: np.ndarray) -> np.ndarray:
        return np.asarray(jaxlie.SO3(jnp.asarray(quaternion)).as_matrix(), float)

    def below(body: int) -> tuple[np.ndarray, np.ndarray]:
        if body == 0:
            return np.eye(3), np.zeros(3)
        rotation, position = below(int(model.body_parentid[body]))
        return rotation @ matrix(model.body_quat[body]), position + rotation @ model.body_pos[body]

    placed = []
    for g in geoms:
        rotation, position = below(int(model.geom_bodyid[g]))
        placed.append((rotation @ matrix(model.geom_quat[g]), position + rotation @ model.geom_pos[g]))
    rotations, positions = zip(*placed, strict=True) if placed else ((), ())
    return np.reshape(rotations, (-1, 3, 3)), np.reshape(positions, (-1, 3))
