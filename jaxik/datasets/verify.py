"""Whether a dataset is what it says: hashes of all shards, and random rows judged by C MuJoCo in float64."""

import dataclasses
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.datasets.randomize import MEANINGS
from jaxik.datasets.store import digests
from jaxik.robot.loading.reference import Reference, pose_error

# Rounding of rows in float32, beside a task's tolerance [m, rad].
ROUNDING = 5e-6
# Arrays of trajectories that have a number for each step, as targets and residuals have.
OF_STEPS = ("time", "q", "velocity", "status")


@dataclasses.dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes:
      missing, damaged: numbers of shards, the latter with what is wrong.
      judged: rows that C MuJoCo judged; of trajectories, steps.
      outside: of them, those with a joint outside the limits of the model.
      wrong: of them, those called CONVERGED that miss their target by more than the tolerance; of trajectories, steps
        of successful ones that do, and all whose residuals or velocities are not those that C MuJoCo finds.
      errors: name of a part, "tip/position", to its errors (n,) in judged rows that are CONVERGED [m, rad].
      note: why nothing was judged, or parts of it; "" otherwise.
      too_fast: of trajectories, steps above a speed limit of the plan.
      judged_unit: "rows" or "steps".
    """

    missing: tuple[int, ...]
    damaged: dict[int, str]
    judged: int
    outside: int
    wrong: int
    errors: dict[str, np.ndarray]
    note: str
    too_fast: int = 0
    judged_unit: str = "rows"

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, damaged or wrong."""
        return not (self.missing or self.damaged or self.outside or self.wrong or self.too_fast)

    def __str__(self) -> str:
        """A line for each fact."""
        lines = [f"shard {shard}: {what}" for shard, what in self.damaged.items()]
        if self.missing:
            lines.append(f"{len(self.missing)} shards are missing, the first is {self.missing[0]}")
        if not lines:
            lines.append("all shards are there and have their hashes")
        if self.judged:
            lines.append(
                f"{self.judged:,} {self.judged_unit} judged by C MuJoCo: {self.outside} outside joint limits, "
                f"{self.wrong} whose errors are not what the dataset says"
                + (f", {self.too_fast} above a speed limit" if self.too_fast else "")
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
    report = Report(dataset.missing if not repair else (), damaged, 0, 0, 0, {}, "")
    return dataclasses.replace(report, **_judged(dataset, sound, rows))


def _judged(dataset: Any, shards: list[int], most: int | None) -> dict[str, Any]:
    """Fields of the report: how many rows C MuJoCo judged and what it found."""
    plan = dataset.plan
    if not plan["model"]:
        return {"note": "residuals were not judged: the plan names no model"}
    if isinstance(plan["randomize"], str):
        return {"note": f"residuals were not judged: {plan['randomize']} draws what it likes"}
    tasks, motion = plan["problem"]["tasks"], plan.get("trajectories")
    names = [name for name in plan["sampled"] if tasks[name]["type"] == "FrameTask"]
    reference = Reference(plan["model"])
    judged = outside = wrong = too_fast = 0
    errors: dict[str, list[np.ndarray]] = {}
    if motion and most is not None:
        most = -(-most // motion["num_steps"])
    for rows in _chosen(dataset, shards, most):
        missed, fast = False, False
        if motion:
            missed, fast = _motions(reference, rows, plan)
            rows = steps_of(rows)
        q = rows["q"].astype(float).reshape(len(rows["q"]), -1, rows["q"].shape[-1])[:, 0]
        good = rows["success"] if motion else rows["status"].reshape(len(q), -1)[:, 0] == Status.CONVERGED
        drawn = {name: rows[name] for name in MEANINGS if name in rows}
        judged, outside = judged + len(q), outside + int(reference.outside(q, drawn).sum())
        missed, too_fast = missed | np.zeros(len(q), bool), too_fast + int(np.sum(fast))
        for name in names:
            poses = reference.poses(q, tasks[name]["frame"]["kind"], tasks[name]["frame"]["name"], drawn)
            for part, error in _errors(poses, rows, name).items():
                missed |= good & (error > float(tasks[name][f"{part}_tolerance"]) + ROUNDING)
                if motion:
                    missed |= np.abs(error - rows[f"residuals/{name}/{part}"]) > ROUNDING
                errors.setdefault(f"{name}/{part}", []).append(error[good])
        wrong += int(missed.sum())
    others = sorted({*tasks} - {*names})
    notes = [f"not judged: {', '.join(others)}"] if others else []
    if plan["randomize"]:
        notes.append("each row was judged with the robot that was drawn for it")
    return {
        "judged_unit": "steps" if motion else "rows",
        "judged": judged,
        "outside": outside,
        "wrong": wrong,
        "too_fast": too_fast,
        "errors": {part: np.concatenate(x) for part, x in errors.items()},
        "note": "; ".join(notes),
    }


def steps_of(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of trajectories as rows of their steps, one motion after the other; what a motion has once is repeated."""
    count, steps = rows["time"].shape
    each = {name: name in OF_STEPS or name.startswith(("targets/", "residuals/")) for name in rows}
    return {
        name: x.reshape(count * steps, *x.shape[2:]) if each[name] else np.repeat(x, steps, axis=0)
        for name, x in rows.items()
    }


def _motions(reference: Reference, rows: dict[str, np.ndarray], plan: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Which steps (n * T,) have another velocity than C MuJoCo finds between configurations, and which are too fast."""
    q = np.concatenate([rows["q0"][:, None], rows["q"]], axis=1).astype(float)
    before, after = (x.reshape(-1, q.shape[-1]) for x in (q[:, :-1], q[:, 1:]))
    dt = plan["trajectories"]["dt"]
    velocity = reference.velocities(before, after, dt)
    # Configurations are rounded to their dtype, and so is the way between two of them.
    rounding = 4 * np.finfo(rows["q"].dtype).eps * max(1.0, np.abs(q).max()) / dt
    limit = np.array([np.inf if x is None else x for x in plan["speed_limits"]])
    other = np.abs(velocity - rows["velocity"].reshape(velocity.shape)) > rounding
    return other.any(axis=1), (np.abs(velocity) > limit + rounding).any(axis=1)


def _chosen(dataset: Any, shards: list[int], most: int | None) -> Any:
    """Random rows of these shards, as blocks of arrays."""
    random, chunk = np.random.default_rng(0), dataset.chunk
    spans = [dataset._store.rows_of(shard) for shard in sorted(shards)]
    blocks = [(i, min(i + chunk, last)) for first, last in spans for i in range(first, last, chunk)]
    total = sum(last - first for first, last in blocks)
    if most is not None and total > most:
        # Some rows of many blocks, of at most 100: a block is what is read at once.
        blocks = [blocks[i] for i in random.permutation(len(blocks))[:100]]
        each = -(-most // len(blocks))
    else:
        each = chunk
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
