"""mutmut's mutants of a module, and a draw among them."""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutation.targets import Target


class Mutant(NamedTuple):
    """One mutated module; the function that was changed by its qualified name, and the lines of the statement."""

    module: str
    function: str
    lines: range
    source: str
    diff: str

    @property
    def key(self) -> str:
        """Another one for each mutant, the same in every run."""
        return sha256(self.source.encode()).hexdigest()[:16]


class Mutations:
    """What mutmut would change in a module, in the order of the source.

    In functions and methods without decorators; not in annotations, docstrings, or calls of ``len`` and ``isinstance``.
    """

    def __init__(self, target: Target, root: Path) -> None:
        import libcst as cst
        from libcst.metadata import MetadataWrapper, PositionProvider
        from mutmut.mutation.file_mutation import MutationVisitor
        from mutmut.mutation.mutators import mutation_operators
        from mutmut.mutation.pragma_handling import IgnoredCode

        self.target = target
        self._original = (root / target.path).read_text()
        visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
        self._module = MetadataWrapper(cst.parse_module(self._original)).visit(visitor)
        self._positions = MetadataWrapper(self._module, unsafe_skip_copy=True).resolve(PositionProvider)
        self._spans = dict(_spans(self._module, self._positions))
        self._names = dict(_functions(self._module))
        # Constants of modules and defaults of classes are left alone, as mutmut leaves them.
        self._found = [m for m in visitor.mutations if isinstance(m.contained_by_top_level_function, cst.FunctionDef)]

    def __len__(self) -> int:
        return len(self._found)

    def draw(self, n: int, rng: random.Random) -> list[Mutant]:
        """``n`` different mutants.

        Left out is what does not compile, and what only takes ``strict`` from a ``zip``: where all is as long as it
        should be, nothing changes.
        """
        same, seen, drawn = _meaning(self._original), {self._original}, []
        for mutation in rng.sample(self._found, len(self._found)):
            if len(drawn) == n:
                break
            source = self._module.deep_replace(mutation.original_node, mutation.mutated_node).code
            if source not in seen and _meaning(source) not in (None, same):
                drawn.append(self._mutant(mutation, source))
            seen.add(source)
        return sorted(drawn, key=lambda mutant: (mutant.lines.start, mutant.diff))

    def _mutant(self, mutation: Any, source: str) -> Mutant:
        function = mutation.contained_by_top_level_function
        lines = self._spans[id(mutation.original_node)]
        if lines.start < self._positions[function.body.body[0]].start.line:  # a default: at work wherever it is called
            lines = _range(self._positions[function])
        return Mutant(self.target.name, self._names[id(function)], lines, source, _diff(self._original, source))


def draw(modules: Mapping[str, Mutations], n: int, seed: int) -> list[Mutant]:
    """``n`` mutants without replacement, of each module by its share, at least one of each."""
    total = sum(map(len, modules.values()))
    wanted = {name: n * len(of) / total for name, of in modules.items()}
    counts = {name: max(1, int(share)) for name, share in wanted.items()}
    by_remainder = sorted(wanted, key=lambda name: counts[name] - wanted[name])
    for name in by_remainder[: max(0, n - sum(counts.values()))]:
        counts[name] += 1
    return [m for name, of in modules.items() for m in of.draw(counts[name], random.Random(f"{seed} {name}"))]


class _Lenient(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "strict"]
        return node


def _meaning(source: str) -> str | None:
    """The syntax tree, ``strict`` left out; ``None`` where there is none."""
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return None
    return ast.dump(_Lenient().visit(ast.parse(source)))


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def _range(position: Any) -> range:
    return range(position.start.line, position.end.line + 1)


def _functions(node: Any, within: str = "") -> Iterator[tuple[int, str]]:
    """Functions and methods by their qualified names."""
    import libcst as cst

    for child in node.body.body if isinstance(node, cst.ClassDef) else node.body:
        if isinstance(child, cst.FunctionDef):
            yield id(child), within + child.name.value
        elif isinstance(child, cst.ClassDef):
            yield from _functions(child, f"{within}{child.name.value}.")


def _spans(node: Any, positions: Mapping[Any, Any], span: range = range(0)) -> Iterator[tuple[int, range]]:
    """The lines of the simple statement, or of the head of the compound one, that each node belongs to."""
    import libcst as cst

    if isinstance(node, cst.BaseCompoundStatement):
        span = range(0)
    elif isinstance(node, cst.BaseSmallStatement) or (not span and isinstance(node, cst.BaseExpression)):
        span = _range(positions[node])
    yield id(node), span
    for child in node.children:
        yield from _spans(child, positions, span)
