"""Batches that are spread over eight devices stay there, without a flag, and have the bits that one device gives.

Derivatives in meshes of explicit axes have them within rounding: there XLA fuses them with what is around.
"""

import pytest
from fresh import run, run_program
from tables import exhaustive

PROGRAM = """
import contextlib, sys, jax
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", sys.argv[1] == "close")
import jax.numpy as jnp, jaxlie, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import jaxik

robot = jaxik.load_robot("double_pendulum")
target = robot.frame_pose(robot.sample(jax.random.key(0), (48,)), "tcp")
start = jnp.broadcast_to(robot.q_home, (48, robot.nq))

def problem(target, gain=1.0):
    task = jaxik.FrameTask(robot.frame("tcp"), target, orientation_cost=None, gain=gain)
    return jaxik.Problem(robot, {"tip": task})

def stepped(target, gain):
    return jaxik.step(problem(jaxlie.SE3(target), gain), start, 0.01).q

direction = jax.random.normal(jax.random.key(2), target.wxyz_xyz.shape)

along = lambda target: {"tip": jaxlie.SE3(jnp.broadcast_to(target.wxyz_xyz, (3, 48, 7)))}
VERBS = {
    "solve": lambda target: jaxik.solve(problem(target), start),
    "search": lambda target: jaxik.search(problem(target), jax.random.key(1)),
    "step": lambda target: jaxik.step(problem(target.translation()), start, 0.01),
    "track": lambda target: jaxik.track(problem(target), start, 0.01, along(target)).q,
    "vmap": lambda target: jax.vmap(lambda t: jaxik.solve(problem(t), robot.q_home).q)(target),
    # A number of rows that devices do not divide; where these then are is XLA's choice.
    "uneven": lambda target: jaxik.solve(problem(jaxlie.SE3(target.wxyz_xyz[:43])), start[:43]).q,
    "tangent": lambda target: jax.jvp(lambda x: stepped(x, 1.0), (target.wxyz_xyz,), (direction,))[1],
    "gradient": lambda target: jax.grad(lambda x: jnp.sum(stepped(x, 1.0) ** 2))(target.wxyz_xyz),
    "gradient by what all share": lambda target: jax.grad(lambda gain: jnp.sum(stepped(target.wxyz_xyz, gain)))(0.5),
    "gradient of solve": lambda target: jax.grad(
        lambda x: jnp.sum(jaxik.solve(problem(jaxlie.SE3(x)), start).q ** 2)
    )(target.wxyz_xyz),
    "two axes": lambda target: jaxik.solve(problem(jaxlie.SE3(target.wxyz_xyz.reshape(8, 6, 7)))).q,
}
equality, kind, where, *names = sys.argv[1:]
mesh = jax.make_mesh((8,), ("x",), axis_types=(getattr(AxisType, kind),))
shards = jax.device_put(target, NamedSharding(mesh, PartitionSpec("x")))

def compare(alone, other, name):
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(other), strict=True):
        if equality == "bits":
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)
        else:
            np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-6, atol=1e-9, err_msg=name)

for name in names:
    verb = jax.jit(VERBS[name])
    alone = verb(target)
    with jax.set_mesh(mesh) if where == "set_mesh" else contextlib.nullcontext():
        spread = verb(shards)
        compare(alone, spread, name)
        if where == "set_mesh":
            compare(alone, verb(target), name)
        if name != "uneven":
            assert " all-gather(" not in verb.lower(shards).compile().as_text(), name
    for b in jax.tree.leaves(spread):
        axis = 1 if name == "track" else 0
        if b.size and name not in ("uneven", "gradient by what all share"):
            assert b.sharding.spec[axis] == "x" and len(b.addressable_shards) == 8, (name, b.sharding)
print("equal")
"""


@pytest.mark.parametrize(("kind", "where", "names"), [
    ("Auto", "call", ["gradient"]),
    pytest.param("Auto", "call", ["solve"], marks=exhaustive),
    pytest.param("Explicit", "set_mesh", ["gradient"], marks=exhaustive),
    pytest.param("Explicit", "call", ["step", "gradient"], marks=exhaustive),
    pytest.param("Auto", "set_mesh", ["step", "gradient"], marks=exhaustive),
])  # fmt: skip
def test_what_is_spread_over_devices_stays_there(kind: str, where: str, names: list[str]) -> None:
    """Whether only the arrays of a call say it or `jax.set_mesh` too, which leaves whole what is not spread.

    Compiled quickly, programs of other sizes round otherwise.
    """
    found = run_program(PROGRAM, "close", kind, where, *names)
    assert found.stdout.strip().endswith("equal"), found.stderr[-2000:]


@exhaustive
@pytest.mark.parametrize("where", ["call", "set_mesh"])
@pytest.mark.parametrize(("kind", "names"), [
    ("Auto", ["solve", "search", "step", "track", "vmap", "uneven", "two axes"]),
    ("Auto", ["tangent", "gradient", "gradient by what all share", "gradient of solve"]),
    ("Explicit", ["solve", "search", "step"]),
])  # fmt: skip
def test_it_has_the_bits_that_one_device_gives(kind: str, where: str, names: list[str]) -> None:
    found = run("-c", PROGRAM, "bits", kind, where, *names)
    assert found.stdout.strip().endswith("equal"), found.stderr[-2000:]
