"""Options of XLA's compiler with which the programs of tests, that run for milliseconds, are made most quickly."""

from importlib.metadata import version

# One of XLA's two generators of code takes half as long for them as the other, the only one from jaxlib 0.11 on.
_OLDER = tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)
OPTIONS: dict[str, int | bool] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    **({"xla_cpu_use_fusion_emitters": False} if _OLDER else {}),
}


def flags() -> str:
    """The options as XLA_FLAGS."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in OPTIONS.items())
