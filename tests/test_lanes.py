"""`vmap_last` against `jax.vmap`: values and derivatives of every form of program, whichever operands are mapped."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import own_tasks
import pytest
from jax import lax
from tables import mostly_exhaustive

import jaxik
from jaxik.batching import devices
from jaxik.batching.broadcast import over_batch
from jaxik.batching.trailing_vmap import vmap_last
from jaxik.core.errors import JaxikError
from jaxik.numerics.trigonometry import sine_cosine

SIZE = 5
# Compiling is all that these tests cost.
UNOPTIMISED = {"xla_backend_optimization_level": 0}


@jax.custom_jvp
def root(x: jax.Array) -> jax.Array:
    """A square root whose derivative is stated to be one at zero."""
    return jnp.sqrt(x)


@root.defjvp
def _(primals: Any, tangents: Any) -> Any:
    ((x,), (t,)) = primals, tangents
    return root(x), t * jnp.where(x > 0, 0.5 / root(jnp.where(x > 0, x, 1.0)), 1.0)


@jax.custom_jvp
def scaled(x: jax.Array, n: jax.Array, y: jax.Array) -> jax.Array:
    """An integer operand in the middle, and a derivative that is not that of the body."""
    return x * n + y


@scaled.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, n, _), (tx, _, ty) = primals, tangents
    return scaled(*primals), 7 * n * tx + 3 * x * ty


@jax.custom_vjp
def reversed_slope(x: jax.Array) -> jax.Array:
    return 2 * x


reversed_slope.defvjp(lambda x: (2 * x, None), lambda _, ct: (-ct,))


def newton(x: jax.Array) -> jax.Array:
    """A while loop whose elements stop after different counts."""

    def body(carry: Any) -> Any:
        r, _, count = carry
        new = (r + jnp.abs(x) / r) / 2
        return new, jnp.abs(new - r) > 1e-6, count + 1

    r, _, count = lax.while_loop(lambda c: c[1] & (c[2] < 50), body, (jnp.abs(x) + 1, jnp.bool_(True), 0))
    return r + count


def scanned(x: jax.Array, y: jax.Array) -> Any:
    def step(carry: Any, row: Any) -> Any:
        total, count = carry
        return (total * 0.5 + jnp.sin(row[0]) * y[0], count + 1), (total[:2], row[1])

    return lax.scan(step, (jnp.zeros(4), 0), (x, jnp.arange(3.0)), reverse=True)


# Functions of x (3, 4) and y (4,).
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x, y: jnp.sin(x) * y + x**3 - jnp.arctan2(x, y) + jnp.sqrt(jnp.abs(x)) ** 1.5,
    "nothing of the inputs": lambda x, y: (jnp.arange(3.0), 2.0 * jnp.eye(2)),
    "an input unchanged": lambda x, y: (y, x.T),
    "select, scalar predicate": lambda x, y: lax.select(x[0, 0] > 0, x, 2 * x) + jnp.where(y[0] > 0, 1.0, y),
    "select, array predicate": lambda x, y: jnp.where(x > y, x, y) + jnp.where(y > 0, y, x),
    "clamp, scalar bounds": lambda x, y: lax.clamp(-0.5, x, 0.5) + lax.clamp(lax.stop_gradient(y[0]) - 1, x, 1.0),
    "matrix product": lambda x, y: (x @ x.T, x @ y, y @ y),
    "long contraction": lambda x, y: jnp.tile(y, 5) @ jnp.tile(x[0], 5),
    **{
        f"contraction of {n} terms": lambda x, y, n=n: jnp.resize(y, (3, n)) @ jnp.resize(x[0] + y[0], (n, 2))
        for n in range(1, 12)
    },
    "empty contraction": lambda x, y: x[:, :0] @ y[:0],
    "batched contraction": lambda x, y: jnp.einsum("bij,bjk->bik", x.reshape(3, 2, 2), x.reshape(3, 2, 2) + y[0]),
    "several contractions": lambda x, y: jnp.einsum("abc,bcd->ad", x.reshape(3, 2, 2), jnp.ones((2, 2, 4)) * y),
    "outer product": lambda x, y: jnp.einsum("i,jk->jik", y, x),
    "integer product": lambda x, y: jnp.arange(12).reshape(3, 4) @ (y > 0).astype(int),
    "reductions": lambda x, y: (x.sum(0), x.max(1), x.prod(), x.min(), (x > 0).all(0), (x > 0).any(), y.mean()),
    "reductions of more than a matrix": lambda x, y: (
        (x[:, None] * x * y[0]).sum((0, 2)), (x[:, None] - x).max((1, 0)), jnp.outer(jnp.tile(y, 5), y).min(0),
        jnp.outer(y, jnp.tile(y, 5)).sum(), x[:0].sum(0), x.sum((0, 1)),
    ),
    "cumulative": lambda x, y: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(y), jnp.cumsum(y, 0)[::-1]),
    "order": lambda x, y: (jnp.sort(x, 0), jnp.argmax(x, 1), jnp.argmin(x), jnp.argsort(y), x[jnp.argsort(x[:, 0])]),
    "shapes": lambda x, y: (x.reshape(2, 6), x.T, x[None, :, ::2], jnp.squeeze(x[1:2]), x[::-1], jnp.stack([y, x[0]])),
    "split": lambda x, y: jnp.split(x, 2, axis=1),
    "concatenate": lambda x, y: jnp.concatenate([x, jnp.ones((2, 4)), y[None]]),
    "pad": lambda x, y: (jnp.pad(x, ((1, 0), (2, 1))), lax.pad(x, y[0], ((0, 1, 1), (0, 0, 0)))),
    "gather": lambda x, y: (x[jnp.array([2, 0, 2])], x[:, jnp.array([1, 3])], jnp.take(x, jnp.array([0, 9]), axis=0)),
    "gather, mapped index": lambda x, y: (x[jnp.argmax(x[:, 0])], jnp.arange(4.0)[jnp.argmax(y)]),
    "scatter": lambda x, y: (x.at[1].set(y), x.at[jnp.array([0, 0])].add(y), jnp.zeros(6).at[2:].set(y)),
    "scatter, mapped index": lambda x, y: jnp.zeros((3, 4)).at[jnp.argmax(x[:, 0])].add(y),
    "scatter, other": lambda x, y: (x.at[0].multiply(y), x.at[:, 1].max(0.0)),
    "dynamic slice": lambda x, y: lax.dynamic_slice(x, (jnp.array(1), jnp.array(2)), (2, 2)),
    "dynamic slice, mapped index": lambda x, y: lax.dynamic_slice(x, (jnp.argmax(x[:, 0]), jnp.argmax(y)), (2, 2)),
    "dynamic update": lambda x, y: lax.dynamic_update_slice(x, y[None, :2], (jnp.array(1), jnp.array(1))),
    "dynamic update, mapped index": lambda x, y: lax.dynamic_update_slice(x, y[None], (jnp.argmax(x[:, 0]), 0)),
    "scan": scanned,
    "scan of nothing mapped": lambda x, y: lax.scan(lambda c, r: (c + r, c), 0.0, jnp.arange(4.0))[0] * y,
    "cond, mapped": lambda x, y: lax.cond(x[0, 0] > 0, lambda a: a * y, lambda a: a + 1.0, x),
    "cond, not mapped": lambda x, y: lax.cond(jnp.arange(3).sum() > 0, lambda a: a * y, lambda a: a + 1.0, x),
    "switch, mapped": lambda x, y: lax.switch(jnp.argmax(y), [jnp.sin, jnp.cos, lambda a: 2 * a, jnp.zeros_like], x),
    "switch of which some compute nothing, mapped": lambda x, y: lax.switch(
        jnp.argmax(y), [jnp.sin, lambda a: a, lambda a: np.eye(3, 4), lambda a: a * y], x
    ),
    "custom derivative": lambda x, y: (root(jnp.maximum(x, 0.0)), scaled(x, 2, y), scaled(2.0, 3, y), jax.nn.relu(x)),
    "inner jit": lambda x, y: jax.jit(lambda a, b: jax.jit(jnp.sin)(a) @ b)(x, y),
    "inner vmap": lambda x, y: jax.vmap(lambda row: jnp.cross(row[:3], y[1:]))(x),
    "inner gradient": lambda x, y: jax.grad(lambda a: jnp.sum(jnp.sin(a @ y)))(x),
    "checkpoint": lambda x, y: jax.checkpoint(lambda a: jnp.sin(a) * y)(x),
    "linear solve": lambda x, y: jnp.linalg.solve(jnp.outer(y, y) + 5 * jnp.eye(4), x.T),
    "barrier": lambda x, y: lax.optimization_barrier((x, y)),
}  # fmt: skip
WITHOUT_GRADIENT = {
    "while": lambda x, y: newton(x[0, 0] * y[0]),
    "random bits": lambda x, y: jax.random.normal(jax.random.fold_in(jax.random.key(0), jnp.argmax(y)), (3,)),
    "types": lambda x, y: (x.astype(jnp.float32), (x > 0) ^ True, (x * 9).astype(int) // 2, lax.nextafter(x, x + 1)),
}  # fmt: skip
MAPPED = {"both": (True, True), "first": (True, False), "second": (False, True)}
X = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4, SIZE)))
Y = jnp.asarray(np.random.default_rng(1).standard_normal((4, SIZE)))


def arguments(mapped: tuple[bool, bool]) -> tuple[jax.Array, jax.Array]:
    return tuple(x if m else x[..., 0] for x, m in zip((X, Y), mapped, strict=True))


def both(function: Callable[..., Any], mapped: tuple[bool, bool]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    axes = tuple(-1 if m else None for m in mapped)
    return vmap_last(function, mapped, SIZE), jax.vmap(function, in_axes=axes, out_axes=-1)


def assert_equal(got: Any, want: Any, atol: float = 1e-14) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=atol)


def assert_equal_named(name: str, got: Any, want: Any, atol: float = 1e-14) -> None:
    try:
        assert_equal(got, want, atol)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from None


@pytest.mark.parametrize("operands", mostly_exhaustive(MAPPED, ["both", "second"]))
def test_lanes_equal_vmap(operands: str) -> None:
    mapped = MAPPED[operands]
    table = FUNCTIONS | WITHOUT_GRADIENT
    args = arguments(mapped)
    by_lanes, by_vmap = both(lambda x, y: {name: f(x, y) for name, f in table.items()}, mapped)
    got, want = (jax.jit(f, compiler_options=UNOPTIMISED)(*args) for f in (by_lanes, by_vmap))
    for name in table:
        assert_equal_named(name, got[name], want[name])


@pytest.mark.parametrize("operands", mostly_exhaustive(MAPPED, ["first"]))
def test_gradients_through_lanes_equal_gradients_through_vmap(operands: str) -> None:
    mapped = MAPPED[operands]
    table = {name: f for name, f in FUNCTIONS.items() if name != "integer product"}
    table["custom vjp"] = lambda x, y: reversed_slope(x) + reversed_slope(y)

    def weighted(batched: Callable[..., Any]) -> Callable[..., Any]:
        """A scalar in which every output has a weight of its own."""

        def total(*args: jax.Array) -> jax.Array:
            leaves = [leaf for leaf in jax.tree.leaves(batched(*args)) if jnp.issubdtype(leaf.dtype, jnp.floating)]
            return sum(jnp.sum(np.cos(np.arange(leaf.size)).reshape(leaf.shape) * leaf) for leaf in leaves)

        return total

    @partial(jax.jit, static_argnums=0, compiler_options=UNOPTIMISED)
    def gradients(which: int, *args: jax.Array) -> dict[str, Any]:
        return {
            name: jax.grad(weighted(both(function, mapped)[which]), argnums=(0, 1))(*args)
            for name, function in table.items()
        }

    args = arguments(mapped)
    got, want = gradients(0, *args), gradients(1, *args)
    for name in table:
        assert_equal_named(name, got[name], want[name], atol=1e-12)


def test_on_an_accelerator_short_loops_and_sums_are_written_out_and_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def element(matrix: jax.Array) -> jax.Array:
        last, _ = lax.scan(lambda x, row: (jnp.sin(x) + row, None), matrix[0], matrix)
        return lax.fori_loop(0, 40, lambda _, x: 0.9 * x, matrix @ matrix.T @ last)

    def loops() -> list[int]:
        equations = jax.make_jaxpr(lambda x: mapped(x))(matrices).eqns
        params = [eqn.params for eqn in equations if eqn.primitive.name == "scan"]
        return [p["length"] for p in params if p["unroll"] < p["length"]]

    mapped, matrices = vmap_last(element, (True,), 2), np.random.default_rng(0).standard_normal((7, 7, 2))
    of_a_core, want = loops(), mapped(matrices)
    monkeypatch.setattr(devices, "accelerated", lambda: True)
    assert (of_a_core, loops()) == ([7, 2, 2, 40], [40])
    np.testing.assert_allclose(mapped(matrices), want, rtol=1e-12)


def test_a_default_device_says_what_programs_are_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert devices.accelerated()
    with jax.default_device(jax.devices("cpu")[0]):
        assert not devices.accelerated()


def test_what_is_written_twice_is_computed_once_unless_it_has_an_effect() -> None:
    seen: list[float] = []

    def twice(x: jax.Array) -> jax.Array:
        jax.debug.callback(seen.append, x)
        jax.debug.callback(seen.append, x)
        return jnp.sin(x) + jnp.sin(x) + jnp.sin(2 * x)

    lane = jnp.arange(4.0)
    assert str(jax.make_jaxpr(vmap_last(twice, (True,), 4))(lane)).count(" sin ") == 2
    found = vmap_last(twice, (True,), 4)(lane)
    jax.effects_barrier()
    assert len(seen) == 8
    np.testing.assert_allclose(found, 2 * np.sin(lane) + np.sin(2 * lane), rtol=1e-12)


def test_small_constants_are_compared_by_what_they_hold() -> None:
    def sines(x: jax.Array, *factors: float) -> jax.Array:
        return sum((jnp.sin(jnp.array([k, 2.0]) * x) for k in factors), jnp.zeros(2))

    lane = jnp.arange(4.0)
    for factors, distinct in (((1.0, 1.0), 1), ((1.0, 3.0), 2)):
        function = vmap_last(lambda x, factors=factors: sines(x, *factors), (True,), 4)
        assert str(jax.make_jaxpr(function)(lane)).count(" sin ") == distinct
        np.testing.assert_allclose(function(lane)[0], sum(np.sin(k * lane) for k in factors), rtol=1e-12)


def test_functions_with_rules_are_one_only_where_their_rules_are() -> None:
    def scaled(k: float) -> Callable[[jax.Array], jax.Array]:
        same = jax.custom_jvp(jnp.sin)
        same.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), k * tangents[0]))
        return same

    lane = jnp.arange(4.0)
    function = vmap_last(lambda x: scaled(2.0)(x) + scaled(3.0)(x), (True,), 4)
    assert jnp.array_equal(jax.jvp(function, (lane,), (jnp.ones(4),))[1], jnp.full(4, 5.0))
    ours = vmap_last(lambda x: sum(sine_cosine(x)) + sum(sine_cosine(x)), (True,), 4)
    assert str(jax.make_jaxpr(ours)(lane)).count("custom_jvp_call[") == 1


def test_second_derivatives_through_lanes_equal_those_through_vmap() -> None:
    def total(batched: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, y: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(batched(x, y)))

    def chosen(x: jax.Array, y: jax.Array) -> Any:
        return FUNCTIONS["custom derivative"](x, y), FUNCTIONS["matrix product"](x, y)

    args = arguments((True, True))
    by_lanes, by_vmap = both(chosen, (True, True))
    assert_equal(jax.jit(jax.hessian(total(by_lanes)))(*args), jax.jit(jax.hessian(total(by_vmap)))(*args), atol=1e-11)


# --- batch axes in front -------------------------------------------------------------------------------------------


def outer(a: jax.Array, b: jax.Array) -> dict[str, jax.Array]:
    return {"outer": a[:, None] * b, "sum": a.sum() + b.sum()}


SHAPES = [
    ((), (), ()),
    ((3,), (), (3,)),
    ((), (2, 3), (2, 3)),
    ((4, 1), (3,), (4, 3)),
    ((1,), (3,), (3,)),
    ((1,), (), (1,)),
    ((1, 1), (1,), (1, 1)),
    ((0,), (), (0,)),
    ((0, 1), (3,), (0, 3)),
]


@pytest.mark.parametrize(("first", "second", "batch"), SHAPES)
def test_leading_axes_broadcast(first: tuple[int, ...], second: tuple[int, ...], batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((*first, 3)), rng.standard_normal((*second, 2))
    out = jax.jit(lambda a, b: over_batch(outer, {"a": a, "b": b}, {"a": 1, "b": 1}))(a, b)
    wide = np.broadcast_to(a, (*batch, 3))[..., None] * np.broadcast_to(b, (*batch, 2))[..., None, :]
    np.testing.assert_allclose(out["outer"], wide)
    np.testing.assert_allclose(out["sum"], np.broadcast_to(a.sum(-1), batch) + np.broadcast_to(b.sum(-1), batch))


def test_batch_axes_that_do_not_broadcast_are_named_with_their_shapes() -> None:
    args = {"a": jnp.zeros((4, 3)), "b": {"c": jnp.zeros((5, 2)), "d": jnp.zeros(2)}}
    with pytest.raises(JaxikError, match=r"a: \(4, 3\) of which batch \(4,\), b\.c: \(5, 2\) of which batch \(5,\)\. "):
        over_batch(lambda a, b: a, args, {"a": 1, "b": {"c": 1, "d": 1}})


def test_products_are_taken_at_full_precision() -> None:
    def precisions(jaxpr: Any) -> set[Any]:
        found = set()
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "dot_general":
                found |= set(eqn.params["precision"] or (None,))
            for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns")):
                found |= precisions(getattr(inner, "jaxpr", inner)) if hasattr(inner, "eqns") else set()
        return found

    matrix = np.eye(3)

    def program(x: jax.Array) -> jax.Array:
        return over_batch(lambda x: jax.jit(lambda a: matrix @ a)(matrix) @ x, {"x": x}, {"x": 1})

    for batch in ((), (4,)):
        assert precisions(jax.make_jaxpr(program)(jnp.zeros((*batch, 3)))) == {lax.Precision.HIGHEST}

    robot = jaxik.load_robot(own_tasks.PLANAR)
    tip = robot.frame("tip")
    for function in (robot.frame_pose, robot.frame_jacobian):
        for mode in (jax.jacfwd, jax.jacrev):
            alone = mode(lambda q, function=function: jax.tree.leaves(function(q, tip))[0])
            for program in (alone, jax.vmap(alone)):
                q = robot.q_home if program is alone else robot.q_home[None]
                assert precisions(jax.make_jaxpr(program)(q)) <= {lax.Precision.HIGHEST}
