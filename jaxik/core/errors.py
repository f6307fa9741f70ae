"""Errors and warnings that jaxik raises on the host: each names what was given, what is allowed and what to do."""

import difflib
from collections.abc import Iterable

_LISTED = 30  # names printed when none is near: about three terminal lines
_LEAST_PART = 3  # letters of a name that may be taken for a part of another


class JaxikError(ValueError):
    """Base of every error that jaxik raises."""


class UnknownNameError(JaxikError):
    """A name (robot, frame, joint, keyframe, ...) that does not exist."""


class LoadError(JaxikError):
    """A robot model that cannot be read or compiled, or a saved file that cannot be read."""


class JaxikWarning(UserWarning):
    """Something was left out or replaced; the result is usable, and the text says what differs."""


def near_names(given: str, known: Iterable[str]) -> list[str]:
    """Up to five of the valid names that look like the one given, the nearest first.

    Where none does, those that differ by a prefix or a suffix, as of "panda_hand" and "hand".
    """
    by_lower, wanted = {name.lower(): name for name in sorted(known)}, given.lower()
    near = difflib.get_close_matches(wanted, by_lower, n=5, cutoff=0.6)
    if not near and len(wanted) >= _LEAST_PART:
        parts = [name for name in by_lower if len(name) >= _LEAST_PART and _share_an_end(name, wanted)]
        near = sorted(parts, key=lambda name: abs(len(name) - len(wanted)))[:5]
    return [by_lower[name] for name in near]


def _share_an_end(a: str, b: str) -> bool:
    """Whether one name is the beginning or the end of the other."""
    part, whole = sorted((a, b), key=len)
    return whole.startswith(part) or whole.endswith(part)


def unknown_name(kind: str, given: str, known: Iterable[str]) -> UnknownNameError:
    """Build the error for an unknown name.

    Args:
        kind: what the name should have named, in the singular: "frame", "joint".
        given: the name as the caller wrote it.
        known: every valid name.

    Returns:
        The error (not raised): it offers the near names where there are any, else the first 30 valid ones, in the order
        of `known`.
    """
    names = list(dict.fromkeys(known))  # in their order: of frames, sites and bodies before the many shapes
    near = near_names(given, names)
    if near:
        hint = "did you mean " + " or ".join(repr(name) for name in near) + "?"
    elif names:
        rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        hint = "known: " + ", ".join(repr(name) for name in names[:_LISTED]) + rest
    else:
        hint = f"there is no {kind} here"
    return UnknownNameError(f"unknown {kind} {given!r}; {hint}")
