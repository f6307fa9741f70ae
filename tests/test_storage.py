"""Solutions and robots in files: they come back as they were, and what is wrong with a file is said."""

import dataclasses
import glob
import json
import os
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest

import jaxik
from jaxik.core import archive
from jaxik.core.errors import JaxikError, JaxikWarning, LoadError
from jaxik.robot.loading.npz import LEAVES, OPTIONAL, SHAPE_LEAVES

# Every joint type, names that are missing or not ASCII, keyframes, a mocap body, every kind of equality and of tendon.
EVERYTHING = """<mujoco model="every"><compiler angle="radian"/><worldbody>
<body name="mocap" mocap="true" pos="1 2 3"/>
<body name="base" pos="0 0 1"><freejoint name="free"/><geom type="box" size=".1 .2 .3" pos=".1 0 0"/>
 <site name="s1" pos="0 .1 0"/>
 <body pos=".1 .2 .3" quat="1 2 3 4"><joint name="küglig" type="ball" range="0 1" limited="true"/><geom size=".1"/>
  <body name="arm" pos="0 0 .5"><joint name="slide" type="slide" axis="1 1 0" range="-1 1" limited="true"/>
   <joint axis="0 1 1" pos="0 0 .1" ref=".2"/>
   <geom type="cylinder" size=".1 .2" name="pulley" contype="0" conaffinity="0"/>
   <site pos="0 0 .2" quat="1 1 0 0"/><site name="s2" pos="0 .2 .2"/></body></body></body></worldbody>
<tendon><fixed name="sum"><joint joint="slide" coef="2"/></fixed>
 <spatial name="cable"><site site="s1"/><site site="s2"/></spatial>
 <spatial><site site="s1"/><geom geom="pulley"/><site site="s2"/></spatial></tendon>
<equality><weld name="w" body1="mocap" body2="base"/><connect body1="arm" body2="base" anchor="0 0 .1" active="false"/>
 <weld site1="s1" site2="s2" active="false"/><joint joint1="slide" polycoef=".5 0 0 0 0"/>
 <tendon tendon1="sum" tendon2="cable" polycoef=".5 1 0 0 0"/></equality>
<keyframe><key name="home" qpos="0 0 1 1 0 0 0 1 0 0 0 .3 .4"/><key qpos="1 0 1 1 0 0 0 1 0 0 0 .3 .4"/></keyframe>
</mujoco>"""


@cache
def every() -> jaxik.Robot:
    with pytest.warns(JaxikWarning):
        return jaxik.load_robot(EVERYTHING)


@cache
def planar() -> jaxik.Robot:
    return jaxik.load_robot(own_tasks.PLANAR)


def many() -> jaxik.Robot:
    """A thousand link lengths, two rows of them; other leaves with other batch axes."""
    stretch = jnp.linspace(0.9, 1.1, 2000).reshape(2, 1000, 1, 1)
    robot = every()
    return dataclasses.replace(
        robot,
        body_position=robot.body_position * stretch,
        equality_data=robot.equality_data * stretch[0],
        tendon_coefficients=robot.tendon_coefficients * stretch[:, :1, 0],
    )


def solution(*batch: int, residuals: Any = None) -> jaxik.Solution:
    """One that nobody had to wait for."""
    count = int(np.prod(batch))
    numbers = np.arange(2.0 * count).reshape(*batch, 2)
    each = numbers[..., 0]
    made = jaxik.Solution(
        q=numbers / 7,
        status=np.arange(count, dtype=np.int32).reshape(batch) % 2,
        residuals={"gaze": numbers / 3, "tip": {"position": each / 5}} if residuals is None else residuals,
        iterations=np.full(batch, 3, np.int32),
        num_starts=np.full(batch, 2, np.int32),
        cost=each / 11,
        stationarity=each / 13,
        topology=planar().topology,
        residual_units=(("gaze", ""), ("tip/position", "m")),
    )
    return jax.tree.map(lambda x: jnp.asarray(x, np.asarray(x).dtype), made)


