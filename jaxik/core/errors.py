"""Errors and warnings that jaxik raises on the host: each names what was given, what is allowed and what to do."""

import difflib
from collections.abc import Iterable

_LISTED = 30  # names printed when none is near: about three terminal lines


class JaxikError(ValueError):
    """Base of every error that jaxik raises."""


class UnknownNameError(JaxikError):
    """A name (robot, frame, joint, keyframe, ...) that does not exist."""


class LoadError(JaxikError):
    """A robot model that cannot be read or compiled, or a saved file that cannot be read."""


class JaxikWarning(UserWarning):
    """Something was left out or replaced; the result is usable, and the text says what differs."""


def near_names(given: str, known: Iterable[str]) -> list[str]:
    """Up to five of the valid names that look like the one given, the nearest first."""
    by_lower = {name.lower(): name for name in sorted(known)}
    return [by_lower[name] for name in difflib.get_close_matches(given.lower(), by_lower, n=5, cutoff=0.6)]


def unknown_name(kind: str, given: str, known: Iterable[str]) -> UnknownNameError:
    """Build the error for an unknown name.

    Args:
        kind: what the name should have named, in the singular: "frame", "joint".
        given: the name as the caller wrote it.
        known: every valid name.

    Returns:
        The error (not raised): it offers the near names where there are any, else the first 30 valid ones.
    """
    names = sorted(set(known))
    near = near_names(given, names)
    if near:
        hint = "did you mean " + " or ".join(repr(name) for name in near) + "?"
    elif names:
        rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        hint = "known: " + ", ".join(repr(name) for name in names[:_LISTED]) + rest
    else:
        hint = f"there is no {kind} here"
    return UnknownNameError(f"unknown {kind} {given!r}; {hint}")
