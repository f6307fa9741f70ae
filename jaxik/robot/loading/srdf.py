"""Pairs of links that an SRDF says not to look at."""

import dataclasses
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from jaxik.core.errors import LoadError, unknown_name
from jaxik.kinematics.geometry import DroppedPair, Geometry


def without_disabled(geometry: Geometry, body_names: tuple[str, ...], path: str | os.PathLike[str]) -> Geometry:
    """The geometry without the pairs of bodies that `disable_collisions` names, each with the reason given there.

    Raises:
      LoadError: for a file that is missing or no SRDF.
      UnknownNameError: for a link that the robot does not have.
    """
    disabled = _disabled(Path(path), body_names)
    links = {name: body_names[body] for name, body in zip(geometry.names, geometry.bodies, strict=True)}
    kept, dropped = [], []
    # What is dropped already has that reason, too: for others it may come back.
    for pair in geometry.dropped:
        reason = disabled.get(frozenset(links[name] for name in pair[:2]))
        dropped.append(pair if reason is None else DroppedPair(*pair[:2], f"SRDF: {reason}"))
    for pair in geometry.pairs:
        reason = disabled.get(frozenset(links[name] for name in geometry.named(pair)))
        if reason is None:
            kept.append(pair)
        else:
            dropped.append(DroppedPair(*geometry.named(pair), f"SRDF: {reason}"))
    return dataclasses.replace(geometry, pairs=tuple(kept), dropped=tuple(dropped))


def _disabled(path: Path, body_names: tuple[str, ...]) -> dict[frozenset[str], str]:
    """Reasons by the names of both links."""
    if not path.is_file():
        raise LoadError(f"{path}: no such file")
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise LoadError(f"{path}: {error}") from None
    if root.tag != "robot":
        raise LoadError(f"{path}: the root element of an SRDF is <robot>, not <{root.tag}>")
    found = {}
    for entry in root.iter("disable_collisions"):
        links = entry.get("link1", ""), entry.get("link2", "")
        for link in links:
            if link not in body_names:
                raise unknown_name(f"link (named in {path.name})", link, body_names)
        found[frozenset(links)] = entry.get("reason", "disabled")
    return found
