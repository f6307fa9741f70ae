"""Small dense linear algebra for one element, in forms that map onto lanes."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.alone import is_alone
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.fusion import divide_once, materialize
from jaxik.numerics.indexing import entry

PAD = -1

# More evenly spaced runs than this are left to one gather: of a concatenation of more, XLA makes a kernel for each. A
# humanoid's search had 30 of these.
MAX_RUNS = 8

# Products of up to so many terms are written as sums.
SHORT = 16

# Matrices up to this size are factored column by column, each written out.
WRITTEN_OUT = 24
# The most columns that are subtracted from the rest together.
BLOCK = 8
# The most columns that are eliminated before finished rows and columns are cut off.
PANEL = 14


def first_true(mask: jax.Array) -> jax.Array:
    """Index of the first True of a mask (N,), N - 1 if there is none; `argmax` is 14 times slower on lanes."""
    size = mask.shape[0]
    return jnp.min(jnp.where(mask, jnp.arange(size, dtype=jnp.int32), size - 1))


def static_gather(x: jax.Array, indices: Sequence[int], axis: int = 0) -> jax.Array:
    """Rows of `x` along `axis` in a static order, zeros for PAD, by slices where they are evenly spaced."""
    axis %= x.ndim
    if list(indices) == list(range(x.shape[axis])):
        return x
    runs = _even_runs(indices)
    if len(runs) > MAX_RUNS:
        padded = jnp.concatenate([x, jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))], axis)
        return jnp.take(padded, jnp.array([x.shape[axis] if i == PAD else i for i in indices]), axis=axis)
    blocks = []
    for run in runs:
        shape = (*x.shape[:axis], len(run), *x.shape[axis + 1 :])
        if run[0] == PAD:
            blocks.append(jnp.zeros(shape, x.dtype))
        elif run[-1] == run[0]:
            blocks.append(jnp.broadcast_to(lax.slice_in_dim(x, run[0], run[0] + 1, axis=axis), shape))
        else:
            blocks.append(lax.slice_in_dim(x, run[0], run[-1] + 1, run[1] - run[0], axis=axis))
    if not blocks:
        return jnp.zeros((*x.shape[:axis], 0, *x.shape[axis + 1 :]), x.dtype)
    return blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks, axis)


def _even_runs(indices: Sequence[int]) -> list[list[int]]:
    """Cut indices into runs that repeat one or rise by equal steps; a step above 1 takes three or more to be one."""
    runs: list[list[int]] = []
    for place, i in enumerate(indices):
        run = runs[-1] if runs else []
        if run and PAD in (i, run[0]):
            fits = i == run[0]
        elif len(run) > 1:
            fits = i - run[-1] == run[1] - run[0]
        else:
            step = i - run[0] if run else -1
            following = indices[place + 1] if place + 1 < len(indices) else PAD
            fits = step in (0, 1) or (step > 1 and following == i + step)
        if fits:
            run.append(i)
        else:
            runs.append([i])
    return runs


def norm(x: jax.Array) -> jax.Array:
    """The lengths (...) of vectors (..., n), with a derivative of zero at zero."""
    square = jnp.sum(x * x, axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def product(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """`matrix @ x`, of few terms in one kernel: on lanes, a product is a loop over its terms."""
    return materialize(jnp.sum(matrix * x, axis=1)) if matrix.shape[1] <= SHORT else matrix @ x


def set_rows(x: jax.Array, places: Sequence[int], rows: jax.Array) -> jax.Array:
    """`x` with some of its rows replaced."""
    order = list(range(x.shape[0]))
    for i, place in enumerate(places):
        order[place] = x.shape[0] + i
    return static_gather(jnp.concatenate([x, rows]), order)


def solve_positive(matrix: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Solve `matrix @ x = right` for a symmetric positive definite matrix (n, n), by elimination without pivoting.

    Two columns at a time over all rows at once: on lanes that is n / 2 passes over an (n, n + 1) array, where a library
    call per matrix would leave the lanes. Of large matrices finished rows and columns are cut off, a panel of columns
    at a time: half the work at 41 columns. Block elimination is faster still, and inaccurate where nearly singular.

    Returns:
      x (n,), and the smallest pivot: positive exactly if the matrix is, to rounding, positive definite.
    """
    left = jnp.concatenate([matrix, right[:, None]], axis=1)
    solved, smallest = [], jnp.full((), jnp.inf, matrix.dtype)
    while left.shape[0]:
        width = -(-left.shape[0] // -(-left.shape[0] // PANEL))
        width = min(width + width % 2, max(left.shape[0] // 2 * 2, 1))
        left, least = _eliminated(left, width)
        smallest = jnp.minimum(smallest, least)
        solved.append(left[:width, width:])
        left = left[width:, width:]
    x = solved[-1][:, 0]
    for rows in reversed(solved[:-1]):
        x = jnp.concatenate([rows[:, -1] - rows[:, :-1] @ x, x])
    return x, smallest


def solve_small_positive(matrix: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Like `solve_positive`, in a third of the time, by L D L' with every column unrolled: for solves in every step.

    On 128 lanes 2.1 us not 4.2 for 6 columns, 11 not 40 for 12, 66 not 194 for 24. Compiling that takes 0.3, 0.8 and
    1.8 s, as a loop over columns 0.2 to 0.4: so larger matrices stay with the loop, and more than a block of columns
    where there are no lanes: of one element both take as long.
    """
    if matrix.shape[0] > (BLOCK if is_alone() else WRITTEN_OUT):
        return solve_positive(matrix, right)
    left = jnp.concatenate([matrix, right[None]])
    width = -(-left.shape[1] // -(-left.shape[1] // BLOCK))
    blocks, pivots = [], []
    while left.shape[1]:
        columns: list[jax.Array] = []
        diagonal: list[jax.Array] = []
        for j in range(min(width, left.shape[1])):
            column = left[j:, j]
            for i, before in enumerate(columns):
                column = column - (diagonal[i] * before[j - i]) * before[j - i :]
            diagonal.append(column[0])
            columns.append(divide_once(column, column[0]))
        blocks.append(columns)
        pivots += diagonal
        done = len(columns)
        left = left[done:, done:]
        if left.shape[1]:
            # As a product the columns were stacked first: 18 more kernels of a humanoid's search, and 3 s to compile.
            for j, column in enumerate(columns):
                below = column[done - j :]
                left = left - below[:, None] * (diagonal[j] * below[:-1])
            left = materialize(left)
    later = jnp.zeros(0, matrix.dtype)
    for columns in reversed(blocks):
        done, own = len(columns), list[jax.Array]()
        for j in reversed(range(done)):
            column = columns[j]
            entry = column[-1] - column[done - j : -1] @ later
            for i, known in enumerate(reversed(own)):
                entry = entry - column[1 + i] * known
            # With several blocks each later entry would compute it again: a humanoid's search took 1.16 times as long.
            own.append(entry if len(blocks) == 1 else materialize(entry))
        later = jnp.concatenate([jnp.stack(own[::-1]), later])
    return later, functools.reduce(jnp.minimum, pivots)


def _eliminated(rows: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Eliminate the first columns of rows (n, k) from all others; also the smallest pivot ().

    Of an even number of columns two in each pass: 41 rows on lanes take 0.83 of the time. Three and four take more.
    """
    place, together = jnp.arange(rows.shape[0]), 1 if count % 2 else 2

    def eliminate(carry: tuple[jax.Array, jax.Array], first: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        rows, smallest = carry
        changes: list[tuple[jax.Array, jax.Array]] = []
        for k in (first + i for i in range(together)):
            row, column = entry(rows, k), entry(rows, k, 1)
            for factor, before in changes:
                row, column = row - entry(factor, k) * before, column - factor * entry(before, k)
            # Out of the kernel that updates the rows, which is scalar code else, and copies them first: on lanes, 41
            # rows take 0.7 of the time.
            row = materialize(row)
            pivot = entry(row, k)
            # The pivot row itself becomes its multiple with a leading one.
            inverse = materialize(1 / pivot)
            changes.append((materialize(jnp.where(place == k, 1 - inverse, column * inverse)), row))
            smallest = jnp.minimum(smallest, pivot)
        for factor, row in changes:
            rows = rows - factor[:, None] * row
        return (rows, smallest), None

    eliminated, _ = lax.scan(eliminate, (rows, jnp.full((), jnp.inf, rows.dtype)), place[:count:together])
    return eliminated


def largest(diagonal: jax.Array) -> jax.Array:
    """The largest entry of a vector, as a unit to measure others by: 1 where it is not positive."""
    # As of a matrix, which is written out on lanes: XLA does not vectorise a reduction with what it reduces fused in.
    top = materialize(jnp.max(diagonal[None], axis=1)[0])
    return jnp.where(top > 0, top, 1)


def row_space(matrix: jax.Array, threshold: Any) -> jax.Array:
    """Projector (n, n) onto the row space of a matrix (m, n).

    Gram-Schmidt with pivoting by length, each row orthogonalised twice; rows shorter than `threshold` count as zero.
    """
    count, size = matrix.shape
    places = jnp.arange(count)

    def take(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        # Products with vectors, not sums of entries, which take 5 times as long on lanes at 41 columns.
        left, space = carry
        square = jnp.einsum("ij,ij->i", left, left)
        most = jnp.max(square)
        longest = jnp.min(jnp.where(square == most, places, count - 1))
        length = jnp.sqrt(most)
        enough = length > threshold
        row = (places == longest).astype(left.dtype) @ left / jnp.where(enough, length, 1)
        row = row - space @ row
        row = jnp.where(enough, row / jnp.sqrt(row @ row), 0)
        return left - (left @ row)[:, None] * row, space + row[:, None] * row

    _, space = lax.fori_loop(0, min(count, size), take, (matrix, jnp.zeros((size, size), matrix.dtype)))
    return space


def dependent_rows(matrix: jax.Array, right: jax.Array, threshold: Any) -> jax.Array:
    """Mask (m,) of equations, `matrix` (m, n) x = `right` (m,), that follow from the others.

    Gram-Schmidt with pivoting by length; what is then left, on both sides, of an equation that follows is below
    `threshold`. One that contradicts the others is none of them.
    """
    count, size = matrix.shape
    places = jnp.arange(count)

    def take(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        left, waiting = carry
        square = jnp.where(waiting, jnp.einsum("ij,ij->i", left[:, :size], left[:, :size]), 0)
        most = jnp.max(square)
        chosen = (places == first_true(square == most)) & (most > threshold**2)
        row = materialize(chosen.astype(left.dtype) @ left)
        share = materialize(left[:, :size] @ row[:size] / jnp.where(most > 0, most, 1))
        return left - share[:, None] * row, waiting & ~chosen

    equations = jnp.concatenate([matrix, right[:, None]], axis=1)
    left, waiting = lax.fori_loop(0, min(count, size), take, (equations, jnp.ones(count, bool)))
    return waiting & (jnp.abs(left[:, size]) <= threshold)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def pinv_psd(matrix: jax.Array, unit: jax.Array, threshold: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Pseudoinverse of a symmetric positive semidefinite matrix (n, n).

    Swept by one diagonal entry after the other, the largest first (Goodnight: A Tutorial on the SWEEP Operator, 1979):
    a fifth of the error of an orthonormal basis and an elimination, in less time. Pivots below `threshold` times `unit`
    count as zero, also in derivatives (Golub, Pereyra: The Differentiation of Pseudo-Inverses, 1973).

    Returns:
      The pseudoinverse (n, n), the projector (n, n) onto the row space, and the largest entry that was not swept,
      relative to `unit`: above the threshold exactly if the matrix is not semidefinite.
    """
    size = matrix.shape[0]
    places, eye = jnp.arange(size), unit_matrix(size, dtype=matrix.dtype)

    def sweep(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """A diagonal entry p becomes 2 - 1 / p, which takes one product where -1 / p would take two."""
        swept, left = carry
        diagonal = jnp.where(left, jnp.diagonal(swept), 0)
        pivot = jnp.max(diagonal)
        enough = pivot > threshold
        chosen = enough & (places == jnp.min(jnp.where(diagonal == pivot, places, size - 1)))
        one = materialize(chosen.astype(swept.dtype))
        turned = materialize((swept @ one - one) / jnp.sqrt(jnp.where(enough, pivot, 1)))
        return swept - turned[:, None] * turned, left & ~chosen

    swept, left = lax.fori_loop(0, size, sweep, (matrix / unit, jnp.ones(size, bool)))
    unswept = jnp.max(jnp.abs(jnp.where(left[:, None] & left[None, :], swept, 0)))
    inverse = jnp.where(left[:, None] | left[None, :], 0, 2 * eye - swept) / unit

    def project(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Remove one direction of the null space from both results; each pivot that was not swept is one."""
        inverse, space, waiting = carry
        chosen = waiting & (places == jnp.min(jnp.where(waiting, places, size - 1)))
        one = chosen.astype(swept.dtype)
        row = space @ (one - jnp.where(left, 0, swept @ one))
        row = space @ (row / jnp.sqrt(row @ row))
        row = row / jnp.sqrt(row @ row)
        lean = inverse @ row
        lean = lean - 0.5 * (row @ lean) * row
        inverse = inverse - lean[:, None] * row - row[:, None] * lean
        return inverse, space - row[:, None] * row, waiting & ~chosen

    # As many turns as directions lack, in a batch those of the worst: of 7 that lack 1, 50 us on 128 lanes, where an
    # elimination took 70; of 29 that lack 2, 17 and 28, 0.74, 1.65 and 2.39 ms, where it took 3.3.
    inverse, space, _ = lax.while_loop(lambda carry: jnp.any(carry[2]), project, (inverse, eye, left))
    return inverse, space, unswept


@pinv_psd.defjvp
def _(threshold: float, primals: Any, tangents: Any) -> Any:
    inverse, space, unswept = pinv_psd(*primals, threshold)
    change = (tangents[0] + tangents[0].T) / 2
    turned = inverse @ change @ (unit_matrix(space.shape[0], dtype=space.dtype) - space)
    bent = inverse @ turned
    moved = -inverse @ change @ inverse + bent + bent.T
    return (inverse, space, unswept), (moved, turned + turned.T, jnp.zeros_like(unswept))


def weak_directions(square: jax.Array, least: jax.Array, sweeps: int = 6) -> tuple[jax.Array, ...]:
    """The part (n, n) of the identity that a positive semidefinite matrix (n, n) has too little of, smoothly.

    With eigenvalues s^2 and eigenvectors u it is the sum of (1 - s^2 / least)^2 u u' over those below `least`: exactly
    zero where none is, and one in the null space. By Jacobi rotations, where any is below at all: in float32 six sweeps
    leave 1.3e-5 of an error in matrices of twelve rows.

    Returns:
      That part; and, where it is not zero, the inverse (n, n) of the matrix in what is left of the identity, all
      eigenvalues (k,) and eigenvectors (n, k), of which one is zero where n is odd and k = n + 1; else zeros.
    """
    size, odd = square.shape[0], square.shape[0] % 2
    eye, zero = unit_matrix(size, dtype=square.dtype), jnp.zeros_like(square)

    def found() -> tuple[jax.Array, ...]:
        turned, vectors = _rotated(jnp.pad(square, (0, odd)), jnp.pad(eye, ((0, 0), (0, odd))), least, sweeps)
        values = jnp.diagonal(turned)
        share = jnp.maximum(1 - values / least, 0)
        inverse = (1 + share) / jnp.maximum(values, least)
        return (vectors * share**2) @ vectors.T, (vectors * inverse) @ vectors.T, values, vectors

    nothing = zero, zero, jnp.zeros(size + odd, square.dtype), jnp.zeros((size, size + odd), square.dtype)

    # Where no eigenvalue is below, no entry of the diagonal is: there is nothing to find.
    _, pivot = solve_small_positive(square - least * eye, jnp.zeros(size, square.dtype))
    return lax.cond(pivot > 0, lambda: nothing, found)


def _rotated(matrix: jax.Array, vectors: jax.Array, unit: jax.Array, sweeps: int) -> tuple[jax.Array, jax.Array]:
    """Turn a symmetric matrix (n, n), n even, towards a diagonal one, and the columns of `vectors` (k, n) with it.

    Rotations of n / 2 disjoint pairs at a time, the neighbours; then rows and columns move on, so that n - 1 times are
    a sweep over all pairs (Golub and Van Loan, "Matrix Computations", section 8.5.5). Of six rows on 128 lanes that
    takes a fifth of the time of rotations one by one.

    Args:
      unit (): the size of what counts: sweeps end where the rest is rounding of that.
      sweeps: at most.
    """
    size, eps = matrix.shape[0], jnp.finfo(matrix.dtype).eps

    def rotate(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        matrix, vectors = carry
        flat = matrix.reshape(size * size)
        entries, across = flat[:: size + 1], flat[1 :: 2 * (size + 1)]
        turns = across != 0
        ratio = (entries[1::2] - entries[::2]) / jnp.where(turns, 2 * across, 1)
        tangent = jnp.where(ratio < 0, -1, 1) / (jnp.abs(ratio) + jnp.sqrt(ratio * ratio + 1))
        tangent = jnp.where(turns, tangent, 0)
        cosine = materialize(lax.rsqrt(tangent * tangent + 1))
        sine = materialize(tangent * cosine)

        def turned(x: jax.Array) -> jax.Array:
            """Columns of x in the planes of the pairs, turned, and moved on."""
            first, second = x[:, ::2], x[:, 1::2]
            first, second = cosine * first - sine * second, sine * first + cosine * second
            if size > 2:
                first, second = (
                    jnp.concatenate([first[:, :1], second[:, :1], first[:, 1:-1]], axis=1),
                    jnp.concatenate([second[:, 1:], first[:, -1:]], axis=1),
                )
            return jnp.stack([first, second], axis=2).reshape(x.shape)

        return turned(turned(matrix).T), turned(vectors)

    def sweep(carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        (matrix, vectors), left = carry
        matrix, vectors = lax.fori_loop(0, size - 1, rotate, (matrix, vectors))
        sizes, diagonal = jnp.abs(matrix), unit_matrix(size, dtype=bool)
        rest, noise = jnp.max(jnp.where(diagonal, 0, sizes)), eps * jnp.maximum(jnp.max(sizes), unit)
        return (matrix, vectors), jnp.where(rest > noise, left - 1, 0)

    return lax.while_loop(lambda carry: carry[1] > 0, sweep, ((matrix, vectors), jnp.asarray(sweeps)))[0]
