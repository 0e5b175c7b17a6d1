"""What CONTRIBUTING.md shows does what it says: its diffs are taken out of the page and run."""

import importlib.util
import math
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.integrators.test_laws import error_of_law
from tests.problems import mixture
from torchsrk import Integrator, Langevin, integrators, metrics, potentials
from torchsrk.brownian import Increment
from torchsrk.cli import main
from torchsrk.integrators import base
from torchsrk.reference import strong_order

ROOT = Path(__file__).parent.parent
PACKAGES = {package.__name__.rsplit(".", 1)[1]: package for package in (integrators, potentials, metrics)}


def added():
    """The lines that each file gets, by its path."""
    files, path = {}, None
    inside = False
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```diff"
        elif inside and line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
        elif inside and line.startswith("+"):
            files.setdefault(path, []).append(line[1:])
    return {path: "\n".join(lines) + "\n" for path, lines in files.items()}


def module_of(path, tmp_path, monkeypatch):
    """A new file of the package, as if it stood there."""
    package, name = path.split("/")[1], Path(path).stem
    (tmp_path / f"{name}.py").write_text(added()[path], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"{PACKAGES[package].__name__}.{name}", tmp_path / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def heun(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    return module_of("torchsrk/integrators/heun.py", tmp_path, monkeypatch).Heun


def test_the_scheme_has_the_orders_that_it_claims(heun):
    scheme = heun()
    errors = [error_of_law(scheme, h) for h in (0.04, 0.02)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(scheme.law_order, abs=0.15), errors
    target = mixture(2)
    x0 = target.sample((500,), seed=1)
    settings = {"t1": 1.0, "num_steps": (8, 16, 32), "fine_steps": 512, "seed": 0}
    measured = strong_order(scheme, Langevin(target), x0, **settings)
    assert measured.order == pytest.approx(scheme.strong_order_additive, abs=0.15), measured


def test_the_guides_scheme_is_the_same(heun):
    guide = (ROOT / "docs" / "guides" / "your-own.md").read_text(encoding="utf-8")
    source = re.search(r"^class Heun\(Integrator\):\n(?:    .*\n|\n)+", guide, flags=re.MULTILINE).group()
    base._REGISTRY.pop("heun")
    names = {"__name__": "guide", "Integrator": Integrator, "Needs": heun.needs.__class__}
    exec(compile(source, "your-own.md", "exec"), names)
    other = names["Heun"]
    facts = ("strong_order", "strong_order_additive", "law_order", "noise_types", "needs", "gradients_per_step")
    assert [getattr(other, fact) for fact in facts] == [getattr(heun, fact) for fact in facts]
    x, sde = torch.linspace(-2.0, 2.0, 20).view(10, 2), Langevin(mixture(2))
    steps = [scheme().step(sde, 0.0, x, Increment(0.3, x.cos())) for scheme in (heun, other)]
    torch.testing.assert_close(*steps)


def test_the_scheme_has_a_row_that_says_the_same(heun):
    rows = [line for text in added().values() for line in text.splitlines() if line.startswith('| `Heun`, "heun" |')]
    assert [row.split("|")[3].strip() for row in rows] == [str(heun.gradients_per_step)]
    assert [row.split("|")[4].strip() for row in rows] == [f"{heun.strong_order:g}, {heun.law_order:g}"]


def test_the_potential(tmp_path, monkeypatch):
    ring = module_of("torchsrk/potentials/ring.py", tmp_path, monkeypatch).Ring
    (row,) = added()["tests/problems.py, potentials()"].splitlines()
    made, dim = eval(f"{{{row}}}", {"Ring": ring})["ring"]
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert x.shape[-1] == dim
    torch.testing.assert_close(made(x), torch.tensor([0.0, 2.0]))
    torch.testing.assert_close(made.grad(x), torch.tensor([[0.0, 0.0], [0.0, 4.0]]))
    with pytest.raises(ValueError, match=r"positive numbers; got 3\.0 and -1"):
        ring(3.0, -1)


def test_the_metric_can_be_imported(tmp_path, monkeypatch):
    distance = module_of("torchsrk/metrics/my_distance.py", tmp_path, monkeypatch).my_distance_squared
    assert "points, dim" in distance.__doc__


def test_the_experiment_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(added()["torchsrk/configs/mine.yaml"], encoding="utf-8")
    for profile in ("quick", "full"):
        assert main(["run", "mine.yaml", "--profile", profile, "--print_config"]) == 0
        shown = yaml.safe_load(capsys.readouterr().out)["settings"]
        assert [target["particles"] for target in shown["targets"]] == [4000]
    cheap = "[{kind: mixture, dim: 2, tolerance: 0.3, particles: 200, many: 400}]"
    assert main(["run", "mine.yaml", "--settings.targets", cheap, "--output", "out"]) == 0
    assert "baoab" in Path("out/errors.csv").read_text(encoding="utf-8")
