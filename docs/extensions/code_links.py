"""Names in ``code`` lead to their entry in the API: ``Chain``, ``sample(thin=10)``."""

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes

# ``sample((n,))`` is a method of a distribution
_NAME = re.compile(r"^(?:torchsrk\.)?([A-Za-z_][\w.]*)(?:\((?!\().*\))?$")
_EVERYDAY = {"chunk", "estimated", "gather", "mean", "plus", "shard", "start"}
_EVERYDAY |= {"certified", "cheng", "covariance", "quantiles", "registered", "variance"}
_KINDS = ("class", "function", "exception", "data")
_MEMBERS = ("method", "property", "attribute", "staticmethod", "classmethod")


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True}


def entries(app: Any) -> dict[str, tuple[str, str]]:
    """Page and anchor by every ending of a dotted name that has one meaning.

    Functions with everyday names need their module: ``distributed.mean``.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for name, entry in app.env.domaindata["py"]["objects"].items():
        parts = name.split(".")
        least = 1 if entry.objtype in _KINDS else 2
        if entry.objtype not in (*_KINDS, *_MEMBERS):
            continue
        if parts[-1] in _EVERYDAY:
            least = 2
        for count in range(least, len(parts)):
            goal = (entry.docname, entry.node_id)
            found.setdefault(".".join(parts[-count:]), set()).add(goal)
    return {name: goals.pop() for name, goals in found.items() if len(goals) == 1}


def own_members(node: nodes.Node) -> set[str]:
    """The arguments and members of what a docstring describes: these are meant."""
    names: set[str] = set()
    while node is not None:
        if isinstance(node, addnodes.desc):
            for signature in node.findall(addnodes.desc_signature):
                names.add(signature.get("fullname", "").rsplit(".", 1)[-1])
            for parameter in node.findall(addnodes.desc_parameter):
                names.update(re.findall(r"\w+", parameter.astext())[:1])
        node = node.parent
    return names


def link(app: Any, doctree: nodes.document, docname: str) -> None:
    known = {} if docname == "contributing" else entries(app)
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, (nodes.reference, nodes.title)):
            continue
        found = _NAME.match(literal.astext())
        goal = known.get(found[1]) if found else None
        if goal is None or found[1] in own_members(literal):
            continue
        page, anchor = goal
        uri = app.builder.get_relative_uri(docname, page)
        reference = nodes.reference(
            "", "", internal=True, refuri=f"{uri if page != docname else ''}#{anchor}"
        )
        literal.replace_self(reference)
        reference += literal
