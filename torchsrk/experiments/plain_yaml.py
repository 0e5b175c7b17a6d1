"""YAML of plain values; apart from what else configs are about, so that only what reads or writes YAML needs PyYAML."""

from __future__ import annotations

import re
from typing import Any

from ..extras import missing

try:
    import yaml
except ImportError as error:
    raise missing("PyYAML", "experiments") from error

NotPlain = yaml.YAMLError


class PlainLoader(yaml.SafeLoader):
    """Values alone. An alias may stand for itself or for a billion others, a tag asks for a class: both are refused."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.YAMLError(f"anchors and aliases are not read, {event.start_mark}")
        if getattr(event, "tag", None) is not None:
            raise yaml.YAMLError(f"tags such as {event.tag!r} are not read, {event.start_mark}")
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node: Any) -> int:
        """YAML 1.1 has octal numbers with a leading 0 and minutes with a colon: nobody means them."""
        if not re.fullmatch(r"[-+]?(0|[1-9][0-9_]*)", node.value):
            raise yaml.YAMLError(f"{node.value} is no decimal number, {node.start_mark}")
        return int(node.value)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.tag.endswith(":str"):
                raise yaml.YAMLError(f"keys are words, {key.start_mark}")
            if key.value in seen:
                raise yaml.YAMLError(f"the key {key.value!r} is there twice, {key.start_mark}")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_yaml_int)


def read(text: str) -> Any:
    """The values in a text."""
    return yaml.load(text, Loader=PlainLoader)


def written(value: Any) -> str:
    """A text with the values."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
