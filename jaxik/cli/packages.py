"""Versions and extras, as the installed packages' metadata have them. Imports no other package."""

import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version

from jaxik.cli.finding import Finding
from jaxik.core.version import __version__

NEEDED = ("jax", "jaxlib", "mujoco", "mujoco-mjx", "numpy")
FOR_DEVELOPERS = "test"  # an extra that users have no need of


def check_versions() -> Finding:
    """Of Python, jaxik and what it computes with."""
    found = {"python": platform.python_version(), "jaxik": __version__}
    found |= {name: version(name) for name in NEEDED if _installed(name)}
    said = ", ".join(f"{name} {number}" for name, number in found.items())
    missing = [name for name in NEEDED if name not in found]
    if missing:
        return Finding(
            f"{', '.join(missing)} not installed ({said})", found, "fault", f"pip install {' '.join(missing)}"
        )
    return Finding(said, found)


def check_extras() -> Finding:
    """Which extras of jaxik are installed."""
    try:
        extras = distribution("jaxik").metadata.get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return Finding("jaxik itself is not installed, so its extras are unknown", {}, "missing", "pip install .")
    lacking = {extra: list(_lacking("jaxik", extra)) for extra in extras if extra != FOR_DEVELOPERS}
    said = [f"{extra} lacks {', '.join(names)}" if names else f"{extra} installed" for extra, names in lacking.items()]
    missing = [extra for extra, names in lacking.items() if names]
    advice = f'pip install "jaxik[{",".join(missing)}]"' if missing else ""
    return Finding(", ".join(said) or "jaxik has none", {"lacking": lacking}, "missing" if missing else "ok", advice)


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _lacking(package: str, extra: str) -> Iterator[str]:
    """The packages that an extra brings and that are not installed, those of their own extras included."""
    for requirement in distribution(package).requires or []:
        # "imageio[ffmpeg]>=2; extra == 'pictures'"
        parts = re.match(r"([\w.-]+)\s*(?:\[([^\]]*)\])?[^;]*;.*extra\s*==\s*[\"']([^\"']+)[\"']", requirement)
        if parts is None or parts[3] != extra:
            continue
        if not _installed(parts[1]):
            yield parts[1]
            continue
        for inner in filter(None, re.split(r"\s*,\s*", parts[2] or "")):
            yield from _lacking(parts[1], inner)
