"""All cores and kept programs: settings of a process, each tried in one of its own."""

import os
from pathlib import Path

import jax
import pytest
from fresh import run, run_program
from own_tasks import PLANAR
from tables import exhaustive

import jaxik
from jaxik.batching import devices
from jaxik.core import xla_options

SHARED = f"""
import os, sys, warnings
import jax, jax.numpy as jnp, numpy as np, jaxik
cores = jaxik.use_all_cores()
assert cores == len(os.sched_getaffinity(0)) == len(jax.devices()), jax.devices()
kept = jaxik.enable_compilation_cache(sys.argv[1])
robot = jaxik.load_robot('''{PLANAR}''')
q = robot.sample(jax.random.key(0), (128 * cores + 1,))
target = robot.frame_pose(q, robot.frame("tip")).translation()

def solved(target):
    if sys.argv[2] == "qp":
        return jaxik.qp(2 * jnp.eye(3), -target, lower=-0.5, upper=0.5)
    task = jaxik.FrameTask(robot.frame("tip"), target, orientation_cost=None)
    problem = jaxik.Problem(robot, {{"tip": task}})
    if sys.argv[2] == "step":
        return jaxik.step(problem, robot.q_home, 0.1)
    return jaxik.search(problem, jax.random.key(0))

few, many = (x.x if sys.argv[2] == "qp" else x.q for x in (solved(target[:100]), solved(target)))
assert len(many.sharding.device_set) == cores
np.testing.assert_array_equal(many[:100], few)
assert any(kept.iterdir())
with warnings.catch_warnings():
    warnings.simplefilter("error")  # nothing is said of cores that are used
    jax.eval_shape(lambda: jaxik.qp(jnp.eye(2), jnp.ones((4096, 2)), lower=-1.0).x)
"""


INSIDE = f"""{SHARED}
np.testing.assert_array_equal(jax.jit(solved)(target).q, many)
mesh = jax.sharding.Mesh(jax.devices(), ("mine",), axis_types=(jax.sharding.AxisType.Auto,))
part = jax.sharding.PartitionSpec("mine")
own = jax.shard_map(lambda t: solved(t).status, mesh=mesh, in_specs=part, out_specs=part, check_vma=False)
assert (own(target[: 128 * cores]) == 0).all()
"""


@pytest.mark.parametrize(
    ("program", "verb"),
    [
        (SHARED, "qp"),
        pytest.param(SHARED, "step", marks=exhaustive),
        pytest.param(SHARED, "search", marks=exhaustive),
        pytest.param(INSIDE, "search", marks=exhaustive),
    ],
    ids=["qp", "step", "search", "search inside a program"],
)
def test_batches_are_shared_out_over_all_cores_and_programs_kept(tmp_path: Path, program: str, verb: str) -> None:
    # As users compile: unoptimised, programs of other numbers of lanes differ by 3e-6.
    done = run("-c", program, str(tmp_path / "kept"), verb)
    assert done.returncode == 0, done.stderr


def test_a_process_that_uses_jax_already_keeps_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    before = jax.devices()
    monkeypatch.setattr(devices, "available_cores", lambda: len(before) + 1)
    with pytest.raises(jaxik.JaxikError, match="call use_all_cores.. right after the imports"):
        jaxik.use_all_cores()
    assert jax.devices() == before


