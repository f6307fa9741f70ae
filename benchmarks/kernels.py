"""How many kernels a step of a compiled program launches, by its optimised HLO, loops of known length unrolled."""

import re

# What is no kernel of its own: names for values, and calls whose bodies are counted.
FREE = frozenset("parameter constant tuple get-tuple-element bitcast while conditional call after-all".split())
# Name, type or tuple of types, operation.
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = (?:\(.*?\)|\S+) ([a-z][a-z-]*)\(")
BODY = re.compile(r"body=%?([\w.-]+)")
TRIPS = re.compile(r'known_trip_count[^}]*?"n":"(\d+)"')


def kernels_per_step(text: str) -> list[int]:
    """Of each solver's loop, in the order of the program: what one turn of it launches.

    Those loops are the innermost ones whose length is not known; branches of conditionals are left out.
    """
    bodies = _computations(text)
    found = []
    for lines in bodies.values():
        for line in lines:
            body = BODY.search(line)
            if body and not TRIPS.search(line) and not _has_open_loop(bodies, body[1]):
                found.append(_count(bodies, body[1]))
    return found


def _computations(text: str) -> dict[str, list[str]]:
    """The lines of instructions of each computation."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        head = re.match(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{\s*$", line)
        if head:
            name = head[1]
            found[name] = []
        elif name and INSTRUCTION.match(line):
            found[name].append(line)
    return found


def _count(bodies: dict[str, list[str]], name: str) -> int:
    total = 0
    for line in bodies.get(name, ()):
        kind, body, trips = INSTRUCTION.match(line), BODY.search(line), TRIPS.search(line)
        if body and trips:
            total += int(trips[1]) * _count(bodies, body[1])
        elif kind and kind[1] not in FREE:
            total += 1
    return total


def _has_open_loop(bodies: dict[str, list[str]], name: str) -> bool:
    loops = [line for line in bodies.get(name, ()) if BODY.search(line)]
    return any(not TRIPS.search(line) or _has_open_loop(bodies, BODY.search(line)[1]) for line in loops)  # type: ignore[index]
