"""A dataset on a Ray cluster of two nodes of which one is killed.

`python ray_run.py FOLDER pairs|trajectories` prints what came of it.
"""

import json
import sys
import threading
import time
from pathlib import Path

import jax
import ray
from ray.cluster_utils import Cluster

import jaxik

COUNT, SHARD, FIRST = 3000, 64, 5


def main(place: Path, kind: str) -> None:
    jax.config.update("jax_enable_x64", True)
    robot = jaxik.load_robot("double_pendulum")
    task = jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp", orientation_cost=None)
    motion = None if kind == "pairs" else jaxik.Trajectories(20, 0.05, waypoints=2)
    plan = jaxik.Plan(jaxik.Problem(robot, {"tip": task}), COUNT, shard=SHARD, trajectories=motion)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    done: list[int] = []
    killed: list[int] = []

    def kill() -> None:
        while len(done) < FIRST:
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)
        killed.append(len(done))

    thread = threading.Thread(target=kill)
    thread.start()
    found = jaxik.generate(
        plan, place / "ray.zarr", batch_size=SHARD, engine="ray", advance=lambda rows, _: done.append(rows)
    )
    thread.join()
    alone = jaxik.generate(plan, place / "alone.zarr", batch_size=SHARD)
    facts = {"rows": sum(done), "killed_after": killed[0], "equal": found.digest == alone.digest}
    print(json.dumps(facts | {"complete": found.complete, "dtype": str(found["q"].dtype)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