IDLE = """
import os, sys, warnings
os.sched_getaffinity = lambda _: {0, 1}
import jax, jax.numpy as jnp, jaxik
exec(sys.argv[1])

def solved(count):
    return jaxik.qp(jnp.eye(2), jnp.ones((count, 2)), lower=-1.0).x

def said(call, *arguments):  # while it traces
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.eval_shape(lambda: call(*arguments))
    return [str(w.message) for w in caught if w.category is jaxik.JaxikWarning]

exec(sys.argv[2])
"""
NOT_SAID = {
    "small batches": ("", "assert said(solved, 4095) == []", {}),
    "use_all_cores": ("jaxik.use_all_cores()", "assert said(solved, 4096) == []", {}),
    "one device, as asked for": (
        "jax.config.update('jax_num_cpu_devices', 1)", "assert said(solved, 4096) == []", {},
    ),
    "several devices": ("jax.config.update('jax_num_cpu_devices', 2)", "assert said(solved, 4096) == []", {}),
    "devices by a flag": (
        "", "assert said(solved, 4096) == []", {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
    ),
    "threads by NPROC": ("", "assert said(solved, 4096) == []", {"NPROC": "1"}),
    "a mesh of one's own": (
        "P = jax.sharding.PartitionSpec('mine')",
        "mesh = jax.sharding.Mesh(jax.devices(), ('mine',))\n"
        "run = lambda c: jaxik.qp(jnp.eye(2), c, lower=-1.0).x\n"
        "mapped = jax.shard_map(run, mesh=mesh, in_specs=P, out_specs=P, check_vma=False)\n"
        "assert said(mapped, jnp.ones((4096, 2))) == []",
        {},
    ),
    "one core": ("os.sched_getaffinity = lambda _: {0}", "assert said(solved, 4096) == []", {}),
}  # fmt: skip


def test_idle_cores_are_said_once_of_a_large_batch() -> None:
    small, own_mesh = ("\n".join(NOT_SAID[name][:2]) for name in ("small batches", "a mesh of one's own"))
    program = f"""
{small}
{own_mesh}
first, second = said(solved, 4096), said(solved, 8192)
assert len(first) == 1 and second == [], (first, second)
assert "4096 elements runs on one of 2 cores: call jaxik.use_all_cores() right after the imports" in first[0]
"""
    done = run("-c", IDLE, "", program)
    assert done.returncode == 0, done.stderr


@exhaustive
@pytest.mark.parametrize("name", NOT_SAID)
def test_nothing_is_said_of_cores_that_are_used_or_were_set_up(name: str) -> None:
    setup, check, environment = NOT_SAID[name]
    done = run("-c", IDLE, setup, check, **environment)
    assert done.returncode == 0, done.stderr


SPREAD = """
import sys, jax
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp, jaxik
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxik.batching.sharding import on_shards

place = jaxik.enable_compilation_cache(sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
linear = jax.device_put(jnp.ones((8, 2)), NamedSharding(mesh, PartitionSpec("x")))
found = jax.jit(lambda c: jaxik.qp(jnp.eye(2), c, lower=-0.5).x)(linear)
assert found.sharding.spec == PartitionSpec("x") and (found == -0.5).all()
same = jnp.arange(8.0).reshape(8, 1), [True]
for function in (lambda x: x + 1, lambda x: x * 3):
    spread = jax.device_put(same[0], NamedSharding(mesh, PartitionSpec("x")))
    assert (jax.jit(lambda x: on_shards(function, [x], same[1]))(spread) == function(same[0])).all()
print(len(list(place.glob("*-cache"))))
"""


@exhaustive
def test_programs_over_spread_batches_are_kept(tmp_path: Path) -> None:
    """A later process finds them: it keeps no other one. Programs of arguments that are alike are two."""
    kept = [run_program(SPREAD, str(tmp_path / "programs")).stdout.split()[-1] for _ in range(2)]
    assert kept[0] == kept[1] != "0"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = jax.config.jax_compilation_cache_dir
    with pytest.raises(jaxik.JaxikError, match="compiled programs cannot be kept in .*file"):
        jaxik.enable_compilation_cache(tmp_path / "file" / "inside")
    assert jax.config.jax_compilation_cache_dir == before


WHOLE = """
import jax, jax.numpy as jnp, jaxik
program = jax.jit(lambda q: jaxik.qp(jnp.eye(2) + q[0] ** 2, q, lower=-1.0).x)
text = jax.jit(jax.vmap(program)).lower(jnp.ones((256, 2))).compile().as_text()
print('xla_cpu_small_call="true"' in text)
"""


def test_loops_over_lanes_are_compiled_whole() -> None:
    assert run("-c", WHOLE).stdout.split() == ["True"]


def test_what_someone_has_said_to_xla_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of others, another size of loops, and a file of options, which stays the only one."""
    flag = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold"
    others = ["--xla_cpu_parallel_codegen_split_count=1", "--xla_cpu_prefer_vector_width=128"]
    wide = ["--xla_cpu_prefer_vector_width=512"] if xla_options.has_wide_vectors() else []
    (file := tmp_path / "flags.txt").write_text(others[0])
    for said, asked in (
        ([], [f"{flag}=5000000", *wide]),
        (others, [*others, f"{flag}=5000000"]),
        ([f"{flag}=1024"], [f"{flag}=1024", *wide]),
        ([str(file)], [str(file)]),
    ):
        monkeypatch.setenv("XLA_FLAGS", " ".join(said))
        for _ in range(2):  # what is there already is not added
            xla_options.set_xla_options()
            assert os.environ["XLA_FLAGS"].split() == asked


@pytest.mark.parametrize(
    ("vendor", "features", "wide"),
    [
        ("AuthenticAMD", "avx2 avx512f avx512dq", True),
        ("AuthenticAMD", "avx2 fma", False),
        ("GenuineIntel", "avx2 avx512f avx512dq", False),
        (None, "", False),
    ],
)
def test_vectors_are_wide_on_amd_processors_that_have_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str | None, features: str, wide: bool
) -> None:
    told = tmp_path / "cpuinfo"
    monkeypatch.setattr(xla_options, "CPU_INFO", str(told))
    if vendor is not None:
        told.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu {features} sha_ni\n")
    assert xla_options.has_wide_vectors() == wide
