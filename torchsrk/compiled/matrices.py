"""Operations on small matrices, of which every particle may have its own: factors, solves, eigenvalues."""

from __future__ import annotations

from collections.abc import Callable

from .calls import Call
from .operations import number, vector
from .trace import CannotCompile
from .writer import Index, Shape, Value, Writer, is_particles, loops, offset


def cholesky(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    """L with LLᵀ = A. Where A is not positive definite L is NaN, and so is the state: eagerly torch says why."""
    source, upper = writer.value(call["self"]), call["upper"]
    call["check_errors"]
    size = _size(source)

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            entry = vector(source.operand([*index, *(("j", "i") if upper else ("i", "j"))]))
            return (
                f"{{ V *const l = {name} + {offset(source.shape, [*index, '0', '0'])}; "
                f"for (int j = 0; j < {size}; j++) {{ "
                f"for (int i = 0; i < j; i++) l[i * {size} + j] = splat(0); "
                f"for (int i = j; i < {size}; i++) {{ V rest = {entry}; "
                f"for (int k = 0; k < j; k++) rest -= l[i * {size} + k] * l[j * {size} + k]; "
                f"l[i * {size} + j] = i == j ? v_sqrt(rest) : rest / l[j * {size} + j]; }} }} }}"
            )

        return loops(source.shape[:-2], body)

    factor = writer.array(source.shape, fill)
    made = factor.moved(source.shape, lambda i: [*i[:-2], i[-1], i[-2]]) if upper else factor
    return [made, writer.constant(0.0, source.shape[:-2])]


def solve_triangular(writer: Writer, call: Call, shape: Shape) -> Value:
    """X with A X = B or, from the right, X A = B; by substitution."""
    matrix, right = writer.stored(call["self"]), writer.stored(call["B"])
    left, unit = call["left"], call["unitriangular"]
    forwards = call["upper"] != left  # from the right it is the transposed matrix that is solved with
    size = _size(matrix)

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            def at(line: str) -> list[str]:
                return [*index[:-2], line, index[-1]] if left else [*index[:-2], index[-2], line]

            def coefficient(line: str, column: str) -> str:
                return number(matrix.operand([*index[:-2], *((line, column) if left else (column, line))]))

            row, done = ("i", "k") if forwards else (f"({size - 1} - i)", f"({size - 1} - k)")
            solved = "rest" if unit else f"rest / {coefficient(row, row)}"
            return (
                f"for (int i = 0; i < {size}; i++) {{ V rest = {vector(right.operand(at(row)))}; "
                f"for (int k = 0; k < i; k++) rest -= {coefficient(row, done)} * {name}[{offset(shape, at(done))}]; "
                f"{name}[{offset(shape, at(row))}] = {solved}; }}"
            )

        return loops((*shape[:-2], None, shape[-1]) if left else (*shape[:-1], None), body)

    return writer.array(shape, fill)


def eigh(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    """Eigenvalues and eigenvectors, by eigen.h. The vectors' signs need not be those that torch finds.

    Where eigenvalues meet, the vectors need not be either: but what functions of the matrix are made of is the same.
    """
    source, upper = writer.value(call["A"]), call["UPLO"].upper() == "U"
    call["compute_v"]  # they are made in any case
    *batch, _, _ = source.shape
    size = _size(source)
    writer.headers.add("eigen.h")
    square = size * size
    whole = (*batch, 2 * square + size)  # the matrix, its eigenvalues, and its eigenvectors as rows

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            block = f"{name} + {offset(whole, [*index, '0'])}"
            entry = vector(source.operand([*index, *(("i", "j") if upper else ("j", "i"))]))
            return (
                f"{{ V *const block = {block}; for (int i = 0; i < {size}; i++) for (int j = i; j < {size}; j++) "
                f"block[i * {size} + j] = {entry}; eigen({size}, block, block + {square}, block + {square + size}); }}"
            )

        return loops(tuple(batch), body)

    found = writer.array(whole, fill)
    return [
        found.moved((*batch, size), lambda index: [*index[:-1], f"({square} + {index[-1]})"]),
        found.moved(source.shape, lambda i: [*i[:-2], f"({square + size} + {i[-1]} * {size} + {i[-2]})"]),
    ]


def _size(matrices: Value) -> int:
    rows, columns = matrices.shape[-2:]
    if not isinstance(rows, int) or is_particles(columns):
        raise CannotCompile("a step mixes its particles: it takes a matrix of them apart")
    return rows


MATRICES: dict[str, Callable[[Writer, Call, Shape], Value | list[Value]]] = {
    "linalg_cholesky_ex.default": cholesky,
    "linalg_solve_triangular.default": solve_triangular,
    "_linalg_eigh.default": eigh,
}
