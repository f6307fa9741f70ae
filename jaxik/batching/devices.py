"""How JAX uses this machine: all of its cores or lanes, and programs that are compiled once and for all."""

import math
import os
import warnings
from pathlib import Path

import jax
from jax.sharding import AxisType, Mesh

from jaxik.batching.method import WIDTH
from jaxik.core.errors import JaxikError, JaxikWarning

# Elements for each core up to which they are not worth sharing out.
WORTH_SHARING = 128
# A turn of a loop costs a GPU as much for few lanes as for many, and each lane; the last elements take as many turns on
# any number of lanes: what is least grows with the root of the batch. On an H200 `solve` and `search` of a million
# Pandas take 141 and 174 ms on 65,536 lanes, 133 and 204 on 131,072, 116 and 263 on 32,768; of 10,000 they take 19 and
# 26 ms on 8,192, 23 and 29 on 16,384, 19 and 28 on 4,096.
LANES_BY_ROOT = 42
# From so many elements on idle cores are worth a word: 4,096 solves of an arm take 31 to 43 ms with a second core idle,
# 23 to 26 without threads in the way. Hundreds are over in a few ms either way.
WORTH_A_WORD = 4096

_sharing = False
_said = False


def use_all_cores() -> int:
    """Share the elements of batches out over all cores of the processor; to be called before anything else of JAX.

    A core works through its share with no thread beside it, where one program for all would leave the others idle most
    of the time. Results of batches are then spread over as many devices as there are cores. Inside a `shard_map` of
    your own nothing is shared out again.

    Returns:
      The number of cores.

    Raises:
      JaxikError: if JAX has been used already.
    """
    global _sharing
    count = available_cores()
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        if len(jax.devices("cpu")) != count:
            raise JaxikError(
                "JAX is in use already, with one device for all cores: call use_all_cores() right after the imports"
            ) from None
    _sharing = True
    return count


def cores_for(elements: int) -> int:
    """Over how many cores so many elements are to be shared out."""
    return len(jax.devices("cpu")) if elements > most_for_one_core() else 1


def most_for_one_core() -> float:
    """Up to how many elements are not shared out."""
    count = len(jax.devices("cpu")) if _sharing else 1
    if count == 1 or accelerated() or jax.sharding.get_abstract_mesh().shape:
        return float("inf")
    return WORTH_SHARING * count


def mesh_of(cores: int) -> Mesh:
    """The axis "cores" of the processor's first devices, over which elements are shared out."""
    return Mesh(jax.devices("cpu")[:cores], ("cores",), axis_types=(AxisType.Auto,))


def available_cores() -> int:
    """How many cores this process may use, which is how many `use_all_cores` gives."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chosen() -> bool:
    """Whether someone has said how many devices JAX makes of the processor, one of them too, or threads XLA starts."""
    flagged = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    stated = jax.config.jax_num_cpu_devices > 0  # type: ignore[attr-defined]
    return flagged or stated or "NPROC" in os.environ or len(jax.devices("cpu")) > 1


def say_idle(elements: int) -> None:
    """Warn once of a large batch on one of several cores, unless someone has set up devices or threads."""
    global _said
    if _said or _sharing or elements < WORTH_A_WORD:
        return
    cores = available_cores()
    if cores == 1 or accelerated() or jax.sharding.get_abstract_mesh().shape or _chosen():
        return
    _said = True
    warnings.warn(
        f"a batch of {elements} elements runs on one of {cores} cores: call jaxik.use_all_cores() right after the "
        "imports, or jax.config.update('jax_num_cpu_devices', 1) if one is meant",
        JaxikWarning,
        stacklevel=2,
    )


def accelerated() -> bool:
    """Whether programs run on something else than a CPU, by `jax.default_device` where that is set."""
    chosen = getattr(jax.config, "jax_default_device", None)
    if chosen is None:
        return jax.default_backend() != "cpu"
    return getattr(chosen, "platform", chosen) != "cpu"


def lanes_for(width: int, elements: int) -> int:
    """How many lanes work side by side where a core has `width`; on an accelerator more, the more elements there are.

    A core has as many for few elements as for many: programs of other widths round otherwise.
    """
    if not accelerated():
        return width
    most = LANES_BY_ROOT * math.sqrt(elements) * width / WIDTH
    return max(width, 1 << math.ceil(math.log2(max(1, min(most, elements)))))


def enable_compilation_cache(directory: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled programs in a directory, so that later runs start at once; the same as JAX's own settings.

    With batches that are spread over devices, too: JAX would look for a program by the address of the function that
    divides it, another one in each run; jaxik's programs say by themselves what they are. Where you have a
    `custom_partitioning` of your own, set `jax_remove_custom_partitioning_ptr_from_cache_key` to False.

    Args:
      directory: by default `jaxik` in the user's cache directory.

    Returns:
      The directory.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(directory).expanduser() if directory is not None else Path(cache) / "jaxik" / "compiled"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JaxikError(f"compiled programs cannot be kept in {place}: {error.strerror}") from None
    jax.config.update("jax_compilation_cache_dir", str(place))
    # JAX keeps what took longer than a second; small programs are most of what a first call waits for.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_remove_custom_partitioning_ptr_from_cache_key", True)
    return place