def same(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
        assert isinstance(a, jax.Array)


THINGS: dict[str, Callable[[], jaxik.Robot | jaxik.Solution]] = {
    "a robot with everything": every,
    "a thousand link lengths": many,
    "a robot in float32": lambda: every().astype(jnp.float32),
    "a robot that cannot move": lambda: jaxik.load_robot("<mujoco/>"),
    "a changed robot": lambda: planar().with_frame("pen", "lower", jaxlie.SE3.identity()),
    "one solution": lambda: solution(),
    "a batch": lambda: solution(2, 3),
    "an empty batch": lambda: solution(0),
    "a batch in float32": lambda: jax.tree.map(
        lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, solution(4)
    ),
    "a batch in numpy": lambda: jax.tree.map(np.asarray, solution(4)),
    "task names of all sorts": lambda: dataclasses.replace(
        solution(2, residuals={"é x": jnp.ones(2), "a-b": jnp.ones(2), "a": {"y": jnp.ones(2)}}),
        residual_units=(("a-b", "m"), ("a/y", ""), ("é x", "rad")),
    ),
    "which shapes are nearest": lambda: dataclasses.replace(
        solution(2),
        clearance=jnp.array([0.1, -0.01]),
        nearest=jnp.array([1, 0], jnp.int32),
        pair_names=(("upper", "lower"), ("lower", "boxes/0")),
    ),
    "infinite and missing numbers": lambda: dataclasses.replace(solution(2), cost=jnp.array([jnp.inf, jnp.nan])),
}


@pytest.mark.filterwarnings("ignore:.*it has no joints")
@pytest.mark.parametrize("name", THINGS)
def test_what_is_saved_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    thing = THINGS[name]()
    jaxik.save(tmp_path / "thing.npz", thing)
    back = jaxik.load(str(tmp_path / "thing.npz"))
    same(back, thing)
    assert back.topology is thing.topology and type(back) is type(thing)
    if isinstance(thing, jaxik.Robot):
        same(jaxik.load_robot(tmp_path / "thing.npz"), thing)
    with np.load(tmp_path / "thing.npz", allow_pickle=False) as found:
        assert all(found[array].dtype.kind in "biufU" for array in found.files)
    assert os.listdir(tmp_path) == ["thing.npz"]


def test_a_saved_solve_knows_joints_and_units_of_its_tasks(tmp_path: Path) -> None:
    robot = planar()
    tip = robot.frame("tip")
    target = robot.frame_pose(jnp.array([[0.1, 0.2], [0.2, 1.0]]), tip)
    tasks = {
        "rest": jaxik.PostureTask(robot.q_home),
        "high": own_tasks.Height(tip, 0.0),
        "tip": jaxik.FrameTask(tip, target),
    }
    found = jaxik.solve(jaxik.Problem(robot, tasks))
    jaxik.save(tmp_path / "s.npz", found)
    same(jaxik.load(tmp_path / "s.npz"), found)
    with np.load(tmp_path / "s.npz") as arrays:
        assert list(arrays["q_joint"]) == list(arrays["joint_names"]) == ["first", "second"]
        assert list(arrays["q_unit"]) == ["rad", "rad"]
        assert json.loads(str(arrays["units"])) == {
            "q": "see q_unit",
            "stationarity": "rad or m",
            "residuals/rest": "rad or m",
            "residuals/tip/position": "m",
            "residuals/tip/orientation": "rad",
        }
        assert arrays["residuals/high"].shape == (2,) and arrays["residuals/tip/position"].shape == (2, 3)
        assert [str(arrays["status_names"][s]) for s in arrays["status"]] == [
            jaxik.Status(int(s)).name for s in found.status
        ]


def test_a_solution_saved_with_its_problem_holds_pairs_of_pose_and_configuration(tmp_path: Path) -> None:
    robot = jaxik.load_robot("ur5e")
    q = robot.sample(jax.random.key(0), (3,))
    tip, pose = robot.frame("tcp"), robot.frame_pose(q, "tcp")
    tasks = {"tip": jaxik.FrameTask(tip, pose), "rest": jaxik.PostureTask(robot.q_home, priority=1)}
    tasks["still"] = jaxik.DampingTask(1.0)
    problem = jaxik.Problem(robot, tasks, constraints={"com": jaxik.ComTask(jnp.zeros(3))})
    zero, whole = jnp.zeros(3), jnp.zeros(3, jnp.int32)
    solution = jaxik.Solution(q, whole, {"tip": zero}, whole, whole, zero, zero, topology=robot.topology)
    weight = np.arange(3.0)
    jaxik.save(tmp_path / "pairs.npz", solution, problem=problem, arrays={"weight": weight})
    assert repr(jaxik.load(tmp_path / "pairs.npz")) == repr(solution)
    with np.load(tmp_path / "pairs.npz") as found:
        reached = robot.frame_pose(found["q"], "tcp")
        np.testing.assert_array_equal(found["targets/tip/position"], reached.translation())
        np.testing.assert_array_equal(found["targets/tip/quaternion"], reached.wxyz_xyz[:, :4])
        np.testing.assert_array_equal(found["targets/rest/q"], np.tile(robot.q_home, (3, 1)))
        assert found["targets/com/position"].shape == (3, 3) and "targets/still/target" not in found
        np.testing.assert_array_equal(found["weight"], weight)
        units = json.loads(str(found["units"]))
        assert units["targets/tip/position"] == "m" and units["targets/rest/q"] == "see q_unit"


def test_targets_stand_beside_each_of_several_solutions(tmp_path: Path) -> None:
    robot = jaxik.load_robot("pendulum")
    angles = jnp.arange(2.0)[:, None]

    def saved(angles: jax.Array, *batch: int) -> np.ndarray:
        problem = jaxik.Problem(robot, {"rest": jaxik.PostureTask(angles)})
        zero, whole = jnp.zeros(batch), jnp.zeros(batch, jnp.int32)
        q = jnp.zeros((*batch, 1))
        solution = jaxik.Solution(q, whole, {"rest": q}, whole, whole, zero, zero, topology=robot.topology)
        jaxik.save(tmp_path / "several.npz", solution, problem=problem)
        with np.load(tmp_path / "several.npz") as found:
            return found["targets/rest/q"][..., 0]

    np.testing.assert_array_equal(saved(angles, 2, 3), [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(saved(angles, 3, 2), [[0, 1]] * 3)
    np.testing.assert_array_equal(saved(angles[:, None], 2, 2), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(saved(angles[0], 2, 2), np.zeros((2, 2)))
    with pytest.raises(jaxik.JaxikError, match=re.escape("give the target (2, 1) if the last axis")):
        saved(angles, 2, 2)


def test_what_does_not_belong_beside_a_solution_is_refused(tmp_path: Path) -> None:
    robot, other = jaxik.load_robot("pendulum"), jaxik.load_robot("double_pendulum")
    zero, whole = jnp.zeros(2), jnp.zeros(2, jnp.int32)
    solution = jaxik.Solution(jnp.zeros((2, 1)), whole, {"q": zero}, whole, whole, zero, zero, topology=robot.topology)

    def posture(robot: jaxik.Robot, batch: tuple[int, ...] = ()) -> jaxik.Problem:
        return jaxik.Problem(robot, {"rest": jaxik.PostureTask(jnp.zeros((*batch, robot.nq)))})

    for thing, given, words in [
        (solution, {"problem": posture(other)}, "is of double_pendulum, the solution of pendulum"),
        (solution, {"problem": robot}, "problem is the jaxik.Problem that was solved, not Robot"),
        (solution, {"problem": posture(robot, (3,))}, "the target of 'rest' has batch axes (3,), the solution (2,)"),
        (solution, {"arrays": {"q": zero}}, "'q' is no name for an array"),
        (solution, {"arrays": {"residuals/new": zero}}, "'residuals/new' is no name for an array"),
        (robot, {"arrays": {"weight": zero}}, "beside a solution, not beside a robot"),
    ]:
        with pytest.raises(jaxik.JaxikError, match=re.escape(words)):
            jaxik.save(tmp_path / "x.npz", thing, **given)
    assert not (tmp_path / "x.npz").exists()


def test_a_robot_file_names_and_measures_every_leaf(tmp_path: Path) -> None:
    fields = {f.name: f.metadata["rank"] for f in dataclasses.fields(jaxik.Robot) if "rank" in f.metadata}
    assert fields.pop("geometry") == 0  # a pytree of its own
    assert {name: len(leaf.axes) for name, leaf in LEAVES.items()} == fields
    jaxik.save(tmp_path / "r.npz", every())
    with np.load(tmp_path / "r.npz") as arrays:
        assert set(json.loads(str(arrays["units"]))) == set(fields) | set(SHAPE_LEAVES)
        assert set(fields) - set(OPTIONAL) <= set(arrays.files)
        assert list(arrays["joint_names"]) == ["free", "küglig", "slide", "joint3"]
        assert list(arrays["q_unit"]) == [*"mmm1111", *"1111", "m", "rad"]
        assert list(arrays["body_names"]) == ["world", "mocap", "base", "body3", "arm"]
        assert (str(arrays["format"]), int(arrays["format_version"])) == ("jaxik robot", 1)
        assert (str(arrays["robot"]), str(arrays["jaxik_version"])) == ("every", jaxik.__version__)
        joints = json.loads(str(arrays["topology"]))["joints"]
        assert joints[2] == {"name": "slide", "type": "slide", "body": 4, "q_index": 11, "v_index": 9}


def test_float64_is_read_as_float32_where_jax_has_no_other_and_says_so(tmp_path: Path) -> None:
    robot = dataclasses.replace(planar(), limit_upper=jnp.array([0.1, 0.7]))  # float32 is above both
    jaxik.save(tmp_path / "r.npz", robot)
    jaxik.save(tmp_path / "s.npz", solution(4))
    with jax.enable_x64(False):
        with pytest.warns(JaxikWarning, match=r"r\.npz is in float64.*jax_enable_x64"):
            read = jaxik.load_robot(tmp_path / "r.npz")
        with pytest.warns(JaxikWarning, match=r"s\.npz is in float64.*jax_enable_x64"):
            found = jaxik.load(tmp_path / "s.npz")
    assert {x.dtype for x in jax.tree.leaves(read)} == {np.dtype("float32")}
    assert (np.asarray(read.limit_upper, float) < robot.limit_upper).all()
    np.testing.assert_allclose(read.body_position, robot.body_position, atol=1e-7)
    np.testing.assert_allclose(found.q, solution(4).q, rtol=1e-7)


# --- what can be wrong with a file --------------------------------------------------------------------------------


def changed(**changes: Any) -> Callable[[Path], None]:
    """A robot's file with other arrays, None for none of that name."""

    def write(path: Path) -> None:
        jaxik.save(path, planar())
        with np.load(path) as found:
            arrays = {name: found[name] for name in found.files} | changes
        np.savez(path, allow_pickle=True, **{name: x for name, x in arrays.items() if x is not None})

    return write


def truncated(path: Path) -> None:
    jaxik.save(path, planar())
    path.write_bytes(path.read_bytes()[:-300])


def flipped(path: Path) -> None:
    jaxik.save(path, planar())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def array_alone(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda path: None, "no such file"),
    "a folder": (lambda path: path.mkdir(), "cannot be read as an .npz file*directory"),
    "text": (lambda path: path.write_text("<mujoco/>"), "cannot be read as an .npz file*no .npz archive"),
    "an empty file": (lambda path: path.write_text(""), "cannot be read as an .npz file*no .npz archive"),
    "one array": (array_alone, "cannot be read as an .npz file*no .npz archive"),
    "half a file": (truncated, "cannot be read as an .npz file"),
    "a wrong byte": (flipped, "cannot be read as an .npz file"),
    "pickled objects": (changed(body_mass=np.array([{}])), "cannot be read as an .npz file*allow_pickle=False"),
    "another's": (lambda path: np.savez(path, a=np.ones(2), b=np.ones(2)), "was not written by jaxik*holds a, b;"),
    "another kind": (changed(format="jaxik tree"), "is a 'jaxik tree', not a 'jaxik solution' or a 'jaxik track'"),
    "a later version": (changed(format_version=2), "its format_version is 2*reads 1*the jaxik that wrote it"),
    "no version": (changed(format_version=None), "its format_version is missing"),
    "no leaf": (changed(body_mass=None), "has no 'body_mass', which every jaxik robot*write it again with jaxik.save"),
    "no topology": (changed(topology=None), "has no 'topology', which every"),
    "another shape": (changed(body_mass=np.ones(5)), "'body_mass' * of shape (*batch, 3), not float64 of (5,)"),
    "too few axes": (changed(body_position=np.ones(3)), "'body_position' * of shape (*batch, 3, 3), not"),
    "words for numbers": (changed(armature=np.array(["a", "b"])), "'armature' is an array of numbers*not <U1"),
    "broken JSON": (changed(topology="{"), "'topology' is no JSON"),
    "other JSON": (changed(topology="[1, 2]"), "'topology' is none of a robot"),
    "JSON without joints": (changed(topology='{"name": "a"}'), "'topology' is none of a robot*KeyError('joints')"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_what_was_found(case: str, tmp_path: Path) -> None:
    write, words = WRONG[case]
    path = tmp_path / "wrong.npz"
    write(path)
    with pytest.raises(LoadError) as error:
        jaxik.load(path)
    assert fnmatchcase(str(error.value), f"{glob.escape(str(path))}: {words}*"), str(error.value)


def test_kinds_are_not_mixed_up(tmp_path: Path) -> None:
    jaxik.save(tmp_path / "s.npz", solution(2))
    with pytest.raises(LoadError, match="is a 'jaxik solution', not a 'jaxik robot'"):
        jaxik.load_robot(tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("array", "value", "words"),
    [
        ("q", np.ones((2, 3)), r"'q' .* shape \(\*batch, 2\), not float64 of \(2, 3\)"),
        ("cost", np.ones(3), r"'cost' .* not float64 of \(3,\)"),
        ("pair_names", np.array(["a", "b"]), r"'pair_names' has shape \(p, 2\), not \(2,\)"),
        ("residuals/gaze", np.ones((3, 2)), r"'residuals/gaze' has .* batch \(2,\), not \(3, 2\)"),
    ],
)
def test_a_solution_whose_arrays_do_not_fit_is_refused(array: str, value: Any, words: str, tmp_path: Path) -> None:
    jaxik.save(tmp_path / "s.npz", solution(2))
    with np.load(tmp_path / "s.npz") as found:
        np.savez(tmp_path / "t.npz", **{name: found[name] for name in found.files} | {array: value})
    with pytest.raises(LoadError, match=words):
        jaxik.load(tmp_path / "t.npz")


def test_a_name_without_an_ending_gets_one(tmp_path: Path) -> None:
    jaxik.save(tmp_path / "robot", planar())
    assert [path.name for path in tmp_path.iterdir()] == ["robot.npz"]


# --- what can be wrong with saving ---------------------------------------------------------------------------------


def in_jit(path: Path) -> None:
    jax.jit(lambda s: jaxik.save(path, s))(solution(2))


CANNOT: dict[str, tuple[Callable[[Path], Any], str]] = {
    "another ending": (lambda path: jaxik.save(path.with_suffix(".txt"), planar()), "is an .npz file, not .txt"),
    "a folder's name": (lambda path: (path.mkdir(), jaxik.save(path, planar())), "is a folder"),
    "no such folder": (lambda path: jaxik.save(path / "a.npz", planar()), "No such file or directory"),
    "something else": (lambda path: jaxik.save(path, {"q": 1}), "a jaxik.Track or a jaxik.Robot, not dict"),  # type: ignore[arg-type]
    "tracers": (in_jit, "is being traced: return it from jit first"),
    "half precision": (
        lambda path: jaxik.save(path, dataclasses.replace(planar(), body_mass=jnp.ones(3, jnp.bfloat16))),
        "body_mass cannot be saved: it is an array of numbers or texts, not ArrayImpl of bfloat16",
    ),
    "a slash": (lambda path: jaxik.save(path, solution(2, residuals={"a/b": jnp.ones(2)})), "task names without '/'"),
    "residuals in a list": (
        lambda path: jaxik.save(path, solution(2, residuals={"a": [jnp.ones(2)]})),
        "kept as arrays by task and part",
    ),
}


@pytest.mark.parametrize("case", CANNOT)
def test_what_cannot_be_saved_is_said_and_leaves_no_file(case: str, tmp_path: Path) -> None:
    save, words = CANNOT[case]
    with pytest.raises(JaxikError) as error:
        save(tmp_path / "x.npz")
    assert words in str(error.value)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_a_file_stays_as_it_was_until_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    jaxik.save(path, solution(2))
    before = path.read_bytes()

    def interrupted(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        assert path.read_bytes() == before
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archive.np, "savez", interrupted)
        with pytest.raises(KeyboardInterrupt):
            jaxik.save(path, solution(3))
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.npz"]
    jaxik.save(path, solution(3))
    same(jaxik.load(path), solution(3))


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "latest.npz").symlink_to(tmp_path / "real.npz")
    jaxik.save(tmp_path / "latest.npz", solution(2))
    assert (tmp_path / "latest.npz").is_symlink()
    same(jaxik.load(tmp_path / "real.npz"), solution(2))
