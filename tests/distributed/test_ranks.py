"""Four processes, and groups of one to four of them, give what one process gives."""

from pathlib import Path

import pytest

from .crew import run_crew


@pytest.mark.long
def test_every_number_is_that_of_one_process(tmp_path: Path) -> None:
    found = run_crew("tests.distributed.same_bits", 4, tmp_path, timeout=300.0)
    failed = [f"rank {rank}, {case}: {end}" for rank, ends in enumerate(found) for case, end in ends.items()]
    assert len(failed) > 4
    assert not (wrong := [line for line in failed if not line.endswith(": passed")]), "\n".join(wrong)
