"""Loops whose data fit a core's caches are compiled as one kernel each, not as one for each operation in them.

XLA's CPU backend does so with loops of up to 1 kB, without products of matrices, scatters and calls of libraries. Lanes
of an arm move some 2 MB in a turn. On one core of an AMD EPYC, 1,024 Pandas, float32, kernel by kernel and whole:

| | first call [s] | | a call [ms] | |
|---|---|---|---|---|
| `step` | 3.2 | 2.0 | 0.65 | 0.5 |
| `solve` | 7.9 | 5.4 | 8.8 | 6.5 |
| `search` | 8.6 | 6.9 | 8.2 | 6.6 |
| gradient of `solve` | 13.6 | 11.2 | 10.0 | 8.1 |
| `solve` with a posture below | 18.9 | 16.0 | 66 | 57 |

Of whole bodies and beside obstacles a kernel does more, and both take 0.95 to 1 of the time. Loops of up to 20 MB would
take longer to compile: with the posture 19.6 s.
"""

import os

OPTIONS = "--xla_backend_extra_options"
BYTES = 5_000_000


def compile_loops_whole() -> None:
    """Tell XLA so, by the environment that it reads when JAX first asks for devices; not where someone has set it."""
    flags = os.environ.get("XLA_FLAGS", "").strip()
    named_file = flags and not flags.startswith("-")  # which XLA reads them from
    if OPTIONS not in flags and not named_file:
        whole = f"{OPTIONS}=xla_cpu_small_while_loop_byte_threshold={BYTES}"
        os.environ["XLA_FLAGS"] = f"{flags} {whole}".lstrip()
