"""`jaxik doctor`: what it says of a machine that is well, and that it names what is made to be wrong."""

import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np
import pytest
from fresh import run_program

import jaxik
from jaxik.cli import machine, main, packages
from jaxik.pictures import canvas
from jaxik.robot.loading.reference import joints_outside, pose_error
from jaxik.robot.loading.sources import read_source

NAMES = ["versions", "extras", "devices", "cores", "cache", "pictures", "solve"]


def examined(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """The exit code, and the line of each check."""
    code = main(["doctor"])
    out, err = capsys.readouterr()
    assert err == ""
    return code, {line.split()[1]: line for line in out.splitlines()}


@pytest.fixture(name="quick")
def without_solve_and_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the other checks."""
    for name in ("solve", "pictures"):
        monkeypatch.delitem(machine.CHECKS, name)


def test_a_machine_that_is_well_gets_a_line_a_check_and_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = examined(capsys)
    assert code == 0 and list(lines) == NAMES
    assert f"jax {jax.__version__}" in lines["versions"] and "x64 is on" in lines["devices"]
    assert "ur5e CONVERGED, by C MuJoCo" in lines["solve"]
    assert str(jax.config.jax_compilation_cache_dir) in lines["cache"]


@pytest.mark.usefixtures("quick")
def test_json_has_the_versions_and_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = {"python": platform.python_version(), "jaxik": jaxik.__version__, "jax": jax.__version__}
    expected |= {"mujoco": mujoco.__version__, "numpy": np.__version__}
    assert expected.items() <= found["versions"].items() and "jaxlib" in found["versions"]
    assert found["faults"] == []
    assert found["checks"]["devices"]["backend"] == jax.default_backend() and found["checks"]["devices"]["x64"]
    assert found["checks"]["cores"]["used"] == len(jax.devices("cpu"))


def test_a_solve_that_is_wrong_and_says_converged_is_a_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong:
        status = jaxik.Status.CONVERGED
        q = jaxik.load_robot("ur5e").q_home

    monkeypatch.delitem(machine.CHECKS, "pictures")
    monkeypatch.setattr(machine, "solve", lambda problem: Wrong)
    code, lines = examined(capsys)
    assert code == 1
    assert [name for name, line in lines.items() if line.startswith("fault")] == ["solve"]
    assert "CONVERGED" in lines["solve"] and "cannot be trusted" in lines["solve"]
    assert main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["faults"] == ["solve"] and found["checks"]["solve"]["position"] > 0.1


@pytest.mark.usefixtures("quick")
def test_a_check_that_raises_is_a_fault_and_the_others_still_speak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(machine.CHECKS, "cores", lambda: 1 / 0)
    code, lines = examined(capsys)
    assert code == 1 and "ZeroDivisionError: division by zero" in lines["cores"]
    assert lines["cache"].startswith("ok")


@pytest.mark.usefixtures("quick")
def test_an_extra_that_is_not_installed_is_named_with_its_command_and_no_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requires = {
        "jaxik": [
            "numpy>=2",
            'drawer[film,sound]>=2; extra == "pictures"',
            "numpy ; python_version > '3' and extra == 'plot'",
            "unheard-of; extra == 'test'",
        ],
        "drawer": ["gone; extra == 'film'", "numpy; extra == 'film'", "absent>1; extra == 'other'"],
        "numpy": [],
    }

    class Made:
        def __init__(self, name: str) -> None:
            if name not in requires:
                raise importlib.metadata.PackageNotFoundError(name)
            self.requires, self.metadata = requires[name], self

        def get_all(self, key: str) -> list[str]:
            return ["pictures", "plot", "test"]

    monkeypatch.setattr(packages, "distribution", Made)
    monkeypatch.setattr(packages, "NEEDED", ("numpy",))
    code, lines = examined(capsys)
    assert code == 0 and lines["extras"].startswith("missing")
    assert lines["extras"].endswith('pictures lacks gone, plot installed: pip install "jaxik[pictures]"')
    monkeypatch.setattr(packages, "NEEDED", ("numpy", "jax"))
    code, lines = examined(capsys)
    assert code == 1 and lines["versions"].startswith("fault") and lines["versions"].endswith("pip install jax")


@pytest.mark.parametrize(
    ("backend", "state", "code"), [(None, "missing", 0), ("no_such_backend", "fault", 1)], ids=["none", "broken"]
)
def test_opengl_may_be_missing_and_may_not_be_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, backend: str | None, state: str, code: int
) -> None:
    def opened(robot: Any, size: tuple[int, int]) -> Any:
        return canvas.Canvas(*size)  # a new one: what was drawn before in this process is kept

    monkeypatch.delitem(machine.CHECKS, "solve")
    monkeypatch.setattr(machine, "render", opened)
    monkeypatch.setattr(canvas, "backend", lambda: backend)
    found, lines = examined(capsys)
    assert found == code and lines["pictures"].startswith(state) and lines["pictures"].endswith(canvas.INSTALL)


WITHOUT = "from jaxik.cli import main; raise SystemExit(main(['doctor']))"


def test_no_device_and_no_jax_are_faults_in_a_line() -> None:
    done = run_program("import os; os.environ['JAX_PLATFORMS'] = 'no_such_thing'; " + WITHOUT)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("fault")]
    assert done.returncode == 1 and "devices" in line and "JAX_PLATFORMS=cpu" in line
    done = run_program("import sys; sys.modules['jax'] = None; " + WITHOUT)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("fault")]
    assert done.returncode == 1 and "imports" in line and "jax" in line and "Traceback" not in done.stderr


def test_a_cache_folder_that_cannot_be_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = f"import os; os.environ['XDG_CACHE_HOME'] = {str(tmp_path / 'file')!r}"
    unset = "os.environ.pop('JAX_COMPILATION_CACHE_DIR', None)"
    skip = "from jaxik.cli import machine; del machine.CHECKS['solve'], machine.CHECKS['pictures']"
    done = run_program("\n".join((place, unset, skip, WITHOUT)))
    [line] = [line for line in done.stdout.splitlines() if line.startswith("fault")]
    assert done.returncode == 1 and "cache" in line and "set XDG_CACHE_HOME" in line


def test_judge_measures_known_errors_and_names_joints_outside() -> None:
    half = np.sqrt(0.5)
    distance, angle = pose_error(np.array([half, 0, 0, half, 1, 2, 3]), np.array([1.0, 0, 0, 0, 1, 2, 7]))
    assert distance == pytest.approx(4) and angle == pytest.approx(np.pi / 2)
    model = read_source("panda").model
    q = np.clip(np.zeros(7), *model.jnt_range.T)
    assert joints_outside(model, q) == []
    q[3] = np.nextafter(model.jnt_range[3, 1], 10)
    q[5] = np.nan
    assert joints_outside(model, q) == ["joint4", "joint6"]
