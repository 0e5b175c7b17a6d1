"""What the names in braces of an idiom become: values at hand, indices that fit them, constants."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from torch import Tensor


class Unavailable(Exception):
    """Nothing at hand fits the idiom; the message is the group of those that would make it."""


class Names(dict[str, str]):
    """The names of one statement, each drawn when the idiom first asks for it.

    Args:
        values: variables so far, on an example.
        leading: how many dimensions of the example are particles.
        colon: whether the user writes ``x[:, i]`` rather than ``x[..., i]``.
        start: the number of the first constant that may be made here.
    """

    def __init__(
        self, rng: Random, values: dict[str, Tensor], dtype: str, leading: int, colon: bool, start: int
    ) -> None:
        super().__init__(dtype=dtype)
        self._rng, self._values, self._leading, self._colon, self._start = rng, values, leading, colon, start
        self.constants: list[str] = []  # lines

    def __missing__(self, name: str) -> str:
        self[name] = getattr(self, f"_{name}")()
        return self[name]

    # Values.

    def _of(self, rank: int, most: int = 9, state_dtype: bool = True) -> str:
        able = [
            name
            for name, value in self._values.items()
            if rank <= value.ndim - self._leading <= most and (f"{value.dtype}" == self["dtype"]) == state_dtype
        ]
        if not able:
            raise Unavailable("matrices" if state_dtype else "others")
        # Later values hold more of the program.
        return self._rng.choices(able, [1 + place**2 for place in range(len(able))])[0]

    def _a(self) -> str:
        return self._of(1)

    def _b(self) -> str:
        shape = self._values[self["a"]].shape
        same = [n for n, v in self._values.items() if v.shape == shape and f"{v.dtype}" == self["dtype"]]
        return self._rng.choice(same)

    def _s(self) -> str:
        with suppress(Unavailable):
            return self._of(0, 0)
        return f"{self['a']}[..., 0]"

    def _m(self) -> str:
        return self._of(2)

    def _q(self) -> str:
        return self._of(0, state_dtype=False)

    # Sizes and places in the last dimension of a, and in the last two of m.

    @property
    def _size(self) -> int:
        return self._values[self["a"]].shape[-1]

    def _n(self) -> str:
        return str(self._size)

    def _all(self) -> str:
        plain = self._values[self["a"]].ndim == self._leading + 1
        return ":" if self._colon and plain else "..."

    def _j0(self) -> str:
        return str(self._rng.randrange(self._size))

    def _i(self) -> str:
        return str(self._rng.randrange(-self._size, self._size))

    def _upto(self) -> str:
        return str(self._rng.randint(1, self._size))

    def _slice(self) -> str:
        n = self._size
        start, step = self._rng.randrange(-n, n), self._rng.choice((1, 1, 2, 3))
        forms = (f"{start}:", f":{max(1, start)}", f"{start}::{step}", f"::{step}", f"{start % n}:{n + 2}")
        return self._rng.choice(forms)

    def _start2(self) -> str:
        return str(self._rng.randrange(self._size))

    def _slice2(self) -> str:
        return f"{self['start2']}:"

    def _places_of(self, low: int, most: int) -> list[int]:
        return [self._rng.randrange(low, self._size) for _ in range(self._rng.randint(1, most))]

    def _list(self) -> str:
        return str(self._places_of(-self._size, self._size + 1))

    def _list2(self) -> str:
        return str([self._rng.randrange(-self._size, self._size) for _ in range(2)])

    def _list_plus(self) -> str:
        return str(self._places_of(0, self._size + 1))

    def _perm(self) -> str:
        chosen = self._rng.sample(range(self._size), self._rng.randint(1, self._size))
        return str([place - self._size * (self._rng.random() < 0.5) for place in chosen])

    def _perm0(self) -> str:
        return "[0]"

    def _mi(self) -> str:
        rows = self._values[self["m"]].shape[-2]
        return str(self._rng.randrange(-rows, rows))

    def _mj(self) -> str:
        columns = self._values[self["m"]].shape[-1]
        return str(self._rng.randrange(-columns, columns))

    def _mr(self) -> str:
        return str(self._values[self["m"]].shape[-2])

    def _mk(self) -> str:
        return str(min(self._values[self["m"]].shape[-2:]))

    def _other(self) -> str:
        return "torch.float64" if self["dtype"] == "torch.float32" else "torch.float32"

    # Numbers.

    def _c(self) -> str:
        return str(self._rng.choice((0.5, -0.5, 2.0, -1.0, 0.1, 1.0, 0.0, round(self._rng.uniform(-2, 2), 3))))

    def _p(self) -> str:
        return str(self._rng.choice((0.5, 1.0, 2.0, round(self._rng.uniform(0.3, 3), 3))))

    def _k(self) -> str:
        return str(self._rng.choice((1, 2, 3)))

    def _floats(self) -> str:
        return str([round(self._rng.uniform(-1.5, 1.5), 3) for _ in range(self._size)])

    # Constants that stand before the function.

    def _constant(self, text: str = "") -> str:
        name = f"C{self._start + len(self.constants)}"
        self.constants.append(f"{name} = {text}" if text else "")
        return name

    def _K(self) -> str:
        return self._constant()

    def _L(self) -> str:
        return self._constant()

    def _row(self) -> str:
        return self._constant(f"torch.tensor({self._floats()}, dtype={self['dtype']})")

    def _square(self) -> str:
        return self._constant(f"0.5 * torch.randn({self._size}, {self._size}, dtype={self['dtype']})")

    def _matrix(self) -> str:
        return self._constant(f"0.5 * torch.randn({self._size}, {self._rng.randint(1, 4)}, dtype={self['dtype']})")

    def _array(self) -> str:
        return self._constant(f'np.array({self._floats()}, dtype="{self["dtype"].removeprefix("torch.")}")')

    def _mask(self) -> str:
        return self._constant(f"torch.tensor({self._masklist()})")

    def _masklist(self) -> str:
        drawn = [self._rng.random() < 0.6 for _ in range(self._size)]
        drawn[self._rng.randrange(self._size)] = True
        return str(drawn)

    def _places(self) -> str:
        return self._constant(f"torch.tensor({self._places_of(0, self._size)})")

    def _signed(self) -> str:
        return self._constant(f"torch.tensor({self._places_of(-self._size, self._size)})")

    def _distinct(self) -> str:
        return self._constant(f"torch.tensor({self._rng.sample(range(self._size), self._rng.randint(1, self._size))})")
