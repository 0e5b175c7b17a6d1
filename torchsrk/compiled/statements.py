"""The statements of a step: which of their loops run as one, and where their arrays are kept.

Loops over the same entries that follow one another become one loop. A value that nobody reads outside of its loop is a
local variable, an array that is only copied to the result is the result itself, and the others share storage: one takes
the place of another whose last reader is past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

RESULT = "out"
_MOST_TOGETHER = 24  # statements in a loop, lest it needs many more values at once than there are registers


@dataclass(frozen=True)
class Entry:
    """An entry of an array, by its place there."""

    array: str
    place: str


@dataclass
class Names:
    """What C calls the entries of arrays. Every text asks for them here, so what a text reads is known.

    Attributes:
        reads: the entries asked for since ``reads_of`` was called last.
        variables: arrays of which no more than one entry is needed at a time.
        stand_ins: arrays that others are kept in.
    """

    reads: list[Entry] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)
    stand_ins: dict[str, str] = field(default_factory=dict)

    def array(self, name: str) -> str:
        return self.stand_ins.get(name, name)

    def entry(self, entry: Entry, is_mask: bool = False) -> str:
        """The entry of an array that is read or written."""
        array = self.array(entry.array)
        if array in self.variables:
            return array
        return f"((M *){array})[{entry.place}]" if is_mask else f"{array}[{entry.place}]"

    def read(self, array: str, place: str, is_mask: bool = False) -> str:
        """The same, of one that is read."""
        entry = Entry(array, place)
        self.reads.append(entry)
        return self.entry(entry, is_mask)

    def reads_of(self, write: Callable[[], str]) -> tuple[str, tuple[Entry, ...]]:
        """A text, and what it reads."""
        self.reads = []
        return write(), tuple(self.reads)


@dataclass(frozen=True)
class Terms:
    """An array of sums of which some terms are added at a time.

    Attributes:
        array: what the terms are made of, each of one entry.
        together: how many are added at a time.
        before: C that stands before all.
        add: C that adds terms from a place on, so many.
        after: C that fills the array, from its name.
    """

    array: str
    together: int
    before: str
    add: Callable[[str, int], str]
    after: Callable[[str], str]


@dataclass(frozen=True)
class Statement:
    """C that fills an array, or a part of one.

    Attributes:
        array: the array's name.
        vectors: its size.
        write: the C, from the name that the array has in the end. Of a statement that goes entry by entry, the value of
            an entry.
        reads: the entries of other arrays that are in it.
        loops: of such a statement, the heads of the loops around it, from the outermost in.
        place: of the entry that is filled.
        is_mask: the entry is a condition.
        across: C that follows once ``write``'s has run for every group of a tile, and takes them all on. No other
            statement runs in between.
        operation: what the user wrote, in words.
        part: C that fills the entries from a place on, so many: from the array's name.
        by_terms: the same array by terms of its sums: see Terms.
    """

    array: str
    vectors: int
    write: Callable[[str], str]
    reads: tuple[Entry, ...] = ()
    loops: tuple[str, ...] | None = None
    place: str = ""
    is_mask: bool = False
    across: str = ""
    operation: str = ""
    part: Callable[[str, str, int], str] | None = None
    by_terms: Terms | None = None

    @property
    def target(self) -> Entry:
        return Entry(self.array, self.place)

    def text(self, names: Names) -> str:
        value = self.write(names.array(self.array))
        if self.loops is None:
            return value
        declared = f"const {'M' if self.is_mask else 'V'} " if self.array in names.variables else ""
        return f"{declared}{names.entry(self.target, self.is_mask)} = {value};"


@dataclass(frozen=True)
class _Loop:
    """Statements that run as one loop, or a single one, and the number of the section that they are in."""

    statements: tuple[Statement, ...]
    section: int

    @property
    def arrays(self) -> set[str]:
        """Those that are filled, and those that are read."""
        return {s.array for s in self.statements} | {entry.array for s in self.statements for entry in s.reads}

    def can_replace(self, array: str, by: Statement) -> bool:
        """Whether, of an array that is read here for the last time, entries may be written over by a statement's: each
        is read where that is written, and not after it."""
        if not by.loops or any(s.array == array for s in self.statements):
            return False
        reads = [(n, e.place) for n, s in enumerate(self.statements) for e in s.reads if e.array == array]
        return all(place == by.place and n <= self.statements.index(by) for n, place in reads)

    def text(self, names: Names, hint: str) -> str:
        words = dict.fromkeys(s.operation for s in self.statements if s.operation)
        comment = f"/* {', '.join(words)} */ " if words else ""
        body = " ".join(s.text(names) for s in self.statements)
        loops = self.statements[0].loops
        if loops:
            *outer, inner = loops
            body = f"{''.join(outer)}{hint}{inner}{{ {body} }}"
        return comment + body


def assembled(statements: Sequence[Statement], names: Names, hint: str) -> tuple[str, str, int]:
    """Functions, the C of the statements that calls them, and the vectors of storage they use. ``hint`` stands before
    an innermost loop.

    Between statements that take on all groups of a tile, the C is in sections for one group: see groups.h. Each of
    several is a function, so that the constants of its loops stay in registers: kept from one section to another, the
    calls between them would send them to memory.
    """
    statements = _without_last_copy(statements, names)
    names.variables |= _numbers(statements)
    loops = list(_loops(statements, names))
    names.variables |= _read_within(loops)
    places, size = _storage(loops, names)
    sections = [list(section) for _, section in groupby(loops, key=lambda loop: loop.section)]
    functions, lines = "", ""
    for number, section in enumerate(sections):
        text, across = _section(section, names, places, hint), section[0].statements[0].across
        if across:
            lines += f"    {{\n    EVERY_GROUP\n{text}    {across}\n    }}\n"
        elif len(sections) == 1:
            lines += text
        else:
            functions += f"SECTION(section_{number})\n{{\n    UNUSED\n{text}}}\n"
            lines += f"    section_{number}(GIVEN);\n"
    return functions, lines, size


class Body:
    """The statements of a loop's body, whose storage starts at C's ``work``.

    Attributes:
        size: the vectors of storage they use.
        reads: the entries that they read of arrays around the loop.
    """

    def __init__(self, statements: Sequence[Statement], names: Names) -> None:
        own = {statement.array for statement in statements}
        reads = (entry for statement in statements for entry in statement.reads if entry.array not in own)
        self.reads = tuple(dict.fromkeys(reads))
        names.variables |= _numbers(statements)
        self._names, self._loops = names, list(_loops(statements, names))
        names.variables |= _read_within(self._loops)
        self._places, self.size = _storage(self._loops, names)

    def __str__(self) -> str:
        """As C, with the names that arrays around it have by now."""
        pointers = "".join(f"V *const {name} = work + {place}; (void){name};\n" for name, place in self._places.items())
        return pointers + "".join(f"{loop.text(self._names, '')}\n" for loop in self._loops)


def _section(loops: Sequence[_Loop], names: Names, places: dict[str, int], hint: str) -> str:
    met = sorted(
        {name for loop in loops for name in loop.arrays} & places.keys(), key=lambda name: (places[name], name)
    )
    pointers = "".join(f"        V *const {name} = work + {places[name]};\n" for name in met)
    body = "".join(f"        {text}\n" for text in _texts(loops, names, places, hint))
    return f"    EACH_GROUP {{\n        INPUTS\n{pointers}{body}    }}\n"


def _texts(loops: Sequence[_Loop], names: Names, places: dict[str, int], hint: str) -> Iterator[str]:
    """The C of each loop, or of three that run by blocks."""
    loops = list(loops)
    while loops:
        if len(loops) > 1 and _can_swap(loops[0], loops[1], names):
            loops[:2] = loops[1::-1]
        three = loops[:3]
        if len(three) == 3 and _can_run_by_blocks(three[0], three[1], three[2], places):
            yield _by_blocks(three[0], three[1], three[2], names, hint)
            loops = loops[3:]
        else:
            yield loops.pop(0).text(names, hint)


def _can_swap(product: _Loop, numbers: _Loop, names: Names) -> bool:
    """Whether numbers stand after a product, in the way of what belongs to it, and are made of nothing of it."""
    first = product.statements[0]
    are_variables = all(s.loops == () and s.array in names.variables for s in numbers.statements)
    return first.part is not None and are_variables and first.array not in numbers.arrays


def _can_run_by_blocks(product: _Loop, between: _Loop, back: _Loop, places: dict[str, int]) -> bool:
    """Whether a product, a loop over its entries and a product that adds these up may take on some entries at a time.

    What the loop fills must not be kept where the first product reads, as that goes on after it. The last product fills
    its array when all is done, so that this may be anywhere.
    """
    first, last = product.statements[0], back.statements[0]
    if first.part is None or last.by_terms is None:
        return False
    own, filled = {s.array for s in between.statements}, {s.place for s in between.statements}
    heads = {s.loops for s in between.statements}
    kept = {places[array] for array in own if array in places}
    met = {e.place for s in between.statements for e in s.reads if e.array == first.array}
    sums = {e.array for e in last.reads} & (own | {first.array})
    return (
        heads == {(_head("0", first.vectors),)}
        and filled == met == {"i1"}
        and kept.isdisjoint(places[e.array] for e in first.reads if e.array in places)
        and sums == {last.by_terms.array}
        and last.by_terms.array in own
    )


def _head(first: str, number: int) -> str:
    stop = f"{first} + {number}" if first != "0" else str(number)
    return f"for (int i1 = {first}; i1 < {stop}; i1 += 1) "


def _by_blocks(product: _Loop, between: _Loop, back: _Loop, names: Names, hint: str) -> str:
    first, last = product.statements[0], back.statements[0]
    assert first.part is not None
    assert last.by_terms is not None
    part, terms = first.part, last.by_terms

    def block(place: str, number: int) -> str:
        head = (_head(place, number),)
        loop = replace(between, statements=tuple(replace(s, loops=head) for s in between.statements))
        return (
            f"{{ {part(names.array(first.array), place, number)} {loop.text(names, hint)} {terms.add(place, number)} }}"
        )

    words = f"/* {first.operation}, {last.operation}, by blocks */ "
    whole = first.vectors - first.vectors % terms.together
    text = f"for (int entry = 0; entry < {whole}; entry += {terms.together}) {block('entry', terms.together)} "
    text += block(str(whole), first.vectors - whole) if whole < first.vectors else ""
    return f"{words}{{ {terms.before} {text} {terms.after(names.array(last.array))} }}"


def _storage(loops: Sequence[_Loop], names: Names) -> tuple[dict[str, int], int]:
    """Where each array starts, and the vectors that all of them take."""
    last_met = {name: n for n, loop in enumerate(loops) for name in loop.arrays}
    masks = {s.array for loop in loops for s in loop.statements if s.is_mask}
    free: list[tuple[int, int]] = []  # (vectors, offset)
    held: dict[str, tuple[int, int]] = {}
    places: dict[str, int] = {}
    size = 0
    for number, loop in enumerate(loops):
        for statement in loop.statements:
            if statement.array in names.variables or statement.array in (*held, RESULT):
                continue
            ends = (name for name in held if last_met[name] == number and held[name][0] == statement.vectors)
            # C takes it that numbers and conditions are never in one place.
            alike = (name for name in ends if (name in masks) == statement.is_mask)
            last = next((name for name in alike if loop.can_replace(name, statement)), None)
            slot = held.pop(last) if last else next((slot for slot in free if slot[0] == statement.vectors), None)
            if slot is None:
                slot, size = (statement.vectors, size), size + statement.vectors
            elif not last:
                free.remove(slot)
            held[statement.array] = slot
            places[statement.array] = slot[1]
        free += [held.pop(name) for name in list(held) if last_met[name] <= number]
    return places, size


def _without_last_copy(statements: Sequence[Statement], names: Names) -> Sequence[Statement]:
    """Without the copy of an array to the result, where that is all that the array is for."""
    *before, last = statements
    if len(last.reads) != 1 or last.write(RESULT) != names.entry(last.reads[0]) or last.reads[0].place != last.place:
        return statements
    name = last.reads[0].array
    sizes = {s.vectors for s in before if s.array == name}
    is_read = any(s.array != name or s.loops is not None for s in before if name in {entry.array for entry in s.reads})
    if sizes != {last.vectors} or is_read:
        return statements
    names.stand_ins[name] = RESULT
    return [replace(s, array=RESULT) if s.array == name else s for s in before]


def _sections(statements: Sequence[Statement]) -> list[int]:
    """The number of each statement's section: what takes on all groups is one of its own."""
    numbers, number = [], 0
    for before, statement in zip([None, *statements], statements, strict=False):
        number += bool(before and (before.across or statement.across))
        numbers.append(number)
    return numbers


