"""Configs: right ones come back as they were, wrong ones are one clear error that names file, key and way out."""

import math
import time
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchsrk.experiments.config import (
    ConfigError,
    Count,
    Positive,
    build,
    merge,
    parse_overrides,
    parse_yaml,
    plain,
    read_yaml,
    to_yaml,
)


@dataclass(frozen=True)
class Inner:
    kind: Literal["mixture", "regression"]
    dim: Count = 2


@dataclass(frozen=True)
class Outer:
    particles: Count
    step_sizes: tuple[Positive, ...]
    targets: tuple[Inner, ...] = (Inner("mixture"),)
    name: str = "a"
    flag: bool = False
    limit: Count | None = None


GOOD = "particles: 5\nstep_sizes: [0.1, 1e-3, 2]\ntargets: [{kind: regression, dim: 20}]\nflag: true\n"


def test_a_config_comes_back():
    outer = build(Outer, parse_yaml(GOOD, "a"), file="a")
    assert outer == Outer(5, (0.1, 0.001, 2.0), (Inner("regression", 20),), flag=True)
    assert build(Outer, parse_yaml(to_yaml(outer), "a"), file="a") == outer
    assert plain(outer)["targets"] == [{"kind": "regression", "dim": 20}]


def test_a_word_of_three_letters_is_no_slip_of_another():
    with pytest.raises(ConfigError, match=r"device: expected one of auto, cpu, cuda; got 'gpu'"):
        build(Literal["auto", "cpu", "cuda"], "gpu", file="a", key="device")


WRONG = {
    "unknown key": ("particels: 5\nstep_sizes: [1]", r"particels: there is no such key \(did you mean particles\?\)"),
    "nested key": (
        "particles: 5\nstep_sizes: [1]\ntargets: [{kin: mixture}]",
        r"targets\[0\]\.kin: there is no such key",
    ),
    "missing": ("step_sizes: [1]", "particles: this key is missing"),
    "text for a number": (
        "particles: many\nstep_sizes: [1]",
        r"particles: expected a whole number; got 'many' \(str\)",
    ),
    "fraction": ("particles: 2.5\nstep_sizes: [1]", "particles: expected a whole number"),
    "flag for a number": ("particles: true\nstep_sizes: [1]", "particles: expected a whole number"),
    "zero": ("particles: 0\nstep_sizes: [1]", "particles: expected a number from 1 to 1e"),
    "huge": (f"particles: {10**30}\nstep_sizes: [1]", "particles: expected a number from 1 to 1e"),
    "negative": ("particles: 5\nstep_sizes: [0.1, -1]", r"step_sizes\[1\]: expected a number above 0"),
    "infinite": ("particles: 5\nstep_sizes: [.inf]", r"step_sizes\[0\]: expected a finite number"),
    "nan": ("particles: 5\nstep_sizes: [.nan]", r"step_sizes\[0\]: expected a finite number"),
    "huge float": ("particles: 5\nstep_sizes: [1e999]", r"step_sizes\[0\]: expected a finite number"),
    "number for a list": ("particles: 5\nstep_sizes: 1", r"step_sizes: expected a list, such as \[1, 2\]"),
    "empty list": ("particles: 5\nstep_sizes: []", "step_sizes: expected a list"),
    "nothing": ("particles:\nstep_sizes: [1]", "particles: expected a whole number; got None"),
    "choice": ("particles: 5\nstep_sizes: [1]\ntargets: [{kind: mixtur}]", r"did you mean mixture\?"),
    "list for a mapping": (
        "particles: 5\nstep_sizes: [1]\ntargets: [[1]]",
        r"targets\[0\]: expected `key: value` lines",
    ),
    "text for a flag": ("particles: 5\nstep_sizes: [1]\nflag: 1", "flag: expected true or false"),
    "number for text": ("particles: 5\nstep_sizes: [1]\nname: 3", "name: expected text"),
    "a date": ("particles: 2020-01-01\nstep_sizes: [1]", "particles: expected a whole number"),
    "list as a config": ("- 1", "expected `key: value` lines"),
    "empty": ("", "expected `key: value` lines; got None"),
}
NOT_PLAIN = {
    "python tag": "a: !!python/object/apply:os.system ['touch ran']",
    "python name": "a: !!python/name:os.system",
    "own tag": "a: !run 3",
    "standard tag": "a: !!str 3",
    "anchor": "a: &x 1\nb: 2",
    "missing anchor": "a: *x",
    "cyclic anchor": "a: &x [*x]",
    "merge": "a: &x {b: 1}\nc: {<<: *x}",
    "billion laughs": "a: &a [1,1]\nb: &b [*a,*a]\nc: [*b,*b]",
    "key twice": "a: 1\na: 2",
    "number as a key": "1: 2",
    "flag as a key": "on: 2",
    "unclosed": "a: [1, 2",
    "tab": "a:\n\t- 1",
    "two documents": "a: 1\n---\nb: 2",
    "list as a key": "[1, 2]: 3",
    "control character": "a: \x00",
    "a date that is none": "a: 2020-99-99",
    "very deep": "a: " + "[" * 5000,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_one_clear_error(tmp_path, name):
    text, message = WRONG[name]
    file = tmp_path / "some.yaml"
    file.write_text(text, encoding="utf-8")
    start = time.process_time()
    with pytest.raises(ConfigError, match=message) as error:
        build(Outer, read_yaml(file), file=str(file))
    assert str(error.value).startswith(str(file))
    assert len(str(error.value)) < 500
    assert time.process_time() - start < 2


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "some.yaml"
    file.write_text(NOT_PLAIN[name], encoding="utf-8")
    start = time.process_time()
    with pytest.raises(ConfigError, match="not plain YAML"):
        read_yaml(file)
    assert time.process_time() - start < 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["some.yaml"]


def test_files_that_are_no_text(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        read_yaml(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="can't be read"):
        read_yaml(tmp_path)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="can't be read"):
        read_yaml(tmp_path / "binary")
    (tmp_path / "long").write_text("a: 1\n" + "#" * (1 << 20))
    with pytest.raises(ConfigError, match="at most 1048576 bytes"):
        read_yaml(tmp_path / "long")


def attempt(text):
    """The message of the error, if there is one."""
    try:
        build(Outer, parse_yaml(text, "a"), file="a")
    except ConfigError as error:
        return str(error)
    return "a: "


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    assert attempt(text).startswith("a: ")


@given(st.text(alphabet="abpes:_ -[]{}&*!|>#'\"\n\t.0123456789,", max_size=80))
def test_any_text_of_yamls_own_signs_is_read_or_refused(text):
    assert attempt(GOOD + text).startswith("a: ")


def test_overrides():
    assert parse_overrides(["--a.b", "3", "--c=[1, 2]", "--a.d", "1e-3"]) == {"a": {"b": 3, "d": "1e-3"}, "c": [1, 2]}
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 5}}) == {"a": {"b": 5, "c": 2}, "d": 3}
    for arguments, message in (
        (["a"], "expected --key value"),
        (["--a"], "expected a value"),
        (["--"], "expected --key"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse_overrides(arguments)
    assert math.isclose(build(float, "1e-3", file="a", key="b"), 1e-3)
