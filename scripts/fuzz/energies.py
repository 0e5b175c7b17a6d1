"""Random energies as users write them: a few models of models/*.txt, each on a part of the state, added up.

A model is a block: a head ``## name, number of parameters``; lines that make its data; ``@@``; and the body of a
function of ``x``, whose last dimension has the parameters. Of ``<<this||or that>>`` one is drawn; $K, $D, $N and $T are
sizes: of groups, dimensions, data and series.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import Template

import torch

from .functions import IMPORTS
from .programs import Program

_HELPERS = """\
def randn(*shape):
    return torch.randn(*shape, dtype=dtype)
"""
_SIZES = {"K": (2, 3, 4, 7), "D": (2, 3, 5), "N": (5, 20, 50), "T": (20, 40, 100)}
_CHOICE = re.compile(r"<<((?:(?!<<|>>).)*?\|\|(?:(?!<<|>>).)*?)>>", re.DOTALL)
_LARGEST_SLOPE, _LARGEST_MOVE = 1e5, 0.05


@dataclass(frozen=True)
class _Model:
    name: str
    parameters: str
    data: str
    body: str


def _read(text: str) -> list[_Model]:
    blocks = [block for block in re.split(r"^## ", text, flags=re.MULTILINE) if block.strip()]
    models = []
    for block in blocks:
        head, _, rest = block.partition("\n")
        name, parameters = head.rsplit(",", 1)
        data, _, body = f"\n{rest}".partition("\n@@\n")
        models.append(_Model(name, parameters.strip(), data.strip("\n"), body.strip("\n")))
    return models


MODELS = [
    model for file in sorted(Path(__file__).with_name("models").glob("*.txt")) for model in _read(file.read_text())
]


def draw_energy(seed: int, dtype: str = "both") -> Program:
    """The energy of a seed, in float32, float64 or either. All models have their turn."""
    rng = Random(seed)
    before = torch.get_default_dtype()
    try:
        for attempt in itertools.count():
            either = rng.choice(("float32", "float64"))
            first = MODELS[seed % len(MODELS)] if attempt < 20 else rng.choice(MODELS)
            others = [rng.choice(MODELS) for _ in range(rng.choice((0, 0, 1, 2)))]
            program = _written(seed, rng, either if dtype == "both" else dtype, [first, *others])
            with torch.random.fork_rng():
                slope = _slope(program)
            if slope < _LARGEST_SLOPE:
                text = program.text.replace("STEP_SIZE", repr(min(0.01, _LARGEST_MOVE / (1.0 + slope))))
                return Program(seed, text, program.dtype, program.idioms)
    finally:
        torch.set_default_dtype(before)


def _written(seed: int, rng: Random, dtype: str, models: list[_Model]) -> Program:
    terms, widths = [], []
    for number, model in enumerate(models):
        sizes = {name: rng.choice(among) for name, among in _SIZES.items()}
        data, body = (_drawn(rng, text, sizes) for text in (model.data, model.body))
        widths.append(eval(Template(model.parameters).substitute(sizes)))
        lines = textwrap.indent(f"{data}\ndef term(x):\n{textwrap.indent(body, '    ')}\nreturn term\n", "    ")
        terms.append(f"def make_term_{number}():  # {model.name}\n{lines}")
        terms.append(f"term_{number} = make_term_{number}()\n")
    particles, scheme = rng.choice((1, 3, 5, 17, 200)), rng.choice(("em", "em", "srk-ld"))
    text = "".join(
        [
            IMPORTS,
            f"dtype = torch.{dtype}\ntorch.set_default_dtype(dtype)\ntorch.manual_seed({seed})\n{_HELPERS}",
            *terms,
            f"def energy(x):\n{textwrap.indent(_sum(rng, widths), '    ')}\n",
            "sde = Langevin(FunctionPotential(energy))\n",
            f"x0 = 0.5 * torch.randn({particles}, {sum(widths)}, generator=torch.Generator().manual_seed({seed}))\n",
            f'options = dict(integrator="{scheme}", step_size=STEP_SIZE, num_steps={rng.randint(2, 4)}, '
            f"seed={rng.randrange(100)})\n",
        ]
    )
    return Program(seed, text, dtype, tuple((model.name, 0) for model in models))


def _drawn(rng: Random, text: str, sizes: dict[str, int]) -> str:
    while _CHOICE.search(text):
        text = _CHOICE.sub(lambda found: rng.choice(found[1].split("||")), text)
    return Template(text).substitute(sizes)


def _sum(rng: Random, widths: list[int]) -> str:
    """The terms, each of its own part of the state."""
    if len(widths) == 1:
        return "return term_0(x)"
    names = [f"part_{number}" for number in range(len(widths))]
    total = " + ".join(f"term_{number}({name})" for number, name in enumerate(names))
    if rng.random() < 0.5:
        return f"{', '.join(names)} = x.split({widths}, dim=-1)\nreturn {total}"
    starts = [sum(widths[:number]) for number in range(len(widths))]
    parts = [f"x[..., {start}:{start + width}]" for start, width in zip(starts, widths, strict=True)]
    return f"{', '.join(names)} = {', '.join(parts)}\nreturn {total}"


def _slope(program: Program) -> float:
    """The largest entry of the drift where a run begins; infinite if it can't be had."""
    try:
        namespace = Program(program.seed, program.text.replace("STEP_SIZE", "0.01"), "", ()).build()
        x = torch.cat((namespace["x0"], namespace["x0"].flip(0).mul(0.7), torch.zeros_like(namespace["x0"][:1])))
        slope = float(namespace["sde"].drift(0.0, x).abs().max())
    except Exception:
        return float("inf")
    return slope if slope == slope else float("inf")
