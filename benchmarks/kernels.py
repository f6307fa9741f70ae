"""How many kernels a compiled program has, how many differ, and how many a step launches, by its optimised HLO."""

import re

from jaxik.batching.method import STEPS

# What is no kernel of its own: names for values, and calls whose bodies are counted.
FREE = frozenset("parameter constant tuple get-tuple-element bitcast while conditional call after-all".split())
# Name, type or tuple of types, operation.
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = (?:\(.*?\)|\S+) ([a-z][a-z-]*)\(")
BODY = re.compile(r"body=%?([\w.-]+)")
LOOP = re.compile(rf'op_name="[^"]*/{STEPS}/while"')
TRIPS = re.compile(r'known_trip_count[^}]*?"n":"(\d+)"')


# A call that XLA compiles as one kernel (`jaxik.core.xla_options`).
WHOLE = 'xla_cpu_small_call="true"'
# Computations that are called, and so hold kernels of their own; those of fusions and reductions are part of one.
CALLED = re.compile(r"(?:body|condition|to_apply|true_computation|false_computation)=%?([\w.-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
NAME = re.compile(r"%([\w.-]+)")
# Says where an instruction comes from, not what it is.
NOTES = re.compile(r", (?:metadata|frontend_attributes)=\{[^}]*\}|, backend_config=.*")


def kernels(text: str) -> int:
    """How many kernels a program launches."""
    return len(_launched(_computations(text), text))


def different_kernels(text: str) -> int:
    """How many of a program's kernels differ: equal ones are compiled once, each takes about 20 ms on two cores."""
    bodies = _computations(text)
    return len({_written(bodies, line) for line in _launched(bodies, text)})


def _launched(bodies: dict[str, list[str]], text: str) -> list[str]:
    """The instructions of all computations that are reached from the program's entry, each a kernel of its own."""
    entry = re.search(r"^ENTRY %?([\w.-]+)", text, re.MULTILINE)
    ahead, seen, found = [entry[1]] if entry else [], set(), list[str]()
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        for line in bodies.get(name, ()):
            kind = INSTRUCTION.match(line)
            if kind and (kind[1] not in FREE or WHOLE in line):
                found.append(line)
            elif kind and kind[1] in ("while", "call", "conditional"):
                ahead += CALLED.findall(line)
                ahead += [x.strip(" %") for names in BRANCHES.findall(line) for x in names.split(",")]
    return found


def _written(bodies: dict[str, list[str]], line: str) -> str:
    """What a kernel computes, with names that follow from the order in which they occur."""
    fused, numbers = re.search(r"calls=%?([\w.-]+)", line), dict[str, int]()

    def named(name: re.Match[str]) -> str:
        # What is reduced by is a computation as well.
        inner = bodies.get(name[1])
        return ";".join(map(bare, inner)) if inner else f"%{numbers.setdefault(name[1], len(numbers))}"

    def bare(line: str) -> str:
        return NAME.sub(named, NOTES.sub("", line))

    return "\n".join(map(bare, bodies[fused[1]])) if fused else bare(line.split(" = ", 1)[1])


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
