"""Tracks in files: `.npz`, read back by `jaxik.load` and by anyone's `numpy.load(path)`.

That of a motion of T steps, in SI units:

| array | shape | |
|---|---|---|
| `time` | (T,) or (T, *batch) | when each configuration is reached [s] |
| `q` | (T, *batch, nq) | configurations; `q_joint`, `q_unit` say what each column is, as of a solution |
| `velocity`, `acceleration` | (T, *batch, nv) | in MuJoCo's tangent |
| `status`, `derivative_status` | (T, *batch) | `status_names[status]` are their names |
| `residuals/TASK/PART` | (T, *batch, n) | what a task reports: of a `FrameTask` position [m], orientation [rad] |
| `yielded/NAME/PART` | (T, *batch, n) | by how much what is `Elastic` yielded in each step |
| `speed_share`, `acceleration_share`, `jerk_share` | (T, *batch) | the largest of a joint, as shares of the limits |
| `dt` | (*batch,) | duration of a step [s] |
| `settled` | (*batch,) | whether smoothing settled, of motions of a whole path alone |
"""

import dataclasses
from typing import IO

import jax.numpy as jnp

from jaxik.core import archive
from jaxik.core.archive import Archive
from jaxik.core.status import Status
from jaxik.core.trees import nested, parts
from jaxik.core.version import __version__
from jaxik.results.track import Track
from jaxik.robot.loading import npz as robot_npz

FORMAT = "jaxik track"
# Fields that hold arrays by name.
_NAMED = ("residuals", "yielded")
_OF_WHOLE = "settled"
_ARRAYS = tuple(
    f.name for f in dataclasses.fields(Track) if "rank" in f.metadata and f.name not in (*_NAMED, _OF_WHOLE)
)
_UNITS = {"q": "see q_unit", "velocity": "rad/s or m/s", "acceleration": "rad/s^2 or m/s^2", "dt": "s", "time": "s"}


def write_track(file: IO[bytes], track: Track) -> None:
    """Write a track to an `.npz`."""
    arrays = {name: getattr(track, name) for name in _ARRAYS} | {"time": track.time}
    arrays |= {} if track.settled is None else {_OF_WHOLE: track.settled}
    for field in _NAMED:
        arrays |= {f"{field}/{part}": array for part, array in parts(getattr(track, field)).items()}
    arrays |= robot_npz.names(track.topology) | {"status_names": [status.name for status in Status]}
    units = _UNITS | {f"residuals/{part}": unit for part, unit in track.residual_units}
    archive.write(file, FORMAT, __version__, arrays, units)


def track_of(found: Archive) -> Track:
    """The track that a file holds."""
    topology = robot_npz.topology_of(found)
    given = (*_ARRAYS, _OF_WHOLE) if _OF_WHOLE in found.arrays else _ARRAYS
    arrays = {name: found.numbers(name, ()) for name in given}
    steps = arrays["status"].shape
    for name, width in (("q", topology.nq), ("velocity", topology.nv), ("acceleration", topology.nv)):
        if arrays[name].shape != (*steps, width):
            raise found.wrong(f"{name!r} has shape {(*steps, width)}, not {arrays[name].shape}")
    named = {f: {n[len(f) + 1 :]: x for n, x in found.arrays.items() if n.startswith(f"{f}/")} for f in _NAMED}
    for field, part, array in ((f, n, x) for f, found_of in named.items() for n, x in found_of.items()):
        if array.shape[: len(steps)] != steps:
            raise found.wrong(f"'{field}/{part}' has shape {(*steps, '...')}, not {array.shape}")
    robot_npz.rounded(found, "where q may leave its limits by a rounding", *arrays.values())
    units = found.json("units")
    return Track(
        **{name: jnp.asarray(x) for name, x in arrays.items()},
        residuals=nested({part: jnp.asarray(x) for part, x in named["residuals"].items()}),
        yielded=nested({part: jnp.asarray(x) for part, x in named["yielded"].items()}),
        topology=topology,
        residual_units=tuple((part, str(units.get(f"residuals/{part}", ""))) for part in sorted(named["residuals"])),
    )
