"""Programs in processes of their own that start with torch imported: forks of a server that has done nothing else.

An import of torch takes seconds, and tests start many processes. What is about imports, or about what the interpreter
reads at its start, takes ``subprocess`` instead.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

# Once for all: the first process that is started fixes them.
_IMPORTED = [
    *("torchsrk", "torchsrk.cli", "torchsrk.experiments.asymptotic", "torchsde"),
    *("torch._dynamo", "scipy.stats", "ot", "matplotlib.pyplot"),  # torch.optim loads the first
]


# The command, as a program.
TORCHSRK = "import sys; from torchsrk.cli import main; sys.exit(main(sys.argv[1:]))"


class Fork:
    """A program that runs, whose output is kept in files."""

    def __init__(self, program: str | Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_IMPORTED)
        self._folder = tempfile.TemporaryDirectory(prefix="fork-")
        self._files = [str(Path(self._folder.name, name)) for name in ("stdout", "stderr")]
        environment = dict(os.environ) if environment is None else environment
        self._process = context.Process(target=_run, args=(program, [*arguments], environment, self._files))
        self._process.start()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> subprocess.CompletedProcess[str]:
        self._process.kill()
        return self.ended()

    def ended(self) -> subprocess.CompletedProcess[str]:
        """When it has: its code, negative for the signal that ended it, and all it said."""
        self._process.join()
        assert self._process.exitcode is not None
        with self._folder:
            said = [Path(file).read_text(encoding="utf-8") if Path(file).exists() else "" for file in self._files]
        return subprocess.CompletedProcess((), self._process.exitcode, *said)


def run(
    program: str | Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return Fork(program, *arguments, environment=environment).ended()


def _run(program: str | Path, arguments: list[str], environment: dict[str, str], files: list[str]) -> None:
    """As the interpreter runs a file, or text after -c; processes that it starts itself find it as usual."""
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    main = sys.modules["__main__"] = sys.modules["__mp_main__"] = ModuleType("__main__")
    text, name = program, "-c"
    if isinstance(program, Path):
        text, name = program.read_text(encoding="utf-8"), str(program)
        sys.path.insert(0, str(program.parent))
        main.__file__ = name
    sys.argv = [name, *arguments]
    exec(compile(text, name, "exec"), main.__dict__)
