"""Operations on small matrices, of which every particle may have its own: factors, solves, eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .calls import Call, operation_name
from .operations import Kind, number, vector
from .trace import CannotCompile
from .writer import Index, Shape, Value, Writer, count, entries, is_particles, loops, offset

CHECKS = {"_linalg_check_errors.default"}  # what fails them is NaN here; torch raises for what it computes itself


def cholesky(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    """L with LLᵀ = A. Where A is not positive definite L is NaN, and so is the state: eagerly torch says why.

    A step that reads where that is has numbers in L there, as torch's own are: what it does not want of them has a
    derivative of 0, and not of NaN.
    """
    source, upper, is_told = writer.value(call["self"]), call["upper"], is_read(call, 1)
    call["check_errors"]
    *batch, _, _ = source.shape
    size = _size(source)
    square = size * size
    whole = (*batch, square + is_told)  # the factor, and the first line without one
    root = "v_select(rest > 0, v_sqrt(rest), splat(1))" if is_told else "v_sqrt(rest)"
    told = f"if (i == j) l[{square}] = v_select((l[{square}] == 0) & v_not(rest > 0), splat(j + 1), l[{square}]);"

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            entry = vector(source.operand([*index, *(("j", "i") if upper else ("i", "j"))]))
            return (
                f"{{ V *const l = {name} + {offset(whole, [*index, '0'])}; {f'l[{square}] = splat(0);' * is_told} "
                f"for (int j = 0; j < {size}; j++) {{ "
                f"for (int i = 0; i < j; i++) l[i * {size} + j] = splat(0); "
                f"for (int i = j; i < {size}; i++) {{ V rest = {entry}; "
                f"for (int k = 0; k < j; k++) rest -= l[i * {size} + k] * l[j * {size} + k]; {told * is_told} "
                f"l[i * {size} + j] = i == j ? {root} : rest / l[j * {size} + j]; }} }} }}"
            )

        return loops(tuple(batch), body)

    row, column = (-1, -2) if upper else (-2, -1)
    if not is_told:
        factor = writer.array(source.shape, fill)
        made = factor.moved(source.shape, lambda i: [*i[:-2], i[-1], i[-2]]) if upper else factor
        return [made, writer.constant(0.0, tuple(batch))]
    found = writer.array(whole, fill)
    made = found.moved(source.shape, lambda i: [*i[:-2], f"({i[row]} * {size} + {i[column]})"])
    return [made, found.moved(tuple(batch), lambda i: [*i, str(square)])]


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


@dataclass(frozen=True)
class _Factors:
    """The factors LU of matrices as lu.h has them, one after another: LU, the rows' order, and its sign."""

    array: Value
    shape: Shape

    @staticmethod
    def of(writer: Writer, source: Value) -> _Factors:
        *batch, _, _ = source.shape
        size = _size(source)
        writer.headers.add("lu.h")
        whole = (*batch, size * size + size + 1)

        def fill(name: str) -> str:
            def body(index: Index) -> str:
                entry = vector(source.operand([*index, "i", "j"]))
                return (
                    f"{{ V *const block = {name} + {offset(whole, [*index, '0'])}; "
                    f"for (int i = 0; i < {size}; i++) for (int j = 0; j < {size}; j++) "
                    f"block[i * {size} + j] = {entry}; "
                    f"block[{size * size + size}] = lu_factor({size}, block, block + {size * size}); }}"
                )

            return loops(tuple(batch), body)

        return _Factors(writer.array(whole, fill), source.shape)

    @property
    def size(self) -> int:
        return entries(self.shape[-1])

    def factor(self) -> Value:
        n = self.size
        return self.array.moved(self.shape, lambda i: [*i[:-2], f"({i[-2]} * {n} + {i[-1]})"])

    def rows(self) -> Value:
        square = self.size**2
        return self.array.moved((*self.shape[:-2], self.size), lambda i: [*i[:-1], f"({square} + {i[-1]})"])

    def product(self, writer: Writer, term: str, update: str, start: str) -> Value:
        """Of the diagonal: ``update`` takes in ``term``, both of C's ``pivot``, from ``start`` on, C's ``sign``."""
        n, batch = self.size, self.shape[:-2]

        def fill(name: str) -> str:
            def body(index: Index) -> str:
                pivot = vector(self.array.operand([*index, f"(i * {n + 1})"]))
                sign = vector(self.array.operand([*index, str(n * n + n)]))
                return (
                    f"{{ const V sign = {sign}; V total = {start}; for (int i = 0; i < {n}; i++) {{ "
                    f"const V pivot = {pivot}; total {update} {term}; }} {name}[{offset(batch, index)}] = total; }}"
                )

            return loops(batch, body)

        return writer.array(batch, fill)

    def singular(self, writer: Writer) -> Value:
        """The first line, from 1 on, whose pivot is 0; 0 where there is none."""
        n, batch = self.size, self.shape[:-2]

        def fill(name: str) -> str:
            def body(index: Index) -> str:
                pivot = vector(self.array.operand([*index, f"(i * {n + 1})"]))
                return (
                    f"{{ V line = splat(0); for (int i = {n - 1}; i >= 0; i--) "
                    f"line = v_select({pivot} == 0, splat(i + 1), line); {name}[{offset(batch, index)}] = line; }}"
                )

            return loops(batch, body)

        return writer.array(batch, fill)

    def told(self, writer: Writer, call: Call, place: int) -> Value:
        """What an operation tells in a place of its results: whether there was a pivot for every line."""
        return self.singular(writer) if is_read(call, place) else writer.constant(0.0, self.shape[:-2])


