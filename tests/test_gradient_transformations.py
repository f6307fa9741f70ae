"""Derivatives of solutions, steps and searches under every transformation, and what they compile."""

import functools
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivatives import VERBS, configuration, loss, places
from fresh import run_program
from tables import exhaustive, mostly_exhaustive

from jaxik import JaxikError

SHARED = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, sys.argv[1])
import numpy as np
from derivatives import loss, places
verb = sys.argv[2]
aim, rest = (x[:2] for x in places())
mesh = jax.make_mesh((2,), ("elements",), axis_types=(jax.sharding.AxisType.Auto,))
spec = jax.sharding.PartitionSpec("elements")
def alone(aim, rest):
    return jax.vmap(jax.grad(lambda a, r: loss(a[None], r[None], verb=verb)))(aim, rest)
shared = jax.jit(jax.shard_map(alone, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=False))(aim, rest)
assert len(shared.sharding.device_set) == 2
np.testing.assert_allclose(shared, alone(aim, rest), rtol=1e-9)
"""


@cache
def gradient(verb: str) -> Any:
    return jax.jit(jax.grad(functools.partial(loss, verb=verb), (0, 1, 2)))


WAYS = ("vmap of grad", "grad of vmap", "scan", "checkpoint", "one by one", "forward")
FEW = ("vmap of grad", "scan", "one by one")


@pytest.mark.parametrize(
    ("verb", "ways"), [("step", FEW), *(pytest.param(verb, WAYS, marks=exhaustive) for verb in VERBS)]
)
def test_gradients_are_the_same_under_every_transformation(verb: str, ways: tuple[str, ...]) -> None:
    aim, rest = places()
    count = len(aim)
    whole = gradient(verb)(aim, rest, 0.3)[0]

    def one(a: Any, r: Any, i: Any) -> jax.Array:
        q = configuration(a, r, verb=verb)
        return jnp.sum(jnp.sin(q) * (2 * i + jnp.arange(1, 3)))

    def scanned(aim: Any) -> jax.Array:
        total, _ = jax.lax.scan(lambda c, x: (c + one(*x), None), 0.0, (aim, rest, jnp.arange(count)))
        return total

    table: dict[str, Callable[[], jax.Array]] = {
        "vmap of grad": lambda: jax.vmap(jax.grad(one))(aim, rest, jnp.arange(count)),
        "grad of vmap": lambda: jax.grad(lambda a: jnp.sum(jax.vmap(one)(a, rest, jnp.arange(count))))(aim),
        "scan": lambda: jax.grad(scanned)(aim),
        "checkpoint": lambda: jax.grad(jax.checkpoint(lambda a: loss(a, rest, verb=verb)))(aim),
        "one by one": lambda: jnp.stack([jax.grad(one)(aim[i], rest[i], i) for i in range(count)]),
        "forward": lambda: jax.jacfwd(lambda aim: loss(aim, rest, verb=verb))(aim),
    }
    for way in ways:
        np.testing.assert_allclose(table[way](), whole, rtol=1e-9, atol=1e-12, err_msg=way)


@pytest.mark.parametrize("verb", mostly_exhaustive(VERBS, ["step"]))
def test_new_values_do_not_compile_again(verb: str) -> None:
    aim, rest = places()
    for by in (0.0, 0.1, 0.2):
        gradient(verb)(aim + by, rest - by, 0.3 + by)
    assert gradient(verb)._cache_size() == 1


def loops(jaxpr: Any) -> int:
    """But for those over the directions of a null space, which carry three arrays: an iteration carries a dozen."""
    inner = sum(loops(j) for e in jaxpr.eqns for j in jax.extend.core.jaxprs_in_params(e.params))
    carried = [len(e.params["body_jaxpr"].out_avals) for e in jaxpr.eqns if e.primitive.name == "while"]
    return inner + sum(count > 3 for count in carried)


@pytest.mark.parametrize("verb", mostly_exhaustive(VERBS, ["step"]))
def test_the_iteration_is_not_differentiated(verb: str) -> None:
    aim, rest = places()
    of = functools.partial(loss, verb=verb)
    there = loops(jax.make_jaxpr(of)(aim, rest).jaxpr)
    assert loops(jax.make_jaxpr(jax.value_and_grad(of))(aim, rest).jaxpr) == there > 0


@exhaustive
@pytest.mark.parametrize("verb", VERBS)
def test_gradients_are_shared_out_in_a_shard_map(verb: str) -> None:
    """Over two devices, which a process has from its start."""
    done = run_program(SHARED, str(Path(__file__).parent), verb)
    assert done.returncode == 0, done.stderr


def test_a_shard_map_that_checks_what_varies_is_refused() -> None:
    aim, rest = places()
    mesh = jax.make_mesh((1,), ("elements",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("elements")
    with pytest.raises(JaxikError, match="check_vma=False"):
        jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(spec, spec), out_specs=spec)(aim, rest)
