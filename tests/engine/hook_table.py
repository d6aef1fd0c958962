"""The table of hooks against the source of any vLLM: ``python -m tests.engine.hook_table FOLDER_OR_WHEEL...``.

Nothing is installed or imported. It checks that every name is there that adaptk looks at, that the methods which it
wraps take the arguments which it passes on, that vLLM does things in the order which adaptk builds upon, and that
whatever differs between versions does so where adaptk thinks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from adaptk.vllm_plugin import compat
from tests.engine.hook_facts import BOUNDS, FUNCTIONS, OPTIONAL, ORDERS, READ, SIGNATURES, Bound, Order
from tests.engine.sources import Tree, mentions, reader


def lacking(tree: Tree) -> list[str]:
    """Everything that adaptk needs and ``tree`` has not, or has otherwise; empty where adaptk fits."""
    return list(dict.fromkeys([*_names(tree), *_functions(tree), *_signatures(tree), *_orders(tree), *_bounds(tree)]))


def _names(tree: Tree) -> list[str]:
    missing = []
    for table, instance in ((compat.HOOKS, False), (READ, True)):
        for module, owner, names in table:
            if tree.find_class(module, owner) is None:
                missing.append(f"{module}.{owner} is not there")
                continue
            there = tree.members(module, owner, instance=instance)
            missing += [f"{owner}.{name} is not there" for name in names if name not in there]
    return missing


def _functions(tree: Tree) -> list[str]:
    return [
        f"{name} is in none of {', '.join(modules)}"
        for name, modules in FUNCTIONS
        if not any(name in tree.functions(module) for module in modules)
    ]


def _signatures(tree: Tree) -> list[str]:
    wrong = []
    for module, owner, method, expected in SIGNATURES:
        function = tree.function(module, owner, method)
        if function is None:
            wrong += [] if method in OPTIONAL else [f"{owner}.{method} is not there"]
            continue
        arguments = function.args
        given = tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
        if given != expected:
            wrong.append(f"{owner}.{method} takes ({', '.join(given)}) and not ({', '.join(expected)})")
    return wrong


def _orders(tree: Tree) -> list[str]:
    return [said for order in ORDERS if (said := _order(tree, order)) is not None]


def _order(tree: Tree, order: Order) -> str | None:
    function = tree.function(order.module, order.owner, order.method)
    where = f"{order.owner}.{order.method}"
    if function is None:
        return f"{where} is not there"
    first, then = mentions(function, order.first), mentions(function, order.then)
    for name, found in ((order.first, first), (order.then, then)):
        if not found:
            return None if name == order.optional else f"{where} does not mention {name}: {order.why}"
    return None if first[0] < then[0] else f"{where} has {order.then} before {order.first}: {order.why}"


def _bounds(tree: Tree) -> list[str]:
    _, minor = compat.version_tuple(tree.version)
    if tree.version == "unknown":
        return []  # which side of a bound it lies on cannot be told
    wrong = []
    for bound in BOUNDS:
        expected = bound.since <= minor < bound.until
        if _has(tree, bound) != expected:
            place = f"{bound.owner}.{bound.inside or bound.name}" + (f" with {bound.name}" if bound.inside else "")
            until = f" and before 0.{bound.until}" if bound.until < 10_000 else ""
            wrong.append(
                f"{place} is {'not there' if expected else 'there'}: it was held to be from 0.{bound.since} on{until}"
            )
    return wrong


def _has(tree: Tree, bound: Bound) -> bool:
    if not bound.inside:
        return bound.name in tree.members(bound.module, bound.owner, instance=True)
    function = tree.function(bound.module, bound.owner, bound.inside)
    return function is not None and bool(mentions(function, bound.name))


def main(places: Sequence[str]) -> int:
    """One line for each place, and one for each thing that is lacking there; 1 if anything is."""
    if not places:
        print("name folders that hold a package vllm, wheels or source archives of it", file=sys.stderr)
        return 2
    status = 0
    for place in places:
        try:
            tree = Tree(reader(Path(place)))
        except (OSError, FileNotFoundError) as error:
            print(error, file=sys.stderr)
            status = 2
            continue
        missing = lacking(tree)
        print(f"vLLM {tree.version}: {f'{len(missing)} things differ' if missing else 'as adaptk needs it'}")
        for line in missing:
            print(f"  {line}")
        status = max(status, int(bool(missing)))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
