"""Run all benchmarks and write what they found, with device and versions, as JSON.

python -m benchmarks [NAME ...] [--output F], with names as in BENCHMARKS; exits with 1 where a gate is missed. Pictures
of `search` are written beside the JSON.
"""

import argparse
import importlib
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

# `collision` and what follows come last: they share batches out over all cores.
BENCHMARKS = (
    "compile",
    "batches",
    "chain",
    "solve",
    "steps",
    "rules",
    "independent_chains",
    "gradients",
    "float32",
    "step",
    "elastic",
    "humanoid",
    "actions",
    "environments",
    "brax_reach",
    "playground",
    "collision",
    "collision_free",
    "collision_soak",
    "datasets",
    "track",
    "retargeting",
    "planning",
    "carrying",
    "goals",
    "smoothing",
    "search",
)
PACKAGES = ("jax", "jaxlib", "mujoco", "jaxik", "mink", "pin-pink", "newton", "warp-lang", "mjinx", "ompl")


def _machine() -> dict[str, Any]:
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in (Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else [])
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> int:
    """Run what is named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which to run: {', '.join(BENCHMARKS)}; all by default"
    )
    parser.add_argument("--output", type=Path, help="also write the JSON here")
    search = parser.add_argument_group("search, collision_free and batches")
    search.add_argument("--targets", type=int, default=10_000, help="of each robot; 10000 by default")
    search.add_argument(
        "--largest-batch",
        type=int,
        help="of Panda, up to 1048576; 32768 on a CPU by default (of batches 100000), else all",
    )
    search.add_argument("--robots", nargs="+", help="only these; other libraries are measured beside panda")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    jax.config.update("jax_num_cpu_devices", cores)
    own = {
        "search": {
            "targets": arguments.targets,
            "largest_batch": arguments.largest_batch,
            "robots": arguments.robots,
            "pictures": arguments.output and arguments.output.parent,
        },
        "collision_free": {"targets": arguments.targets, "arms": arguments.robots},
        "collision_soak": {"robots": arguments.robots},
        "batches": {"largest_batch": arguments.largest_batch},
        "float32": {"robots": arguments.robots},
    }
    results = {}
    for name in BENCHMARKS:
        if not arguments.names or name in arguments.names:
            results[name] = importlib.import_module(f"benchmarks.{name}").run(**own.get(name, {}))
    report = json.dumps({"machine": _machine(), **results}, indent=2)
    print(report)
    if arguments.output:
        arguments.output.write_text(report + "\n")
    return 0 if all(result["passed"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
