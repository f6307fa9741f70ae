"""What jaxik asks of XLA's CPU backend, which reads `XLA_FLAGS` when JAX first asks for devices.

Loops whose data fit a core's caches are compiled as one kernel each, not as one for each operation in them. XLA does so
with loops of up to 1 kB, without products of matrices, scatters and calls of libraries. Lanes of an arm move some 2 MB
in a turn. On one core of an AMD EPYC, 1,024 Pandas, float32, kernel by kernel and whole:

| | first call [s] | | a call [ms] | |
|---|---|---|---|---|
| `step` | 3.2 | 2.0 | 0.65 | 0.5 |
| `solve` | 7.9 | 5.4 | 8.8 | 6.5 |
| `search` | 8.6 | 6.9 | 8.2 | 6.6 |
| gradient of `solve` | 13.6 | 11.2 | 10.0 | 8.1 |
| `solve` with a posture below | 18.9 | 16.0 | 66 | 57 |

Of whole bodies and beside obstacles a kernel does more, and both take 0.95 to 1 of the time. Loops of up to 20 MB would
take longer to compile: with the posture 19.6 s.

Vectors are 512 bits wide where an AMD processor has such: XLA keeps to 256 everywhere, since early Intel processors
slow down beside wider ones. 2,048 robots on one such core, both widths: Panda's `step` 1.33 and 1.22 ms, `solve` with a
posture 35.6 and 32.1, `search` 38.1 and 32.5, UR5e's `solve` 9.8 and 8.6, humanoids' 79 and 80, 88 and 85; goals beside
a bookshelf 10,700 and 12,200 a second. Programs compile in 0.92 to 1 of the time.
"""

import os

LOOPS = "--xla_backend_extra_options"
LOOP_BYTES = 5_000_000
VECTORS = "--xla_cpu_prefer_vector_width"
CPU_INFO = "/proc/cpuinfo"
# As LLVM does by itself for these.
WIDE, WIDE_VENDOR, WIDE_FEATURE = 512, "AuthenticAMD", " avx512f "


def set_xla_options() -> None:
    """Ask XLA, by the environment, for what nobody has set there."""
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if flags and not flags.startswith("-"):  # the name of a file, which XLA reads them from
        return
    if LOOPS not in flags:
        flags += f" {LOOPS}=xla_cpu_small_while_loop_byte_threshold={LOOP_BYTES}"
    if VECTORS not in flags and has_wide_vectors():
        flags += f" {VECTORS}={WIDE}"
    os.environ["XLA_FLAGS"] = flags.lstrip()


def has_wide_vectors() -> bool:
    """Whether this is an AMD processor with AVX-512; False where the system does not say."""
    try:
        with open(CPU_INFO) as file:
            first = file.read(4096)  # about the first core: hundreds of others take a while
    except OSError:
        return False
    return WIDE_VENDOR in first and WIDE_FEATURE in first
