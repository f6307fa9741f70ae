"""The README of a dataset: what it holds, how it came about, how good it is, and how to read it."""

from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.datasets.verify import Report

SHARES = {"median": 0.5, "99 %": 0.99, "max": 1.0}
# Bars of a histogram in text.
BARS = 12


def write_card(dataset: Any, report: Report | None = None) -> None:
    """Write README.md into the dataset's folder, with what a verification found, where there was one."""
    first = next(dataset.blocks())
    plan = dataset.plan
    sections = [
        f"# {len(dataset):,} rows of {plan['robot']}",
        f"Made by jaxik {plan['jaxik_version']} from plan.json, seed {plan['seed']}: row i is a function of the plan "
        f"and i. Solved on {'; '.join(dataset.devices)}."
        + (" **Devices are mixed: rows are equal within rounding only.**" if len(dataset.devices) > 1 else ""),
        f"Digest of all numbers: `{dataset.digest}`",
        f"## Status\n\n| status | {'steps' if plan.get('trajectories') else 'rows'} | share |\n|---|---|---|\n"
        + "\n".join(_statuses(dataset)),
        *([_motions(dataset)] if plan.get("trajectories") else []),
        "## Arrays\n\n| array | shape | type | unit | |\n|---|---|---|---|---|\n"
        + "\n".join(
            f"| `{name}` | {dataset[name].shape} | {dataset[name].dtype} | {dataset[name].attrs['unit']} | "
            f"{dataset[name].attrs['meaning']} |"
            for name in dataset.names
        ),
        f"## Errors\n\nOf the first {len(first['status']):,} rows.\n\n" + _errors(first),
        *([_reach(dataset)] if plan.get("grid") else []),
        "## Joints\n\nHow often each joint is where, from its least to its largest value, in the same rows.\n\n```\n"
        + "\n".join(_joints(dataset, first))
        + "\n```",
        "## Verified\n\n"
        + (f"```\n{report}\n```" if report else f"Not yet: `jaxik dataset verify {dataset.path.name}`."),
        "## How to read it\n\n```python\nimport zarr\n\n"
        f'rows = zarr.open_group("{dataset.path.name}", mode="r")\n'
        'q, status = rows["q"][:4096], rows["status"][:4096]\n'
        "```\n\n`jaxik.open_dataset` gives the same arrays, and shuffled blocks for training.",
    ]
    dataset._store.write_text("README.md", "\n\n".join(sections) + "\n")


def _statuses(dataset: Any) -> list[str]:
    counts = dataset.status_counts
    total = sum(counts.values())
    return [f"| {name} | {count:,} | {100 * count / total:.4g} % |" for name, count in counts.items()]


def _motions(dataset: Any) -> str:
    """How long motions are, and how many do what they should."""
    motion, good = dataset.plan["trajectories"], int(dataset["success"][:].sum())
    return (
        f"## Motions\n\n{motion['num_steps']} steps of {motion['dt']:g} s each, from rest at `q0`; `q[i, k]` is where "
        f"motion i is after step k, at `time[i, k]`, and targets are those of that time. {good:,} of {len(dataset):,} "
        "have `success`: all their steps are CONVERGED, and within the tolerances of the tasks."
    )


def _reach(dataset: Any) -> str:
    """How much of the grid is reached, layer by layer."""
    share, _, centers = dataset.reachability()
    lines = [
        f"## Reach\n\nOf {share.size:,} voxels, {dataset.plan['grid']['directions']} directions in each: "
        f"{100 * np.mean(share > 0):.3g} % are reached in some direction, {100 * np.mean(share == 1):.3g} % in all.\n",
        "| z [m] | reached | mean share of directions |\n|---|---|---|",
    ]
    for layer, z in enumerate(centers[0, 0, :, 2]):
        own = share[:, :, layer]
        lines.append(f"| {z:.3g} | {100 * np.mean(own > 0):.3g} % | {own.mean():.3g} |")
    return "\n".join(lines)


def _errors(rows: dict[str, np.ndarray]) -> str:
    """A table of the quantiles of all residuals."""
    parts = [name for name in rows if name.startswith("residuals/")]
    if not parts:
        raise JaxikError("rows have no residuals")
    lines = ["| residual | " + " | ".join(SHARES) + " |", "|---|" + "---|" * len(SHARES)]
    for name in parts:
        values = rows[name].ravel()
        quantiles = " | ".join(f"{np.quantile(values, share):.3g}" for share in SHARES.values())
        lines.append(f"| {name.removeprefix('residuals/')} | {quantiles} |")
    return "\n".join(lines)


def _joints(dataset: Any, rows: dict[str, np.ndarray]) -> list[str]:
    """A line of bars for each column of q."""
    q = rows["q"].reshape(-1, rows["q"].shape[-1])
    names = dataset._store.group.attrs["q_joint"]
    width = max(map(len, names))
    lines = []
    for name, column in zip(names, q.T, strict=True):
        counts, edges = np.histogram(column, BARS)
        bars = "".join(" ▁▂▃▄▅▆▇█"[round(8 * count / max(counts.max(), 1))] for count in counts)
        lines.append(f"{name:{width}s} {edges[0]:8.3f} {bars} {edges[-1]:8.3f}")
    return lines
