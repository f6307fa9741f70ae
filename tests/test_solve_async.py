"""Solves in threads: watched, retargeted, stopped and awaited; nothing is left of them."""

import asyncio
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import solves
from fresh import run_program
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import JaxikError, SolveHandle, SolveOptions, Status, solve, solve_async

NEAR, FAR = np.array([1.43, 0.65, 0.0]), np.array([1.24, -0.85, 0.0])
# Steps of 1e-9 rad: it goes on for as long as a test wants.
ENDLESS = SolveOptions(
    step_rule="transpose", learning_rate=1e-9, stall_threshold=0.0, step_tolerance=0.0, max_steps=2**30
)


def threads() -> int:
    return sum(thread.name == "jaxik.solve_async" for thread in threading.enumerate())


def gone() -> bool:
    """Whether all threads end, at once or nearly."""
    for _ in range(100):
        if not threads():
            return True
        time.sleep(0.02)
    return False


def waited(handle: SolveHandle) -> jaxik.Solution:
    return jax.device_get(handle.result(120))


def test_the_result_is_what_solve_finds_for_one_and_for_many() -> None:
    for target in (NEAR, solves.targets()[:40]):
        problem = solves.problem(target)
        for chunk in (3, 20):
            found, exact = waited(solve_async(problem, chunk=chunk)), jax.device_get(solve(problem))
            same = np.asarray(found.status) == exact.status
            assert same.mean() > 0.95 and found.q.shape == exact.q.shape
            np.testing.assert_allclose(np.asarray(found.cost)[same], exact.cost[same], atol=1e-6)
            assert (np.asarray(found.iterations) > 0).any() and (np.asarray(found.iterations) <= 100).all()
    assert gone()


def test_a_handle_is_watched_retargeted_and_stopped_while_it_runs() -> None:
    began = time.monotonic()
    handle = solve_async(solves.problem(NEAR), options=ENDLESS)
    assert time.monotonic() - began < 1 and not handle.done()
    with pytest.raises(TimeoutError):
        handle.result(0.0)
    while handle.poll() is None:
        time.sleep(0.01)
    first = float(jnp.linalg.norm(handle.poll().residuals["tip"]["position"]))  # type: ignore[union-attr]
    handle.update({"tip": FAR})
    while (now := float(jnp.linalg.norm(handle.poll().residuals["tip"]["position"]))) == pytest.approx(first, 1e-3):  # type: ignore[union-attr]
        time.sleep(0.01)
    assert now == pytest.approx(np.linalg.norm(FAR - [1.7, 0, 0]), rel=1e-3) and not handle.done()
    began = time.monotonic()
    stopped = handle.stop(60)
    assert time.monotonic() - began < 5
    assert stopped.status == Status.TIMEOUT and handle.done() and stopped.iterations > 0
    with pytest.raises(JaxikError, match="was stopped"):
        handle.update({"tip": NEAR})
    assert handle.stop() is handle.result() and gone()


def test_a_new_target_after_the_end_goes_on_from_where_it_is() -> None:
    handle = solve_async(solves.problem(NEAR))
    first = waited(handle)
    for target in (FAR, NEAR):
        handle.update({"tip": {"target": target}})
        found = waited(handle)
        tip = solves.robot().frame_pose(found.q, "tip").translation()
        assert found.status == Status.CONVERGED and handle.done()
        np.testing.assert_allclose(tip, target, atol=1e-4)
    assert first.status == Status.CONVERGED and gone()


def test_handles_are_awaited_together_and_cancelling_one_leaves_it_running() -> None:
    async def both() -> list[Any]:
        slow = solve_async(solves.problem(NEAR), options=ENDLESS)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_awaited(slow), 0.05)
        assert not slow.done()
        found = await asyncio.gather(*(_awaited(solve_async(solves.problem(target))) for target in (NEAR, FAR)))
        return [*found, slow.stop()]

    near, far, stopped = asyncio.run(both())
    assert near.status == far.status == Status.CONVERGED and stopped.status == Status.TIMEOUT and gone()


async def _awaited(handle: SolveHandle) -> jaxik.Solution:
    return await handle


@jaxik.pytree
class Faulty(jaxik.Task):
    """A task that fails as it is evaluated."""

    def residual(self, robot: Any, kin: Any) -> Any:
        raise RuntimeError("a fault of its own")


def test_exceptions_reach_who_waits_and_wrong_arguments_who_starts() -> None:
    handle = solve_async(jaxik.Problem(solves.robot(), {"faulty": Faulty()}))
    with pytest.raises(RuntimeError, match="a fault of its own"):
        handle.result(60)
    assert handle.done() and handle.poll() is None and gone()
    problem = solves.problem(NEAR)
    for arguments, message in (
        ({"q0": np.zeros(3)}, "q0 has shape"),
        ({"chunk": 0}, "chunk is a count from 1 on"),
        ({"options": 3}, "options is a jaxik.SolveOptions"),
        ({"options": SolveOptions(record_trace=True)}, "records no trace"),
    ):
        with pytest.raises(JaxikError, match=message):
            solve_async(problem, **arguments)
    with pytest.raises(JaxikError, match="works on the host"):
        jax.jit(lambda target: solve_async(solves.problem(target)).result().q)(NEAR)
    handle = solve_async(problem)
    with pytest.raises(JaxikError, match="tip"):
        handle.update({"tap": NEAR})
    assert waited(handle).status == Status.CONVERGED


def test_chunks_and_targets_share_one_program() -> None:
    from jaxik.solvers.nonlinear.solve import _solve

    handle = solve_async(solves.problem(NEAR), options=ENDLESS, chunk=2)
    while handle.poll() is None:
        time.sleep(0.01)
    before = _solve._cache_size()  # type: ignore[attr-defined]
    handle.update({"tip": FAR})
    handle.stop()
    solve_async(solves.problem(NEAR), options=ENDLESS, chunk=7).stop()
    assert _solve._cache_size() == before  # type: ignore[attr-defined]


def test_precision_of_the_thread_that_asks_is_that_of_the_result() -> None:
    with jax.enable_x64(True):
        handle = solve_async(solves.problem(NEAR), np.zeros(2))
    assert waited(handle).q.dtype == np.float64


@pytest.mark.parametrize("count", [50, pytest.param(10_000, marks=exhaustive)])
def test_nothing_is_left_of_many_starts_and_stops(count: int) -> None:
    problem = solves.problem(NEAR)
    solve_async(problem).result(120)
    for _ in range(count):
        assert solve_async(problem, options=ENDLESS).stop(120).status == Status.TIMEOUT
        assert threads() <= 2
    assert gone()


@pytest.mark.parametrize("seconds", mostly_exhaustive([0.1, 0.5, 2.0, 4.0, 20.0], [0.5]))
def test_the_interpreter_exits_cleanly_while_a_solve_is_traced_compiled_or_runs(seconds: float) -> None:
    code = f"""
import time, jaxik
robot = jaxik.load_robot("panda")
problem = jaxik.Problem(robot, {{"tip": jaxik.FrameTask(robot.frame("tcp"), robot.frame_pose(robot.q_home, "tcp"))}})
options = jaxik.SolveOptions(
    step_rule="transpose", learning_rate=1e-9, stall_threshold=0.0, step_tolerance=0.0, max_steps=2**30
)
handle = jaxik.solve_async(problem, robot.q_home + 0.1, options=options)
time.sleep({seconds})
print("left", handle.done())
"""
    done = run_program(code)
    assert (done.returncode, done.stdout) == (0, "left False\n"), done.stderr
