"""`jaxik dataset info|verify|export STORE`."""

import argparse
import json
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.datasets.card import write_card
from jaxik.datasets.dataset import Dataset
from jaxik.datasets.export import export


def run_dataset(arguments: argparse.Namespace) -> int:
    """Look into a dataset, judge it, or export it; the exit code of `verify` is 1 where something is wrong."""
    dataset = Dataset(arguments.store)
    if arguments.action == "export":
        if arguments.file is None:
            raise JaxikError(
                "dataset export STORE FILE: name the file to write, ending in .npz or .parquet, or a folder"
            )
        export(dataset, arguments.file, arguments.format)
        return 0
    if arguments.file is not None:
        raise JaxikError(f"one argument too many: {str(arguments.file)!r} (see jaxik dataset --help)")
    return _verify(dataset, arguments) if arguments.action == "verify" else _info(dataset, arguments.json)


def _verify(dataset: Dataset, arguments: argparse.Namespace) -> int:
    report = dataset.verify(rows=None if arguments.full else arguments.rows, repair=arguments.repair)
    if report.ok and dataset.complete:
        write_card(dataset, report)
    if arguments.json:
        errors = {
            part: {"median": float(np.median(x)), "max": float(x.max())} for part, x in report.errors.items() if x.size
        }
        facts: dict[str, Any] = {"ok": report.ok, "missing": list(report.missing), "judged": report.judged}
        facts |= {"damaged": {str(shard): what for shard, what in report.damaged.items()}, "errors": errors}
        print(
            json.dumps(
                facts
                | {"outside_limits": report.outside, "wrongly_converged": report.wrong, "too_fast": report.too_fast}
            )
        )
    else:
        print(report)
        if arguments.repair and report.damaged:
            print("the damaged shards are forgotten: jaxik generate CONFIG STORE --resume makes them again")
    return 0 if report.ok else 1


def _info(dataset: Dataset, as_json: bool) -> int:
    if as_json:
        arrays = {name: {"shape": dataset[name].shape, "dtype": str(dataset[name].dtype)} for name in dataset.names}
        facts = {"rows": len(dataset), "complete": dataset.complete, "status": dataset.status_counts, "arrays": arrays}
        print(json.dumps(facts | {"devices": dataset.devices, "digest": dataset.digest, "plan": dataset.plan}))
        return 0
    print(dataset)
    seed, rows = dataset.plan["seed"], dataset.plan["shard"]
    print(f"  seed {seed}, shards of {rows:,} rows, solved on {'; '.join(dataset.devices)}")
    print(f"  digest {dataset.digest}")
    return 0