def _solved(
    writer: Writer, factor: Value, rows: Value, right: Value, shape: Shape, transposed: bool, left: bool
) -> Value:
    """X with AX = B, or with XA = B, which is AᵀXᵀ = Bᵀ; with Aᵀ for A if ``transposed``."""
    size, columns = _size(factor), shape[-1] if left else shape[-2]
    *batch, _, _ = shape
    if is_particles(columns) or len(factor.shape) > len(shape):
        raise CannotCompile("a step solves with more matrices than right-hand sides")
    stride = entries(shape[-1]) if left else 1
    whole = (*batch, count(shape[-2:]) + size)  # and a column to work in

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            entry = vector(right.operand([*index, "i", "j"]))
            starts = [
                f"&{vector(factor.operand([*index, '0', '0']))}",
                f"&{vector(rows.operand([*index, '0']))}",
            ]
            column = "c" if left else f"c * {entries(shape[-1])}"
            return (
                f"{{ V *const block = {name} + {offset(whole, [*index, '0'])}; "
                f"for (int i = 0; i < {entries(shape[-2])}; i++) for (int j = 0; j < {entries(shape[-1])}; j++) "
                f"block[i * {entries(shape[-1])} + j] = {entry}; for (int c = 0; c < {entries(columns)}; c++) "
                f"lu_solve({size}, {starts[0]}, {starts[1]}, {int(transposed == left)}, block + {column}, {stride}, "
                f"block + {count(shape[-2:])}); }}"
            )

        return loops(tuple(batch), body)

    made, width = writer.array(whole, fill), entries(shape[-1])
    return made.moved(shape, lambda i: [*i[:-2], f"({i[-2]} * {width} + {i[-1]})"])


def lu_solve(writer: Writer, call: Call, shape: Shape) -> Value:
    factor, rows, right = (writer.stored(call[name]) for name in ("LU", "pivots", "B"))
    return _solved(writer, factor, rows, right, shape, call["adjoint"], call["left"])


def solve(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    source, right, left, _ = (call[name] for name in ("A", "B", "left", "check_errors"))
    found, side = _Factors.of(writer, writer.stored(source)), writer.stored(right)
    _check_readers(call, (1, 2))
    result = side.shape
    is_vector = len(result) == len(found.shape) - 1
    if is_vector:
        side = side.moved((*result, 1), lambda i: i[:-1])
    solved = _solved(writer, found.factor(), found.rows(), side, side.shape, False, left)
    if is_vector:
        solved = solved.moved(result, lambda i: [*i, "0"])
    return [solved, found.factor(), found.rows(), found.told(writer, call, 3)]


def inverse(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    call["check_errors"]
    found = _Factors.of(writer, writer.stored(call["A"]))
    identity = Value(found.shape, Kind.VECTOR, lambda i: f"splat({i[-2]} == {i[-1]})")
    solved = _solved(writer, found.factor(), found.rows(), identity, found.shape, False, left=True)
    return [solved, found.told(writer, call, 1)]


def log_determinant(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    """The factors that are among its results are those of the transposed matrix if it is contiguous, as torch's are."""
    _check_readers(call, (2, 3))
    source = writer.stored(call["A"])
    if call["A"].meta["val"].is_contiguous():
        source = source.moved(source.shape, lambda i: [*i[:-2], i[-1], i[-2]])
    found = _Factors.of(writer, source)
    sign = found.product(writer, "v_sign(pivot)", "*=", "sign")
    size = found.product(writer, "v_log(v_fabs(pivot))", "+=", "splat(0)")
    return [sign, size, found.factor(), found.rows()]


def determinant(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    """The factors among its results are for its derivative alone, which solves with them."""
    source = writer.stored(call["A"])
    if call["A"].meta["val"].is_contiguous():
        source = source.moved(source.shape, lambda i: [*i[:-2], i[-1], i[-2]])
    found = _Factors.of(writer, source)
    return [found.product(writer, "pivot", "*=", "sign"), found.factor(), found.rows()]


def _check_readers(call: Call, factors: tuple[int, int]) -> None:
    """Factors and the order of rows are among an operation's results for its derivative to solve with, and for that
    alone: rows may be in another order than torch's."""
    readers = [user for part in call.node.users if part.args[1] in factors for user in part.users]
    if any(operation_name(user) != "linalg_lu_solve.default" for user in readers):
        raise CannotCompile("a step reads the factors of a matrix, whose rows may be in another order here")


def is_read(call: Call, place: int) -> bool:
    """Whether a step reads one of an operation's results, and not for torch to raise an error by."""
    parts = (user for user in call.node.users if user.args[1] == place)
    return any(operation_name(user) not in CHECKS for part in parts for user in part.users)


def _size(matrices: Value) -> int:
    rows, columns = matrices.shape[-2:]
    if not isinstance(rows, int) or is_particles(columns):
        raise CannotCompile("a step mixes its particles: it takes a matrix of them apart")
    return rows


MATRICES: dict[str, Callable[[Writer, Call, Shape], Value | list[Value]]] = {
    "linalg_cholesky_ex.default": cholesky,
    "linalg_solve_triangular.default": solve_triangular,
    "_linalg_eigh.default": eigh,
    "linalg_lu_solve.default": lu_solve,
    "_linalg_solve_ex.default": solve,
    "linalg_inv_ex.default": inverse,
    "_linalg_slogdet.default": log_determinant,
    "_linalg_det.default": determinant,
}
