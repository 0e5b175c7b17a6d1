"""The statements of a step: which of their loops run as one, and where their arrays are kept.

Loops over the same entries that follow one another become one loop. A value that nobody reads outside of its loop is a
local variable, an array that is only copied to the result is the result itself, and the others share storage: one takes
the place of another whose last reader is past.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

RESULT = "out"
_ARRAY = re.compile(r"\bt\d+\b")
_MOST_TOGETHER = 24  # statements in a loop, lest it needs many more values at once than there are registers


@dataclass(frozen=True)
class Statement:
    """C that fills an array, or a part of one.

    Attributes:
        array: the array's name.
        vectors: its size.
        text: the C. Of a statement that goes entry by entry, the value of an entry.
        loops: of such a statement, the heads of the loops around it, from the outermost in.
        target: the entry that is filled.
        type: of that entry.
        is_local: the entry is a variable of that name, and no array is kept.
    """

    array: str
    vectors: int
    text: str
    loops: tuple[str, ...] | None = None
    target: str = ""
    type: str = "V"
    is_local: bool = False

    def __str__(self) -> str:
        if self.loops is None:
            return self.text
        return f"const {self.type} {self.array} = {self.text};" if self.is_local else f"{self.target} = {self.text};"

    def as_local(self) -> Statement:
        """With a variable for its entry."""
        return replace(self, is_local=True)

    def reading_local(self, other: Statement) -> Statement:
        """With the other's variable for its entry."""
        return replace(self, text=self.text.replace(other.target, other.array))


def assembled(statements: Sequence[Statement], hint: str) -> tuple[str, int]:
    """The statements as C, and the vectors of storage they use. ``hint`` stands before an innermost loop."""
    statements = _numbers_as_locals(_without_last_copy(statements))
    groups = [_with_locals(group, statements) for group in _groups(statements)]
    last_met = {name: n for n, group in enumerate(groups) for s in group for name in {s.array, *_ARRAY.findall(s.text)}}
    free: list[tuple[int, int]] = []  # (vectors, offset)
    held: dict[str, tuple[int, int]] = {}
    size, lines = 0, []
    for number, group in enumerate(groups):
        for statement in group:
            if statement.is_local or statement.array in (*held, RESULT):
                continue
            slot = next((slot for slot in free if slot[0] == statement.vectors), None)
            if slot is None:
                slot, size = (statement.vectors, size), size + statement.vectors
            else:
                free.remove(slot)
            held[statement.array] = slot
            lines.append(f"    V *const {statement.array} = work + {slot[1]};\n")
        lines.append(f"    {_together(group, hint)}\n")
        free += [held.pop(name) for name in list(held) if last_met[name] <= number]
    return "".join(lines), size


def _together(group: Sequence[Statement], hint: str) -> str:
    body = " ".join(map(str, group))
    if not group[0].loops:
        return body
    *outer, inner = group[0].loops
    return f"{''.join(outer)}{hint}{inner}{{ {body} }}"


def _without_last_copy(statements: Sequence[Statement]) -> Sequence[Statement]:
    """Without the copy of an array to the result, where that is all that the array is for."""
    *before, last = statements
    name = "".join(_ARRAY.findall(last.text))
    is_copy = last.target == last.text.replace(name, RESULT) if name else False
    if not is_copy or any(name in _ARRAY.findall(s.text) for s in before if s.array != name or s.loops is not None):
        return statements
    return [_renamed(statement, name) if statement.array == name else statement for statement in before]


def _renamed(statement: Statement, name: str) -> Statement:
    own = re.compile(rf"\b{name}\b")
    text, target = (own.sub(RESULT, part) for part in (statement.text, statement.target))
    return replace(statement, array=RESULT, text=text, target=target)


def _numbers_as_locals(statements: Sequence[Statement]) -> list[Statement]:
    """With what has one entry as a variable, where it is read as such."""
    done = list(statements)
    for place, statement in enumerate(statements):
        if statement.loops == () and statement.array != RESULT and _is_read_by_entry(statement, statements):
            done[place] = done[place].as_local()
            done[place + 1 :] = [later.reading_local(statement) for later in done[place + 1 :]]
    return done


def _is_read_by_entry(statement: Statement, statements: Sequence[Statement]) -> bool:
    """Whether whoever names its array reads the one entry that it fills, and nothing else fills the array."""
    named = sum(_ARRAY.findall(s.text).count(statement.array) for s in statements)
    read = sum(s.text.count(statement.target) for s in statements)
    return named == read and sum(s.array == statement.array for s in statements) == 1


def _groups(statements: Sequence[Statement]) -> Iterator[list[Statement]]:
    """Neighbours that can run as one loop."""
    group: list[Statement] = []
    for statement in statements:
        if group and not _can_join(group, statement):
            yield group
            group = []
        group.append(statement)
    yield group


def _can_join(group: Sequence[Statement], statement: Statement) -> bool:
    """Whether a statement may follow the others entry by entry: of theirs, it reads the same entry alone."""
    if statement.loops is None or statement.loops != group[0].loops or len(group) >= _MOST_TOGETHER:
        return False
    elsewhere = statement.text
    for other in group:
        elsewhere = elsewhere if other.is_local else elsewhere.replace(other.target, "")
    return not {other.array for other in group if not other.is_local} & {*_ARRAY.findall(elsewhere)}


def _with_locals(group: list[Statement], statements: Sequence[Statement]) -> list[Statement]:
    """A loop, with variables for what is read in it alone."""
    inside = Counter(name for statement in group for name in _ARRAY.findall(statement.text))
    everywhere = Counter(name for statement in statements for name in _ARRAY.findall(statement.text))
    fills = Counter(statement.array for statement in statements)
    done = list(group)
    for place, statement in enumerate(group):
        name = statement.array
        if not statement.loops or name == RESULT or fills[name] > 1 or inside[name] < everywhere[name]:
            continue
        done[place] = done[place].as_local()
        done[place + 1 :] = [later.reading_local(statement) for later in done[place + 1 :]]
    return done
