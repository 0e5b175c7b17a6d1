"""Random SDEs compiled and run beside eager runs: ``python scripts/fuzz_compiled.py --programs 5000 --seed 0``.

A program is a seed: ``--only SEED`` runs one again and shows it. The exit code is 1 if any was wrong, crashed or took
too long. ``--energies`` draws models as users write them, where the others go to the edges of what compiles.
``--sanitize`` builds the generated C and the noise kernel with AddressSanitizer and UBSan.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from fuzz.energies import draw_energy
from fuzz.programs import draw_program
from fuzz.report import BAD, written
from fuzz.sanitizers import Sanitized
from fuzz.workers import examine_all


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first program")
    parser.add_argument("--energies", action="store_true", help="energies as users write them")
    parser.add_argument("--dtype", choices=("float32", "float64", "both"), default="both")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, metavar="SEED", help="run this program alone, and show it")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report to a file as well")
    parser.add_argument("--sanitize", action="store_true", help="build with AddressSanitizer and UBSan")
    parser.add_argument(
        "--timeout", type=float, help="seconds a program; 30 by default, 60 for energies, 120 with --sanitize"
    )
    options = parser.parse_args()
    if options.programs < 1 or options.jobs < 1:
        parser.error("--programs and --jobs must be at least 1")
    return options


def main() -> int:
    options = parse()
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.programs)
    draw = draw_energy if options.energies else draw_program
    if options.only is not None:
        print(draw(options.only, options.dtype).text)
    # One core each: jobs share the machine.
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    start, results = time.perf_counter(), []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ["TORCHSRK_CACHE"] = str(Path(folder, "cache"))
        setup = Sanitized.prepared(Path(folder)) if options.sanitize else None
        how = {"dtype": options.dtype, "jobs": options.jobs, "draw": draw}
        how["timeout"] = options.timeout or (120 if setup else 60 if options.energies else 30)
        with tqdm(total=len(seeds), unit="program") as bar:
            for result in examine_all(seeds, folder=Path(folder), setup=setup, **how):
                results.append(result)
                if result.kind in BAD:
                    bar.write(f"{result.kind}: program {result.seed}: {result.detail}")
                bar.update()
                bar.set_postfix({kind: sum(r.kind == kind for r in results) for kind in BAD}, refresh=False)
    report = written(results, options.dtype, time.perf_counter() - start, draw)
    print(report)
    if options.report is not None:
        options.report.write_text(report, encoding="utf-8")
    return int(any(result.kind in BAD for result in results))


if __name__ == "__main__":
    sys.exit(main())