def _numbers(statements: Sequence[Statement]) -> set[str]:
    """Arrays of one entry that are variables: they are filled once, and read where such a variable is seen."""
    sections = _sections(statements)
    fills = Counter(s.array for s in statements)
    single = {
        s.array: (s.target, section)
        for s, section in zip(statements, sections, strict=True)
        if s.loops == () and s.array != RESULT and fills[s.array] == 1
    }
    for statement, section in zip(statements, sections, strict=True):
        for entry in statement.reads:
            if entry.array in single and single[entry.array] != (entry, section):
                del single[entry.array]
    return set(single)


def _loops(statements: Sequence[Statement], names: Names) -> Iterator[_Loop]:
    """Neighbours that can run as one loop."""
    together: list[Statement] = []
    at = 0
    for statement, section in zip(statements, _sections(statements), strict=True):
        if together and section == at and statement.loops == () and _can_go_before(together, statement):
            yield _Loop((statement,), at)
            continue
        if together and (section != at or not _can_join(together, statement, names)):
            yield _Loop(tuple(together), at)
            together = []
        together.append(statement)
        at = section
    yield _Loop(tuple(together), at)


def _can_go_before(together: Sequence[Statement], statement: Statement) -> bool:
    """Whether a number is made of nothing that a loop fills, so that the loop can go on after it."""
    arrays = {other.array for other in together}
    return (
        bool(together[0].loops)
        and statement.array not in arrays
        and all(e.array not in arrays for e in statement.reads)
    )


def _can_join(together: Sequence[Statement], statement: Statement, names: Names) -> bool:
    """Whether a statement may follow the others entry by entry: of theirs, it reads the same entry alone."""
    if statement.loops is None or statement.loops != together[0].loops or len(together) >= _MOST_TOGETHER:
        return False
    arrays = {other.array for other in together} - names.variables
    same = {other.target for other in together}
    return all(entry in same for entry in statement.reads if entry.array in arrays)


def _read_within(loops: Sequence[_Loop]) -> set[str]:
    """Arrays that a loop fills and that are read in it alone."""
    fills = Counter(s.array for loop in loops for s in loop.statements)
    readers: dict[str, set[int]] = {}
    for number, loop in enumerate(loops):
        for array in {entry.array for s in loop.statements for entry in s.reads}:
            readers.setdefault(array, set()).add(number)
    return {
        s.array
        for number, loop in enumerate(loops)
        for s in loop.statements
        if s.loops and s.array != RESULT and fills[s.array] == 1 and readers.get(s.array, set()) <= {number}
    }
