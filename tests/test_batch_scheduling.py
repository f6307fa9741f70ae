"""Elements that make several attempts end on lanes, in batches of any size, exactly as they do alone."""

import gc
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxik.batching.method import Method, Phase, iterate, lanes_that_fit, single_pass
from jaxik.batching.queue import stable_partition, stream
from jaxik.batching.run import run_batch

WIDTH = 16


def hashed(*numbers: Any) -> jax.Array:
    """A number from 0 to 1 that nothing but the numbers decide."""
    mixed = jnp.zeros((), jnp.uint32)
    for number in numbers:
        mixed = (mixed ^ number.astype(jnp.uint32)) * jnp.uint32(2654435761)
        mixed = mixed ^ (mixed >> 15)
    return (mixed >> 8).astype(jnp.float32) * 2.0**-24


def method(attempts: bool = True) -> Method:
    """Each attempt takes 1 to 12 steps and has its own number; a share of them is good, and ends the element."""

    def init(context: Any, result: Any, number: Any) -> Any:
        length = 1 + (12 * hashed(context["seed"], number, jnp.asarray(1))).astype(jnp.int32)
        return {"number": number, "left": length, "steps": jnp.zeros((), jnp.int32)}

    def step(context: Any, state: Any) -> Any:
        return {**state, "left": state["left"] - 1, "steps": state["steps"] + 1}

    def judge(context: Any, result: Any, state: Any) -> Any:
        good = hashed(context["seed"], state["number"], jnp.asarray(2)) < context["share"]
        # In any other order this is another number.
        chain = result["chain"] * 31 + state["number"] * 7 + state["steps"]
        judged = {"chain": chain, "steps": result["steps"] + state["steps"], "tried": result["tried"] + 1}
        return judged, ~good & (judged["tried"] < context["most"])

    none = {"chain": 1, "steps": 0, "tried": 0}
    return Method(
        prepare=lambda seed, share, most: {"seed": seed, "share": share, "most": most},
        start=lambda context: jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), none),
        phases=(
            Phase(
                active=lambda result: result["tried"] == 0,
                init=init,
                step=step,
                ended=lambda state: state["left"] <= 0,
                conclude=judge,
                attempts=attempts,
            ),
        ),
        finalize=lambda context, result, record: result,
        width=WIDTH,
    )


def arguments(count: int, share: Any, most: Any) -> Any:
    share = np.where(np.arange(count) % 7 == 3, 0.0, share).astype(np.float32)  # some never get there
    return np.arange(count, dtype=np.int32) + 100, share, np.full(count, most, np.int32)


@partial(jax.jit, static_argnums=0)
def on_lanes(method: Method, given: Any, present: Any = None) -> Any:
    return stream(method, list(given), (True,) * 3, jax.tree.structure((0, 0, 0)), present)


ATTEMPTS = method()
alone = jax.jit(jax.vmap(partial(iterate, ATTEMPTS)))


@pytest.mark.parametrize("count", [1, 2, WIDTH - 1, WIDTH, WIDTH + 1, 200])
@pytest.mark.parametrize(("share", "most"), [(0.9, 40), (0.2, 40), (0.2, 3), (0.0, 1)])
def test_attempts_are_judged_in_their_order_whoever_makes_them(count: int, share: Any, most: Any) -> None:
    given = arguments(count, share, most)
    found = jax.device_get(on_lanes(ATTEMPTS, given))
    for name, expected in alone(*given).items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
    never = given[1] == 0
    np.testing.assert_array_equal(found["tried"][never], most)


@pytest.mark.parametrize("active", [True, False], ids=["those that want to", "all"])
@pytest.mark.parametrize("count", [0, 1, WIDTH, 2 * WIDTH + 1, 64])
def test_elements_that_are_not_there_are_not_worked_on(count: int, active: bool) -> None:
    (phase,) = ATTEMPTS.phases
    some = ATTEMPTS if active else ATTEMPTS._replace(phases=(phase._replace(active=None),))
    given = arguments(64, 0.2, 40)
    found = jax.device_get(on_lanes(some, given, np.arange(64) < count))
    for name, expected in alone(*given).items():
        np.testing.assert_array_equal(found[name][:count], expected[:count], err_msg=name)
    assert not found["steps"][count:].any()
    assert not found["chain"][-(-count // WIDTH) * WIDTH :].any()  # blocks that are not even begun


@pytest.mark.parametrize("share", (0.0, 0.3, 1.0))
def test_what_is_wanted_comes_first_and_all_in_their_order(share: float) -> None:
    wanted = np.random.default_rng(0).random(50) < share
    order, count = jax.jit(stable_partition)(wanted)
    np.testing.assert_array_equal(order, np.argsort(~wanted, stable=True))
    assert count == wanted.sum() and order.dtype == count.dtype == jnp.int32


def test_a_single_attempt_is_made_where_no_more_are() -> None:
    found = on_lanes(method(attempts=False), arguments(50, 0.2, 40))
    np.testing.assert_array_equal(found["tried"], 1)


@pytest.mark.parametrize(("count", "most_turns"), [(1, 80), (4, 200)])
def test_idle_lanes_make_the_attempts_that_elements_may_need(count: int, most_turns: int) -> None:
    """One after the other, 64 attempts that fail take some 64 * 6.5 turns of the loop."""
    lanes_asked = []
    (phase,) = ATTEMPTS.phases

    def ended(state: Any) -> Any:
        jax.debug.callback(lambda left: lanes_asked.append(left), state["left"])
        return phase.ended(state)

    found = on_lanes(ATTEMPTS._replace(phases=(phase._replace(ended=ended),)), arguments(count, 0.0, 64))
    jax.block_until_ready(found)
    jax.effects_barrier()
    np.testing.assert_array_equal(found["tried"], 64)
    assert len(lanes_asked) / WIDTH <= most_turns


@pytest.mark.parametrize("count", [0, 1, 128, 300])
def test_what_no_argument_changes_is_returned_for_each_element(count: int) -> None:
    def one(x: jax.Array) -> dict[str, Any]:
        return {
            "literal": jnp.int32(3),
            "array": jnp.arange(4) + 1,
            "own": 2 * x,
            "given": x,
            "flag": jnp.zeros((), bool),
        }

    x = jnp.arange(3.0 * count).reshape(count, 3)
    found, expected = jax.jit(lambda x: (run_batch(single_pass(one), (x,), (1,)), jax.vmap(one)(x)))(x)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert [x.dtype for x in jax.tree.leaves(found)] == [x.dtype for x in jax.tree.leaves(expected)]


def test_matrices_of_any_size_get_lanes() -> None:
    assert [lanes_that_fit(nv**2) for nv in (0, 7, 41, 363, 2000)] == [128, 128, 64, 32, 32]


def test_garbage_is_left_while_a_program_is_traced_and_only_then() -> None:
    seen: list[bool] = []

    def one(x: jax.Array) -> jax.Array:
        seen.append(gc.isenabled())
        return x + jnp.ones((), x.dtype)

    def run(x: jax.Array) -> jax.Array:
        return run_batch(single_pass(one), (x,), (0,))

    jax.jit(run).trace(jnp.zeros(3))
    assert seen and not any(seen) and gc.isenabled()
    seen.clear()
    run(jnp.zeros(3))
    assert seen and all(seen)
