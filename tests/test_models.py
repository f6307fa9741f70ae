"""The test material itself: models that others published, and random trees."""

import zipfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import models
import mujoco
import numpy as np
import pytest
import random_trees
from model_list import RobotModel, Wheel

SEEDS = range(20)
KINDS = {
    mujoco.mjtJoint.mjJNT_FREE: "free",
    mujoco.mjtJoint.mjJNT_BALL: "ball",
    mujoco.mjtJoint.mjJNT_SLIDE: "slide",
    mujoco.mjtJoint.mjJNT_HINGE: "hinge",
}


def _joints(model: mujoco.MjModel) -> Counter[str]:
    return Counter(KINDS[mujoco.mjtJoint(kind)] for kind in model.jnt_type)


def _stacks(model: mujoco.MjModel) -> set[tuple[str, ...]]:
    kinds = [KINDS[mujoco.mjtJoint(kind)] for kind in model.jnt_type]
    return {tuple(kinds[at : at + n]) for at, n in zip(model.body_jntadr, model.body_jntnum, strict=True)}


def _poses(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    return np.hstack([data.xpos, data.xquat])


@pytest.mark.parametrize("name", models.MODELS)
def test_published_model_has_the_joints_listed(name: str) -> None:
    assert _joints(models.reference_model(name)) == models.MODELS[name].joints


@pytest.mark.parametrize("name", [name for name, entry in models.MODELS.items() if entry.needs_kinematics_only])
def test_c_mujoco_refuses_a_model_marked_kinematics_only(name: str) -> None:
    path = str(models.require(name))  # the others compiled, untouched, in the test above
    with pytest.raises(ValueError):
        mujoco.MjModel.from_xml_path(path)


def test_published_models_cover_every_joint_type_and_file_format() -> None:
    entries = models.MODELS.values()
    assert set().union(*(entry.joints for entry in entries)) == set(KINDS.values())
    assert {Path(entry.path).suffix for entry in entries} == {".xml", ".urdf"}


@pytest.fixture
def fake_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RobotModel:
    """A listed model whose download puts down a wheel with another content than the listed one."""

    def download(wheel: Wheel, into: str) -> None:
        with zipfile.ZipFile(Path(into) / "fake-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr("fake/robot.xml", "<mujoco/>")

    entry = RobotModel("fake", Wheel("fake", "1.0", "0" * 64), "fake/robot.xml", {})
    monkeypatch.setenv("JAXIK_TEST_MODELS", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "_download", download)
    monkeypatch.setattr(models, "SKIPS", tmp_path / "skips")
    monkeypatch.setattr(models, "unavailable", {})
    monkeypatch.setitem(models.MODELS, "fake", entry)
    models._fetch.cache_clear()
    return entry


def test_wheel_with_another_hash_is_refused_and_nothing_is_kept(fake_wheel: RobotModel) -> None:
    with pytest.raises(models.ModelUnavailable, match="sha256 is .* expected 0000"):
        models.model_path("fake")
    assert not [path for path in models.cache_dir().rglob("*") if path.is_file()]


class Terminal:
    """Stands for pytest's terminal reporter, in a worker of pytest-xdist or in the process that the user sees."""

    def __init__(self, **config: object) -> None:
        self.config = SimpleNamespace(**config)
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def test_model_that_cannot_be_had_is_skipped_counted_and_printed_once(fake_wheel: RobotModel) -> None:
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match="model fake unavailable: fake 1.0: sha256"):
            models.require("fake")
    assert list(models.unavailable) == ["fake"]
    worker, user, nobody = Terminal(workerinput={}), Terminal(), Terminal()
    for terminal in (worker, user, nobody):
        models.report_skips(terminal)
    assert worker.lines == nobody.lines == []
    head, detail = user.lines
    assert head == f"robot models: 1 of {len(models.MODELS)} unavailable, 2 tests skipped"
    assert detail.startswith("  fake (2 tests): fake 1.0: sha256 is ")


@pytest.mark.parametrize("seed", SEEDS)
def test_random_tree_compiles_and_moves(seed: int) -> None:
    model = random_trees.compiled(seed)
    rng = np.random.default_rng(seed)
    first, second = (_poses(model, random_trees.random_qpos(model, rng)) for _ in range(2))
    assert np.isfinite(first).all()
    assert not np.allclose(first, second)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_tree_is_branched_and_has_every_joint_type(seed: int) -> None:
    model = random_trees.compiled(seed)
    children = Counter(model.body_parentid[1:].tolist())
    assert max(n for parent, n in children.items() if parent != 0) >= 2
    assert _joints(model).keys() == set(KINDS.values())


def test_random_trees_have_every_stack_and_every_kind_of_limit() -> None:
    trees = [random_trees.compiled(seed) for seed in SEEDS]
    assert set().union(*map(_stacks, trees)) >= set(random_trees.STACKS) | {("free",)}
    simple = np.concatenate([tree.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE) for tree in trees])
    ball = np.concatenate([tree.jnt_type == int(mujoco.mjtJoint.mjJNT_BALL) for tree in trees])
    limited = np.concatenate([tree.jnt_limited for tree in trees]).astype(bool)
    low, high = np.concatenate([tree.jnt_range for tree in trees]).T
    assert (simple & ~limited).any() and (ball & ~limited).any() and (ball & limited).any()
    assert (simple & limited & (low > 0)).any() and (simple & limited & (high < 0)).any()
    assert (simple & limited & (high - low < 1e-8)).any()


def test_random_trees_hang_on_mocap_bodies_and_carry_sites_and_keys() -> None:
    trees = [random_trees.compiled(seed) for seed in SEEDS]
    assert all(tree.nmocap == 1 and tree.site("mocap_site").id >= 0 and tree.key("bent").id >= 0 for tree in trees)
    assert any((tree.body_parentid == tree.body("mocap").id).any() for tree in trees)
    assert {tree.nkey for tree in trees} == {1, 2}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_configuration_is_inside_the_limits_with_unit_quaternions(seed: int) -> None:
    model = random_trees.compiled(seed)
    qpos = random_trees.random_qpos(model, np.random.default_rng(seed))
    for joint in range(model.njnt):
        at, kind = model.jnt_qposadr[joint], mujoco.mjtJoint(model.jnt_type[joint])
        low, high = model.jnt_range[joint]
        if KINDS[kind] in ("free", "ball"):
            start = at + 3 * (KINDS[kind] == "free")
            quaternion = qpos[start : start + 4]
            assert np.linalg.norm(quaternion) == pytest.approx(1.0, abs=1e-12)
            angle = 2 * np.arctan2(np.linalg.norm(quaternion[1:]), abs(quaternion[0]))
            assert not model.jnt_limited[joint] or angle <= high + 1e-12
        else:
            assert not model.jnt_limited[joint] or low <= qpos[at] <= high


def test_same_seed_gives_the_same_tree_and_another_seed_another() -> None:
    assert random_trees.random_tree(3) == random_trees.random_tree(3)
    assert random_trees.random_tree(3) != random_trees.random_tree(4)


def test_deep_chain_has_one_hinge_a_link_and_a_tip() -> None:
    model = mujoco.MjModel.from_xml_string(random_trees.deep_chain(30))
    assert (model.nq, model.nv, model.nbody) == (30, 30, 31)
    assert model.body_parentid.tolist() == [0, *range(30)]
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    np.testing.assert_allclose(data.site("tip").xpos, [0.02, 0.0, 3.1], atol=1e-12)
