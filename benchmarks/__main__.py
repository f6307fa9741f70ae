"""Run all benchmarks and write what they found, with device and versions, as JSON.

python -m benchmarks [chain] [solve] [step] [humanoid] [--output FILE.json]; exits with 1 where a gate is missed.
"""

import argparse
import importlib
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

BENCHMARKS = ("chain", "solve", "step", "humanoid")


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
        **{name: version(name) for name in ("jax", "jaxlib", "mujoco", "jaxik")},
    }


def main() -> int:
    """Run what is named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which to run: {', '.join(BENCHMARKS)}; all by default"
    )
    parser.add_argument("--output", type=Path, help="also write the JSON here")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    results = {name: importlib.import_module(f"benchmarks.{name}").run() for name in arguments.names or BENCHMARKS}
    report = json.dumps({"machine": _machine(), **results}, indent=2)
    print(report)
    if arguments.output:
        arguments.output.write_text(report + "\n")
    return 0 if all(result["passed"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
