"""How many kernels a step of a compiled program launches, by its optimised HLO, loops of known length unrolled."""

import re

from jaxik.batching.method import STEPS

# What is no kernel of its own: names for values, and calls whose bodies are counted.
FREE = frozenset("parameter constant tuple get-tuple-element bitcast while conditional call after-all".split())
# Name, type or tuple of types, operation.
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = (?:\(.*?\)|\S+) ([a-z][a-z-]*)\(")
BODY = re.compile(r"body=%?([\w.-]+)")
LOOP = re.compile(rf'op_name="[^"]*/{STEPS}/while"')
TRIPS = re.compile(r'known_trip_count[^}]*?"n":"(\d+)"')


def kernels_per_step(text: str) -> list[int]:
    """Of each loop over steps, in the order of the program: what one turn of it launches.

    Branches of conditionals are left out, and loops of unknown length inside.
    """
    bodies = _computations(text)
    loops = [BODY.search(line) for lines in bodies.values() for line in lines if LOOP.search(line)]
    return [_count(bodies, body[1]) for body in loops if body]


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
