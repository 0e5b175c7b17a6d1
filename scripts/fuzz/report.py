"""What a run of the fuzzer found, as text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from .programs import draw_program
from .workers import Draw, Result

BAD = ("wrong", "crash", "timeout")


def normalised(reason: str) -> str:
    """A reason without the numbers and names of one program, so that its kind can be counted."""
    reason = re.sub(r"(?<=failed: )\S*/(?=[^/]*\.c\b)", "", reason)  # the folder of a build
    reason = re.sub(r"\bv?\d+(\.\d+)?(e-?\d+)?\b", "#", reason)
    return re.sub(r"(#, )+#", "#", reason).strip()[:200]


def written(results: Sequence[Result], dtype: str, seconds: float, draw: Draw = draw_program) -> str:
    """The report: counts, reasons, and every program that went wrong with its source."""
    kinds = Counter(result.kind for result in results)
    total = max(1, len(results))
    reasons: dict[str, list[int]] = defaultdict(list)
    for result in results:
        if result.kind == "eager":
            reasons[normalised(result.detail)].append(result.seed)
    lines = [
        f"{len(results)} programs in {seconds:.0f} s, {60 * len(results) / max(seconds, 1e-9):.0f} a minute: "
        f"{kinds['compiled'] / total:.1%} compiled and right, {kinds['eager'] / total:.1%} eager, "
        f"{kinds['raises'] / total:.1%} raise either way, " + ", ".join(f"{kinds[kind]} {kind}" for kind in BAD)
    ]
    if reasons:
        lines += ["", "Eager, by reason, with the seeds of some:"]
        for reason, seeds in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
            lines.append(f"{len(seeds):6d}  {reason}  ({', '.join(map(str, sorted(seeds)[:3]))})")
    for kind in BAD:
        lines += _programs(kind, (result for result in results if result.kind == kind), dtype, draw)
    return "\n".join(lines) + "\n"


def _programs(kind: str, results: Iterable[Result], dtype: str, draw: Draw) -> list[str]:
    lines = []
    for result in sorted(results, key=lambda result: result.seed):
        text = draw(result.seed, dtype).text
        lines += ["", f"=== {kind}: program {result.seed}: {result.detail}", text.rstrip()]
    return lines
