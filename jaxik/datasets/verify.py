"""Whether a dataset is what it says: hashes of all shards, and random rows judged by C MuJoCo in float64."""

import dataclasses
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.datasets.plan import CHUNK
from jaxik.datasets.store import digests
from jaxik.robot.loading.reference import Judge, pose_error

# Rounding of rows in float32, beside a task's tolerance [m, rad].
ROUNDING = 5e-6


@dataclasses.dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes:
      missing, damaged: numbers of shards, the latter with what is wrong.
      judged: rows that C MuJoCo judged.
      outside: of them, those with a joint outside the limits of the model.
      wrong: of them, those called CONVERGED that miss their target by more than the tolerance.
      errors: name of a part, "tip/position", to its errors (n,) in judged rows that are CONVERGED [m, rad].
      note: why nothing was judged, or parts of it; "" otherwise.
    """

    missing: tuple[int, ...]
    damaged: dict[int, str]
    judged: int
    outside: int
    wrong: int
    errors: dict[str, np.ndarray]
    note: str

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, damaged or wrong."""
        return not (self.missing or self.damaged or self.outside or self.wrong)

    def __str__(self) -> str:
        """A line for each fact."""
        lines = [f"shard {shard}: {what}" for shard, what in self.damaged.items()]
        if self.missing:
            lines.append(f"{len(self.missing)} shards are missing, the first is {self.missing[0]}")
        if not lines:
            lines.append("all shards are there and have their hashes")
        if self.judged:
            lines.append(
                f"{self.judged:,} rows judged by C MuJoCo: {self.outside} outside joint limits, {self.wrong} called "
                "CONVERGED that are not"
            )
        for part, errors in self.errors.items():
            if errors.size:
                unit = "m" if part.endswith("position") else "rad"
                lines.append(f"{part}: median {np.median(errors):.2g}, max {errors.max():.2g} {unit}")
        return "\n".join([*lines, *([self.note] if self.note else [])])


def verify(dataset: Any, rows: int | None, repair: bool) -> Report:
    """See `Dataset.verify`."""
    store, damaged = dataset._store, {}
    for shard, record in sorted(store.committed().items()):
        try:
            found = digests(store.read(shard))
            wrong = [name for name, hashed in record["sha256"].items() if found.get(name) != hashed]
        except JaxikError as error:
            wrong, damaged[shard] = [], str(error).removeprefix(f"shard {shard}: ")
        if wrong:
            damaged[shard] = f"{', '.join(wrong)}: not what was written"
        if repair and shard in damaged:
            store.forget(shard)
    sound = [shard for shard in store.committed() if shard not in damaged]
    return Report(dataset.missing if not repair else (), damaged, *_judged(dataset, sound, rows))


def _judged(dataset: Any, shards: list[int], most: int | None) -> tuple[int, int, int, dict[str, np.ndarray], str]:
    """Count rows, those outside limits and those wrongly called CONVERGED; errors; and what was not judged."""
    plan = dataset.plan
    if not plan["model"]:
        return 0, 0, 0, {}, "residuals were not judged: the plan names no model"
    if plan["randomize"]:
        return 0, 0, 0, {}, "residuals were not judged: robots or obstacles are random"
    tasks = plan["problem"]["tasks"]
    names = [name for name in plan["sampled"] if tasks[name]["type"] == "FrameTask"]
    judge = Judge(plan["model"])
    judged = outside = wrong = 0
    errors: dict[str, list[np.ndarray]] = {}
    for rows in _chosen(dataset, shards, most):
        q = rows["q"].astype(float).reshape(len(rows["q"]), -1, rows["q"].shape[-1])[:, 0]
        good = rows["status"].reshape(len(q), -1)[:, 0] == Status.CONVERGED
        judged, outside = judged + len(q), outside + int(judge.outside(q).sum())
        missed = np.zeros(len(q), bool)
        for name in names:
            poses = judge.poses(q, tasks[name]["frame"]["kind"], tasks[name]["frame"]["name"])
            for part, error in _errors(poses, rows, name).items():
                missed |= good & (error > float(tasks[name][f"{part}_tolerance"]) + ROUNDING)
                errors.setdefault(f"{name}/{part}", []).append(error[good])
        wrong += int(missed.sum())
    others = sorted({*tasks} - {*names})
    note = f"not judged: {', '.join(others)}" if others else ""
    return judged, outside, wrong, {part: np.concatenate(x) for part, x in errors.items()}, note


def _chosen(dataset: Any, shards: list[int], most: int | None) -> Any:
    """Random rows of these shards, as blocks of arrays."""
    random = np.random.default_rng(0)
    spans = [dataset._store.rows_of(shard) for shard in sorted(shards)]
    blocks = [(i, min(i + CHUNK, last)) for first, last in spans for i in range(first, last, CHUNK)]
    total = sum(last - first for first, last in blocks)
    if most is not None and total > most:
        # Some rows of many blocks, of at most 100: a block is what is read at once.
        blocks = [blocks[i] for i in random.permutation(len(blocks))[:100]]
        each = -(-most // len(blocks))
    else:
        each = CHUNK
    for first, last in blocks:
        kept = np.sort(random.permutation(last - first)[:each])
        yield {name: values[kept] for name, values in dataset[first:last].items()}


def _errors(poses: np.ndarray, rows: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Distances (n,) [m] and angles (n,) [rad] of poses (n, 7) from the targets of a task, of the parts that it has."""
    targets = np.zeros((len(poses), 7))
    parts = {"orientation": ("quaternion", slice(0, 4)), "position": ("position", slice(4, 7))}
    there = [part for part in parts if f"residuals/{name}/{part}" in rows]
    for part in there:
        array, columns = parts[part]
        targets[:, columns] = rows[f"targets/{name}/{array}"]
    found = np.array([pose_error(*pair) for pair in zip(poses, targets, strict=True)]).reshape(-1, 2)
    return {part: found[:, ("position", "orientation").index(part)] for part in there}
