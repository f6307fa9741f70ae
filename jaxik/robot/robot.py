"""What one asks of a robot: its configurations, and where they put its bodies, frames and masses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.batching.broadcast import batch_shape
from jaxik.collision.clearance import clearance
from jaxik.collision.distances import Distances, distances, table_of
from jaxik.collision.pairs import PairTable, named_pairs
from jaxik.collision.shapes import shape_frames
from jaxik.collision.world import World
from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import core_ranks, pytree
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import CollisionPairs, geometry_of
from jaxik.kinematics.home import home_origin
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.schedule import Plan, plan
from jaxik.kinematics.topology import Topology, subtree
from jaxik.robot import batched
from jaxik.robot.closure import with_closure
from jaxik.robot.equality_lookup import select
from jaxik.robot.joint_data import read_joints, write_joints
from jaxik.robot.pins import pinned
from jaxik.robot.root_joints import FREE, PLANAR, with_root_joints
from jaxik.robot.switching import candidate, with_active
from jaxik.robot.trimming import find_roots, trimmed

# Configurations from which on a program for one frame alone is worth its compilation: of 4,096 humanoids it takes a
# tenth of the time.
MANY = 512


@pytree
class Robot(RobotModel):
    """A robot: static topology, and leaves that may be batched, differentiated and replaced.

    Every leaf may have leading batch axes: a thousand robots with different link lengths are one `Robot`. The dtype of
    the configuration decides: leaves are cast to it at use. `RobotModel` says what the leaves are.
    """

    @property
    def q_home_origin(self) -> str:
        """Where `q_home` comes from: "keyframe 'home'", "qpos0 moved inside the limits" or "set after loading"."""
        return home_origin(self)

    def show(self, q: Any = None, **options: Any) -> Any:
        """A `Picture` of the robot at configurations (*batch, nq), `q_home` by default, that a notebook shows.

        Options are those of `jaxik.render`; `.save("robot.png")` writes it.
        """
        from jaxik.pictures.show import show_robot

        return show_robot(self, q, **options)

    # --- changes -----------------------------------------------------------------------------------------------

    def with_closure(
        self,
        name: str,
        first: Frame | str,
        second: Frame | str | list[Any] | tuple[Any, ...],
        kind: str | Sequence[str] = "weld",
        *,
        axis: Any = (0.0, 0.0, 1.0),
        q: Any = None,
    ) -> Robot:
        """A robot with one more closed loop: two of its frames held together, as by a joint between them.

        Every problem of it keeps the closure as a constraint, as those of its model, unless it names its own:
        `constraints={}` has none, and `EqualityConstraintTask(robot.equalities(name), cost=...)` makes a task of it.

        Args:
          name: of the closure.
          first, second: bodies, sites or geoms of two bodies that move against each other; one may be the world's. A
            list as the second has candidates, of which the first one is held until `with_active` picks another; each is
            a closure of its own, `name/frame`.
          kind: what is held: "spherical" (a point, 3 rows), "universal" (4), "hinge" (a point and an axis, 5),
            "cylinder" (an axis, 4), "slide" (an axis and the turn about it, 5), "weld" (6); or any of "x", "y", "z",
            "rx", "ry", "rz", in axes of the second frame.
          axis: (*batch, 3) of a hinge, cylinder or slide, and of a universal joint that about which nothing turns, in
            the second frame; of other kinds it is not looked at.
          q: a configuration (*batch, nq) at which it is held; None: it is held where the frames coincide.

        Returns:
          The robot; `robot.equalities(name)` refers to the closure, and `q_home` need not meet it.

        Raises:
          UnknownNameError: if there is no such frame.
          JaxikError: for a name that is taken, an unknown kind, an axis of no length, frames of one rigid body.
        """
        if not isinstance(second, Frame | str):
            robot = self
            for frame in map(self.frame, second):
                robot = robot.with_closure(candidate(name, frame.name), first, frame, kind, axis=axis, q=q)
            return robot.with_active({name: 0})
        frames = self.frame(first), self.frame(second)
        poses = None if q is None else [self.frame_pose(q, frame) for frame in frames]
        return with_closure(self, name, frames, kind, axis, poses)

    def with_active(self, active: Mapping[str, Any]) -> Robot:
        """A robot some of whose closures, connects, welds or tendon equalities are switched on or off.

        The rows of what is off stay in the program, as zeros: switching never recompiles, and may differ between the
        elements of a batch. Solutions, steps and derivatives are those of the robot without the closure.

        Args:
          active: name to True or False, (*batch) of bool; of a closure with candidates to the index of the one that is
            held, (*batch) of int, or -1 for none, as is under `jit` any index that is out of range. What is not named
            stays as it is.

        Raises:
          UnknownNameError: if there is no such equality constraint.
          JaxikError: for a joint coupling, which is part of the coordinates, and values that are neither.
        """
        return with_active(self, active)

    def pinned(
        self, q: Any, frames: Sequence[Frame | str], active: Any = True, *, kind: str | Sequence[str] = "spherical"
    ) -> Robot:
        """A robot whose frames, such as feet, stay where a configuration has them, each where and as long as asked.

        With a free base this moves the root to another foot: pinned feet carry the robot, the others swing. Each frame
        gets a closure to the world of its own name, so that every problem of the robot keeps it as a constraint.

        Args:
          q: the configuration (*batch, nq) at which they stand; traced.
          frames: those that may be pinned; static.
          active: which of them are, (*batch, n) of bool, or one for all; traced.
          kind: what is held, as of `with_closure`: "spherical" the point, "weld" the whole pose.

        Raises:
          UnknownNameError: if there is no such frame.
          JaxikError: for a mask of another length, a name that is taken, and what does not move against the world.
        """
        frames = [frames] if isinstance(frames, Frame | str) else frames
        return pinned(self, self._configuration(q), [self.frame(frame) for frame in frames], active, kind)

    def with_free_root(self, body: str | None = None, name: str = "root") -> Robot:
        """A robot whose root, fixed to the world so far, is free: as a URDF of what walks, flies or floats has none.

        Its pose comes into configurations before the joints behind it, at home where it is fixed now.

        Args:
          body: that hangs on the world; None: the only one with joints.
          name: of the free joint.

        Raises:
          UnknownNameError: if there is no such body.
          JaxikError: for a body that moves already or does not hang on the world, and a name that is taken.
        """
        return with_root_joints(self, body, name, FREE)

    def with_planar_root(self, body: str | None = None, name: str = "root") -> Robot:
        """A robot whose root, fixed to the world so far, drives on a floor: along the world's x and y, about its z.

        The joints are `root_TX`, `root_TY` [m] and `root_RZ` [rad], as of a URDF's planar joint, 0 where it is fixed
        now and without limits. They drive in any direction, as an omnidirectional base does; what holds of wheels are
        `RollingTask` and `OmniwheelTask`.

        Args:
          body: that hangs on the world; None: the only one with joints.
          name: of the joints, to which these endings are added.

        Raises:
          UnknownNameError: if there is no such body.
          JaxikError: for a body that moves already or does not hang on the world, and a name that is taken.
        """
        return with_root_joints(self, body, name, PLANAR)

    def find_roots(self, *frames: Frame | str) -> tuple[str, ...]:
        """Names of the bodies on the world that carry these frames, or, without any, that carry joints.

        Raises:
          UnknownNameError: if there is no such frame.
        """
        return find_roots(self.topology, [self.frame(frame) for frame in frames])

    def trimmed(self, *frames: Frame | str) -> Robot:
        """The robot without its dangling branches: joints that move none of these frames, no closure, and all on them.

        Couplings keep the joints that drive what stays, and followers with limits, which bound the joints that lead
        them; masses of what goes are gone with it.

        Raises:
          UnknownNameError: if there is no such frame.
          JaxikError: if no joint is left.
        """
        return trimmed(self, [self.frame(frame) for frame in frames])

    def with_rest(self, q: Any) -> Robot:
        """The robot with another `q_home` (*batch, nq): where `solve` starts, and postures and pictures are by default.

        Raises:
          JaxikError: for a wrong shape, and numbers that are not finite.
        """
        q = self._configuration(q)
        if not isinstance(q, Tracer) and not np.isfinite(q).all():
            raise JaxikError("a rest configuration is finite")
        return dataclasses.replace(self, q_home=q.astype(self.q_home.dtype))

    # --- configurations ----------------------------------------------------------------------------------------

    def configuration(self, values: Mapping[str, Any], base: Any = None) -> jax.Array:
        """A configuration (*batch, nq) from values by joint name.

        Args:
          values: joint name to coordinate: (*batch) or (*batch, 1) for hinges and slides [rad or m], (*batch, 4) wxyz
            for balls, (*batch, 7) position and wxyz for free joints; or a `mujoco.MjData`, of this model or a scene
            with more in it, whose joints are read by name.
          base: configuration (*batch, nq) that gives the other joints; `q_home` by default. Joints that a named one
            drives, such as mimic joints, are where their coupling has them, unless they are named themselves.

        Raises:
          UnknownNameError: if there is no such joint.
          JaxikError: if a value has a wrong shape.
        """
        if hasattr(values, "qpos") and hasattr(values, "joint"):
            values = read_joints(values, self.joint_names)
        if not isinstance(values, Mapping):
            raise JaxikError(f"values is a dict from joint name to coordinate, not {type(values).__name__}")
        q = self.q_home if base is None else self._configuration(base)
        pieces = []
        for name, value in values.items():
            joint = self.topology.joints[self.topology.joint_index(name)]
            value = jnp.asarray(value, q.dtype)
            if joint.type.nq == 1 and (value.ndim == 0 or value.shape[-1] != 1 or value.ndim <= q.ndim - 1):
                value = value[..., None]
            if value.shape[-1:] != (joint.type.nq,):
                raise JaxikError(
                    f"joint {name!r} is a {joint.type.name.lower()} joint with {joint.type.nq} coordinates, "
                    f"but its value has shape {value.shape}"
                )
            pieces.append((joint.q_index, value))
        try:
            batch = np.broadcast_shapes(q.shape[:-1], *(value.shape[:-1] for _, value in pieces))
        except ValueError:
            shapes = ", ".join(f"{name}: {value.shape[:-1]}" for name, (_, value) in zip(values, pieces, strict=True))
            raise JaxikError(f"the batch axes of the values do not broadcast: base: {q.shape[:-1]}, {shapes}") from None
        starts, given = tuple(start for start, _ in pieces), [value for _, value in pieces]
        q = _with_coordinates(jnp.broadcast_to(q, (*batch, self.nq)), given, starts)
        named = tuple(sorted(self.topology.joint_index(name) for name in values))
        if not any(each.leader in named and each.follower not in named for each in self.topology.couplings):
            return q
        return batched.on_robots(batched.following(named), None, self, q)

    def joint_values(self, q: Any) -> dict[str, jax.Array]:
        """Coordinates of a configuration (*batch, nq) by joint: (*batch), of balls and free joints (*batch, 4 or 7).

        The way back is `robot.configuration(values)`, of this robot or another that has joints of these names.
        """
        q = self._configuration(q)
        return dict(zip(self.joint_names, _by_joint(self.topology, q), strict=True))

    def copy_to(self, data: Any, q: Any) -> None:
        """Write a configuration (nq,) into the `qpos` of a `mujoco.MjData`, joint by joint of the same name.

        Raises:
          UnknownNameError: if the data has no joint of a name.
          JaxikError: for a batch.
        """
        q = self._configuration(q)
        if q.ndim > 1:
            raise JaxikError(f"a configuration (nq,) is copied to data, not a batch {q.shape[:-1]}")
        write_joints(data, self.joint_values(q))

    def sample(self, key: jax.Array, shape: tuple[int, ...] | int = (), *, unlimited_range: float = 1.0) -> jax.Array:
        """Random configurations (*shape, nq).

        Uniform within limits; hinges without limits in (-pi, pi]; ball and free rotations uniform on SO(3), limited
        balls uniform in axis and angle; slides without limits and free positions in
        [-unlimited_range, unlimited_range] [m]. Joints that a coupling drives, such as mimic joints, are where it has
        them, and the joints that drive them uniform where none passes its limits; couplings that contradict each other
        are left out.

        Raises:
          JaxikError: if `shape` does not broadcast with the robot's own batch axes.
        """
        shape = (shape,) if isinstance(shape, int) else shape
        if not isinstance(shape, tuple | list) or not all(isinstance(n, int | np.integer) and n >= 0 for n in shape):
            raise JaxikError(f"shape is an int or a tuple of ints, none negative, not {shape!r}")
        shape = tuple(shape)
        batch = batch_shape(self, core_ranks(self))
        try:
            shape = np.broadcast_shapes(shape, batch)
        except ValueError:
            raise JaxikError(f"shape {shape} does not broadcast with the robot's batch axes {batch}") from None
        return batched.sample(self, key, jnp.asarray(unlimited_range, self.q_home.dtype), shape)

    def integrate(self, q: jax.Array, dq: jax.Array) -> jax.Array:
        """The configuration (*batch, nq) reached from `q` (*batch, nq) along the tangent `dq` (*batch, nv).

        A free joint's tangent is MuJoCo's: world linear, then body angular. Quaternions come out normalised.
        """
        q = self._configuration(q)
        dq = self._tangent(dq, "dq").astype(q.dtype)
        batch_shape({"q": q, "dq": dq}, {"q": 1, "dq": 1})
        return batched.integrate(self.topology, q, dq)

    def difference(self, q_from: jax.Array, q_to: jax.Array) -> jax.Array:
        """The shortest tangent (*batch, nv) with `integrate(q_from, tangent) = q_to`."""
        q_from, q_to = self._configuration(q_from), self._configuration(q_to)
        batch_shape({"q_from": q_from, "q_to": q_to}, {"q_from": 1, "q_to": 1})
        return batched.difference(self.topology, q_from, q_to)

    def clamp(self, q: jax.Array) -> jax.Array:
        """The nearest configuration (*batch, nq) inside the limits."""
        return batched.on_robots(batched.clamp, None, self, self._configuration(q))

    def limit_excess(self, q: jax.Array) -> jax.Array:
        """By how much each joint is outside its limits: (*batch, njoint) [rad or m], zero inside."""
        return batched.on_robots(batched.limit_excess, None, self, self._configuration(q))

    def check_limits(self, q: jax.Array, tolerance: float = 0.0) -> jax.Array:
        """Whether all joints are inside their limits, up to `tolerance` [rad or m]: (*batch,) of bool.

        A ball joint's total angle is only computed to about 1e-6 rad in float32: give a tolerance there.
        """
        return jnp.all(self.limit_excess(q) <= tolerance, axis=-1)

    # --- kinematics --------------------------------------------------------------------------------------------

    def forward(self, q: jax.Array) -> jaxlie.SE3:
        """World poses of all bodies, with batch axes (*batch, nbody), in the order of `topology.body_names`."""
        return jaxlie.SE3(batched.on_robots(batched.poses, self._every_body(), self, self._configuration(q)))

    def frame_pose(self, q: jax.Array, frame: Frame | str) -> jaxlie.SE3:
        """World pose of a frame, with batch axes (*batch,), at configurations `q` (*batch, nq)."""
        return jaxlie.SE3(self._on_frame(batched.one_pose, q, self.frame(frame)))

    def _every_body(self) -> Plan:
        return plan(self.topology, tuple(Frame("body", i) for i in range(len(self.topology.body_names))))

    def _on_frame(self, function: Callable[..., jax.Array], q: jax.Array, frame: Frame) -> jax.Array:
        """A function of the frame's pose and Jacobian.

        Few elements outside of a trace share one program for all frames, which evaluates all bodies; else a program
        evaluates the frame's own joints.
        """
        q = self._configuration(q)
        if q.size > MANY * self.nq or any(isinstance(x, Tracer) for x in jax.tree.leaves((self, q))):
            return batched.on_robots(batched.of_frame(function), plan(self.topology, (frame,)), self, q)
        start = {"site": 0, "geom": self.site_position.shape[-2]}
        bodies = self.site_position.shape[-2] + self.geom_position.shape[-2]
        row = start[frame.kind] + frame.index if frame.kind in start else bodies
        data = batched.FrameData(np.int32(self.topology.frame_body(frame)), np.int32(row))
        return batched.on_any_frame(function, self._every_body(), self, q, data)

    def frame_jacobian(self, q: jax.Array, frame: Frame | str, reference: str = "body") -> jax.Array:
        """Jacobian (*batch, 6, nv) of a frame, linear rows first.

        Args:
          q: configurations (*batch, nq).
          frame: the frame, or its name.
          reference: "body": twist of the frame in its own axes; "world_aligned": velocity of the frame's origin and
            angular velocity in world axes (MuJoCo's `mj_jac*`); "world": spatial twist, at the world's origin.

        Raises:
          JaxikError: if the reference is none of these.
        """
        frame = self.frame(frame)
        if reference not in batched.REFERENCES:
            raise JaxikError(f"reference is one of {', '.join(batched.REFERENCES)}, not {reference!r}")
        return self._on_frame(batched.REFERENCES[reference], q, frame)

    def center_of_mass(self, q: jax.Array, body: str | None = None) -> jax.Array:
        """Centre of mass (*batch, 3) [m] in the world of the whole robot, or of the subtree that starts at `body`."""
        return batched.on_robots(batched.center_of_mass, self._mass_plan(body), self, self._configuration(q))

    def center_of_mass_jacobian(self, q: jax.Array, body: str | None = None) -> jax.Array:
        """Jacobian (*batch, 3, nv) of `center_of_mass`."""
        return batched.on_robots(batched.center_of_mass_jacobian, self._mass_plan(body), self, self._configuration(q))

    def _mass_plan(self, body: str | None) -> Plan:
        root = 0 if body is None else self.topology.body_index(body)
        self.check_mass(root)
        return plan(self.topology, (), (root,))

    def check_mass(self, root: int) -> None:
        """Raise a JaxikError if the subtree that starts at body `root` has no mass, and so no centre of mass."""
        if not 0 <= root < len(self.topology.body_names):
            raise JaxikError(f"body index {root} is out of range: {self.name} has {len(self.topology.body_names)}")
        mass = self.body_mass
        if not isinstance(mass, Tracer):
            inside = np.asarray(mass)[..., list(subtree(self.topology, root))]
            if not (inside.sum(-1) > 0).all():
                raise JaxikError(f"{self.topology.body_names[root]!r} of {self.name} has no mass: no centre of mass")

    def mass_matrix(self, q: jax.Array) -> jax.Array:
        """Joint-space inertia (*batch, nv, nv) at configurations `q` (*batch, nq); see `jaxik.dynamics`."""
        return batched.on_robots(batched.mass_matrix, plan(self.topology, (), (0,)), self, self._configuration(q))

    # --- distances ---------------------------------------------------------------------------------------------

    def distances(self, q: jax.Array, world: World | None = None, pairs: Any = None) -> Distances:
        """Signed distances of the robot's shapes to each other and to obstacles, at configurations `q` (*batch, nq).

        Args:
          q: configurations.
          world: obstacles, whose leaves may have batch axes as well.
          pairs: names of pairs: of shapes, of bodies for all of their shapes, "world" for all obstacles, "boxes" or
            "boxes/3"; None: all of `collision_pairs`, and all shapes that move with all obstacles.

        Returns:
          `Distances`: distance (*batch, p), normal (*batch, p, 3), points (*batch, p, 2, 3), pairs.

        Raises:
          JaxikError: for a robot without shapes, for a pair that cannot move, and where no pair is left.
          UnknownNameError: for an unknown name.
        """
        return self._of_pairs(distances, q, world, pairs)

    def clearance(self, q: jax.Array, world: World | None = None, pairs: Any = None) -> jax.Array:
        """The least of `distances` (*batch,) [m]; below zero in a collision. It changes as that of the nearest pair."""
        return self._of_pairs(clearance, q, world, pairs)

    def in_collision(
        self, q: jax.Array, world: World | None = None, pairs: Any = None, margin: Any = 0.0, *, to: Any = None
    ) -> jax.Array:
        """Whether a distance is below `margin` [m], or NaN: (*batch,) of bool.

        Args:
          margin: (*batch,), below zero where shapes may overlap by as much.
          to: configurations (*batch, nq): whether one is on the way there as well, on which all joints move at constant
            rates and end together (`robot.integrate(q, t * robot.difference(q, to))`, t in [0, 1]); True also where up
            to 128 looks do not show that none is, as where shapes slide along each other nearer than 1e-4 m.
        """
        margin = validation.array("margin", margin)
        if not isinstance(margin, Tracer) and np.isnan(margin).any():
            raise JaxikError(f"margin is a distance [m], not {np.asarray(margin)}")
        if to is None:
            return ~(self.clearance(q, world, pairs) >= margin)
        q, to = self._configuration(q), self._configuration(to)
        ends = {"q": q, "to": to, "margin": margin}
        table, evaluation = self._pairs(world, pairs)
        return ~batched.way_is_free(table, evaluation, self, world, ends)

    def _of_pairs(self, function: batched.PairFunction, q: Any, world: Any, pairs: Any) -> Any:
        q = self._configuration(q)
        table, evaluation = self._pairs(world, pairs)
        return batched.of_pairs(function, table, evaluation, self, world, q)

    def _pairs(self, world: Any, pairs: Any) -> tuple[PairTable, Plan]:
        """The pairs of the robot's shapes, and what evaluates these."""
        geometry = geometry_of(self.name, self.geometry)
        if world is not None and not isinstance(world, World):
            raise JaxikError(f"world is a jaxik.World(...), not {type(world).__name__}")
        table = table_of(self.topology, geometry, world, named_pairs(pairs))
        return table, plan(self.topology, shape_frames(geometry))

    @property
    def collision_pairs(self) -> CollisionPairs:
        """The pairs of the robot's own shapes: `kept`, by name, and `dropped`, each with its reason.

        Raises:
          JaxikError: for a robot without shapes.
        """
        geometry = geometry_of(self.name, self.geometry)
        return CollisionPairs(tuple(map(geometry.named, geometry.pairs)), geometry.dropped)

    # --- kinematics of one element ----------------------------------------------------------------------------

    def kinematics(
        self, q: jax.Array, frames: Iterable[Frame | str] = (), subtrees: Iterable[int | str] = ()
    ) -> Kinematics:
        """One evaluated configuration, which tasks take: `kin = robot.kinematics(q, task.frames, task.subtrees)`.

        It is one element, as tasks are: `jax.vmap` makes a batch.

        Args:
          q: configuration (nq,).
          frames: the frames that will be asked for, or their names.
          subtrees: root bodies of the subtrees whose centres of mass will be asked for, by index or name; 0 is the
            world, and so the whole robot, which the mass matrix needs.

        Raises:
          JaxikError: for batch axes on `q` or on the robot.
        """
        q = self._configuration(q)
        batch = batch_shape({"robot": self, "q": q}, {"robot": core_ranks(self), "q": 1})
        if batch:
            raise JaxikError(f"kinematics are of one configuration (nq,), not of a batch {batch}: map it with jax.vmap")
        roots = tuple(self.topology.body_index(root) if isinstance(root, str) else root for root in subtrees)
        return batched.one(self, plan(self.topology, tuple(map(self.frame, frames)), roots), q)

    def equalities(self, given: Iterable[str | int | Equality] | None = None) -> tuple[Equality, ...]:
        """Active equality constraints by name or by MuJoCo's index.

        Args:
          given: None for all active ones that kinematics can evaluate and that touch no mocap body, whose pose is set
            from outside to pull the robot.

        Raises:
          UnknownNameError: if there is none of a name.
          JaxikError: if one is not active, or cannot be evaluated, or if there is none.
        """
        return select(self.topology, given)

    def _configuration(self, q: Any) -> jax.Array:
        return _vector(q, self.nq, f"a configuration of {self.name}", "nq", self.q_home.dtype)

    def _tangent(self, v: Any, name: str) -> jax.Array:
        return _vector(v, self.nv, f"{name}, a tangent of {self.name},", "nv", self.q_home.dtype)

    def __repr__(self) -> str:
        kinds = [joint.type.name.lower() for joint in self.topology.joints]
        counts = ", ".join(f"{kinds.count(k)} {k}" for k in ("free", "ball", "slide", "hinge") if k in kinds)
        sites = [n for n, _ in self.topology.sites if n]
        shown = ", ".join(sites[:6]) + (", ..." if len(sites) > 6 else "")
        batch = np.shape(self.q_home)[:-1]
        return (
            f"Robot({self.name}: {self.nv} degrees of freedom in {len(kinds)} joints ({counts or 'none'}), "
            f"{len(self.topology.body_names) - 1} bodies, sites: {shown or 'none'}, q_home: {self.q_home_origin}"
            + (f", batch {batch}" if batch else "")
            + ")"
        )


@partial(jax.jit, static_argnums=2, inline=True)
def _with_coordinates(q: jax.Array, values: list[jax.Array], starts: tuple[int, ...]) -> jax.Array:
    for start, value in zip(starts, values, strict=True):
        q = q.at[..., start : start + value.shape[-1]].set(value)
    return q


@partial(jax.jit, static_argnums=0, inline=True)
def _by_joint(topology: Topology, q: jax.Array) -> list[jax.Array]:
    found = [q[..., joint.q_index : joint.q_index + joint.type.nq] for joint in topology.joints]
    return [value[..., 0] if value.shape[-1] == 1 else value for value in found]


def _vector(x: Any, size: int, what: str, axis: str, default: Any) -> jax.Array:
    try:
        x = validation.as_array(x)
    except (TypeError, ValueError):
        raise JaxikError(f"{what} is an array (..., {axis}) with {axis} = {size}, not {x!r}") from None
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise JaxikError(f"{what} is real, not {x.dtype}")
    if x.dtype not in (jnp.float32, jnp.float64):
        x = x.astype(default)
    if x.shape[-1:] != (size,):
        raise JaxikError(f"{what} has shape (..., {axis}) with {axis} = {size}, not {x.shape}")
    return x
