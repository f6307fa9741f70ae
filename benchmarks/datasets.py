"""Datasets of Panda pairs: rows a second beside bare `search`, kills, parts, memory, and how quickly they are read.

Gates: 0.85 of bare `search`, the compilation apart; one digest after 20 `kill -9` at random times over 2 million rows,
for 1, 2 and 4 parts and two batch sizes; peak memory of ten times the rows within 10 %; 300,000 shuffled rows a second
read.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

import jaxik
from jaxik.datasets.rows import RowSolver

BATCH, ROUNDS, TILES = 16384, 3, 64
CONFIG = """
robot: panda
tasks: {tip: {frame: tcp, target: {sample: 1}}}
search: true
"""


def run(rows: int = 1_000_000, kills: int = 20, large: int = 40_000_000) -> dict[str, Any]:
    """All of it in a temporary folder; `large` rows and a tenth of them for the peak of memory."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "c.yaml").write_text(CONFIG)
        results = {
            "kills": _kills(place, 2 * rows, kills),
            "parts": _parts(place, rows),
            "memory": _memory(place, large),
            "rates": _rates(place, rows),
        }
    rates, memory = results["rates"], results["memory"]
    passed = rates["share_of_search"] >= 0.85 and rates["read_rows_per_s"] >= 3e5 and memory["ratio"] <= 1.1
    return {**results, "passed": bool(passed and results["kills"]["equal"] and results["parts"]["equal"])}


def _command(place: Path, name: str, count: int, *more: str) -> list[str]:
    given = [str(place / "c.yaml"), str(place / name), "--count", str(count), "--json", *more]
    return [sys.executable, "-m", "jaxik.cli", "generate", *given]


def _made(place: Path, name: str, count: int, *more: str) -> dict[str, Any]:
    """A dataset by a process of its own: its last line, and the peak of its memory."""
    process = subprocess.Popen(_command(place, name, count, *more), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = [line for line in process.stdout if line.strip()][-1]
    _, code, usage = os.wait4(process.pid, 0)
    assert code == 0, last
    return json.loads(last) | {"peak_mb": usage.ru_maxrss / 1024}


def _kills(place: Path, count: int, kills: int) -> dict[str, Any]:
    """End a run at random times, again and again, and compare what comes out in the end with an undisturbed one."""
    whole = _made(place, "whole.zarr", count)
    rng, hits = random.Random(0), 0
    for kill in range(kills):
        more = ["--resume"] if (place / "killed.zarr").exists() else []
        process = subprocess.Popen(_command(place, "killed.zarr", count, *more), stdout=subprocess.DEVNULL)
        # From its start, so that some end while it compiles, some while it writes.
        time.sleep(rng.uniform(2, 6 if kill else 30))
        hits += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    killed = _made(place, "killed.zarr", count, *(["--resume"] if (place / "killed.zarr").exists() else []))
    partial = [file for end in ("tmp", "partial", "__lock") for file in (place / "killed.zarr").rglob(f"*.{end}")]
    report = jaxik.open_dataset(place / "killed.zarr").verify(rows=10_000)
    return {
        "rows": killed["rows"],
        "kills": hits,
        "equal": killed["digest"] == whole["digest"],
        "partial_files": len(partial),
        "status": killed["status"],
        "verified": str(report),
    }


def _parts(place: Path, count: int) -> dict[str, Any]:
    digests = {}
    for parts, batch in ((1, BATCH), (1, 4096), (2, BATCH), (4, BATCH)):
        for part in range(1, parts + 1):
            more = ["--part", f"{part}/{parts}", "--batch-size", str(batch)]
            found = _made(place, f"parts-{parts}-{batch}.zarr", count, *more)
        digests[f"{parts} parts, batch {batch}"] = found["digest"][:16]
    return digests | {"equal": len({*digests.values()}) == 1}


def _memory(place: Path, count: int) -> dict[str, Any]:
    few, many = _made(place, "few.zarr", count // 10), _made(place, "many.zarr", count)
    return {
        "rows": [few["rows"], many["rows"]],
        "peak_mb": [round(few["peak_mb"]), round(many["peak_mb"])],
        "ratio": round(many["peak_mb"] / few["peak_mb"], 3),
        "rows_per_s": round(count / many["seconds"]),
        "not_converged": {name: n for name, n in many["status"].items() if name != "CONVERGED"},
    }


def _rates(place: Path, count: int) -> dict[str, Any]:
    """Bare `search` of the same kind of targets, and whole datasets, in turn; rows read again."""
    jaxik.use_all_cores()
    robot = jaxik.load_robot("panda")
    q = robot.sample(jax.random.key(0), (BATCH,))
    problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask(robot.frame("tcp"), robot.frame_pose(q, "tcp"))})
    bare = jax.jit(lambda key: jaxik.search(problem, key))
    one = jaxik.Problem(robot, {"tip": jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp")})
    plan = jaxik.Plan(one, TILES * BATCH)
    jax.block_until_ready(bare(jax.random.key(0)))
    RowSolver(plan, BATCH).rows(0, BATCH)
    rates: dict[str, list[float]] = {"search": [], "generate": []}
    for turn in range(ROUNDS):
        begin = time.perf_counter()
        for key in range(TILES):
            jax.block_until_ready(bare(jax.random.key(key)))
        rates["search"].append(TILES * BATCH / (time.perf_counter() - begin))
        times: list[float] = []

        def tick(rows: int, converged: int, times: list[float] = times) -> None:
            times.append(time.perf_counter())

        jaxik.generate(plan, place / f"rate-{turn}.zarr", batch_size=BATCH, advance=tick)
        # From the first tile on, before which it compiles.
        rates["generate"].append((TILES - 1) * BATCH / (time.perf_counter() - times[0]))
    dataset = jaxik.open_dataset(place / "whole.zarr")
    begin, read = time.perf_counter(), 0
    for block in dataset.blocks(seed=0):
        read += len(block["status"])
    seconds = time.perf_counter() - begin
    search, made = (statistics.median(rates[name]) for name in ("search", "generate"))
    return {
        "search_rows_per_s": round(search),
        "generate_rows_per_s": round(made),
        "share_of_search": round(statistics.median(b / a for a, b in zip(*rates.values(), strict=True)), 3),
        "read_rows_per_s": round(read / seconds),
    }
