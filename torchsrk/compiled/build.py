"""Compile C once and keep the result on disk, for this process and the next."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sysconfig
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..vectors import flags_of_vectors
from .trace import CannotCompile

_FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math")
# Undefined names fail here, at the link, and not when the library is loaded.
_LINK = ("-Wl,-z,defs",) if platform.system() == "Linux" else ()


class CannotBuild(CannotCompile):
    """There is no compiler, or no place for what it makes: not the step's own doing."""


def load(source: str, flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library compiled from a source, from the cache if it was compiled before.

    Raises:
        CannotBuild: there is no compiler, it failed, or what it made can't be kept or loaded.
    """
    flags = (*flags_of_vectors(), *flags)
    key = hashlib.sha256(repr((source, _FLAGS, flags, _compiler_version(), processor())).encode()).hexdigest()[:32]
    library = cache_folder() / f"{key}.so"
    try:
        found = load_kept(key)
        if found is not None:
            return found
        _compile(source, flags, library)
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise CannotBuild(
            f"the compiled step can't be kept in {library.parent} or loaded from there ({error}): make room, or set "
            "TORCHSRK_CACHE to a folder that programs may run from"
        ) from error


def load_kept(key: str) -> ctypes.CDLL | None:
    """A library that was compiled before; None if it is not there, or not as it was made."""
    library = cache_folder() / f"{key}.so"
    if _is_whole(library):
        with suppress(OSError):  # made by a machine that this one is not: it is made again
            return ctypes.CDLL(str(library))
    return None


def read_own(path: Path) -> bytes | None:
    """A file's content; None unless it is there, a file of this user's own, and nobody else can write to it."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
            return file.read() if is_own else None
    except OSError:
        return None


def cache_folder() -> Path:
    """Where compiled steps are kept: $TORCHSRK_CACHE, else torchsrk in the user's cache folder.

    The folder is the user's own, so that nobody else can put a library there for us to load.
    """
    given = os.environ.get("TORCHSRK_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(given) if given else base / "torchsrk"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mine = folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o022
        usable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        mine = usable = False
    if mine and usable:
        return folder
    if given:
        raise CannotBuild(f"TORCHSRK_CACHE={given} is not a folder that this user owns, can write to and others cannot")
    return _temporary_folder()


@cache
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="torchsrk-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _compile(source: str, flags: tuple[str, ...], library: Path) -> None:
    """Compile beside the target and move it there in one piece, so that a killed process leaves no half library."""
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as folder:
        text, made = Path(folder, "step.c"), Path(folder, "step.so")
        text.write_text(source)
        message = ""
        # glibc's vector functions where they are, lane by lane where not.
        for mathematics in (("-DVECTOR_MATH", "-lmvec", "-lm"), ("-lm",)):
            command = [*_compiler(), *_FLAGS, *_LINK, "-o", str(made), str(text), *mathematics, *flags]
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
            if outcome.returncode == 0:
                made.chmod(0o700)  # whatever the compiler was let do: see read_own
                with made.open("ab") as file:
                    file.write(hashlib.sha256(made.read_bytes()).digest())
                os.replace(text, library.with_suffix(".c"))  # for people: see ``explain``
                os.replace(made, library)
                return
            lines = outcome.stderr.strip().splitlines() or ["no message"]
            message = next((line for line in lines if "error" in line), lines[0])
        raise CannotBuild(f"the C compiler {_compiler()[0]} failed: {message}")


def _is_whole(library: Path) -> bool:
    """Whether the file is there and ends in the digest of the rest: to load half a library is to crash."""
    content = read_own(library)
    return content is not None and hashlib.sha256(content[:-32]).digest() == content[-32:]


@cache
def _compiler() -> tuple[str, ...]:
    for name in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        words = shlex.split(name or "")
        if words and shutil.which(words[0]):
            return (words[0],)
    raise CannotBuild("no C compiler was found: install one (gcc or clang), or set CC")


@cache
def _compiler_version() -> str:
    outcome = subprocess.run([*_compiler(), "--version"], capture_output=True, text=True, check=False)
    return outcome.stdout


@cache
def processor() -> str:
    """What -march=native depends on: a cache may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
