"""The scripts a user starts with run, at a small size, and leave what they say."""

import subprocess
from pathlib import Path

from tests import forks

SCRIPTS = Path(__file__).parent.parent / "scripts"


def bench(*arguments: str) -> subprocess.CompletedProcess:
    return forks.run(SCRIPTS / "bench" / "__main__.py", *arguments)


def test_check_noise():
    done = forks.run(SCRIPTS / "check_noise.py", "1000000")
    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith("0 failed")


def test_tune_large():
    done = forks.run(SCRIPTS / "tune_large.py", "--dim", "20", "--particles", "100")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("means within") == 2


def test_bench_without_the_peers(tmp_path):
    """The workers, the turns and the report, as far as they need no other library."""
    tables = ("--only", "noise-bound", "--only", "compile-time")
    done = bench("--quick", "--rounds", "2", *tables, "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "bench-quick" / "BENCHMARKS.md").read_text(encoding="utf-8")
    assert report.strip() == done.stdout.strip()
    assert "## The noise alone" in report
    assert "failed" not in report
    units = sorted((tmp_path / "bench-quick" / "noise-bound" / "units").iterdir())
    assert len(units) == 4
    units[0].unlink()
    written = units[1].stat().st_mtime_ns
    done = bench("--quick", "--rounds", "2", *tables[:2], "--output", str(tmp_path), "--resume")
    assert done.returncode == 0, done.stderr
    assert (units[0].exists(), units[1].stat().st_mtime_ns) == (True, written)  # the rest is not measured again
    assert "## Compilation" in done.stdout
    done = bench("--quick", "--rounds", "3", *tables[:2], "--output", str(tmp_path), "--resume")
    assert done.returncode == 1
    assert "different are: rounds" in done.stderr


def test_bench_refuses_nonsense(tmp_path):
    done = bench("--rounds", "1", "--output", str(tmp_path))
    assert done.returncode == 2
    assert "--rounds must be at least 2; got 1" in done.stderr


def test_bench_tells_of_a_contender_that_is_not_there():
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import problems
from cases import Case, Entry
from crew import Crew
if __name__ == "__main__":
    with Crew(2, 0.01, 1.0, {}) as crew:
        case = Case(problems.mixture(2), 10)
        outcomes = crew.race([Entry(name, name, case) for name in ("torchsrk eager", "nobody")])
    print(len(outcomes["torchsrk eager"].seconds), outcomes["nobody"].failed)
"""
    done = forks.run(code, str(SCRIPTS / "bench"))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split(maxsplit=1)[0]) >= 2
    assert "nobody" in done.stdout
