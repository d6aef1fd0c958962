"""What vLLM makes of a schedule beyond the K of each batch: which steps get captured graphs, and when it is ignored."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.table import GoodputTable
from adaptk.tabletools.survey import survey
from adaptk.tabletools.tiers import small_tiers

LADDER = (0, 1, 3, 7)
"""K whose K+1 tokens per request are powers of two: they share captured sizes, and tiles are full."""

_CEILING = 512  # tokens; vLLM's default largest captured size but for Blackwell
_SMALL = 0.01  # gain of a tier that noise can make


def advice(
    table: GoodputTable,
    triples: Sequence[Sequence[int]],
    context: float | None = None,
    arms: Sequence[int] | None = None,
) -> list[str]:
    """What whoever pastes the schedule should know, one remark each.

    Examples
    --------
    >>> print(advice(GoodputTable.from_schedule([[1, 8, 6]]), [[1, 8, 6]])[0])
    K=6 is off the ladder 0, 1, 3, 7: with K+1 of 1, 2, 4, 8 tokens per request graphs tile best (--arms 0,1,3,7)
    """
    ks = sorted({k for _, _, k in triples})
    said = _of_graphs(triples, ks) if table.key.get("graph_mode") != "NONE" else []
    said.append("with data parallelism (more than one rank) vLLM drops the schedule and drafts num_speculative_tokens")
    said += _rests_on(table, triples, ks)
    said += _in_doubt(table, context)
    said += [
        f"batch {tier.first} to {tier.last}: K={tier.k} is at most {100.0 * tier.gain:.2g} % better than the "
        f"neighbour's K={tier.neighbour_k}: --min-gain {_SMALL:g} merges such tiers"
        for tier in small_tiers(table, [list(triple) for triple in triples], _SMALL, context, arms)
    ]
    return said


def _of_graphs(triples: Sequence[Sequence[int]], ks: Sequence[int]) -> list[str]:
    return [
        *_off_ladder(ks),
        *_shadowed(ks),
        *_above_ceiling(triples),
        "any schedule turns FULL CUDA graphs into PIECEWISE on vLLM's model runner V1: compare the speed at K=0 with "
        "and without it, or use runner V2 (VLLM_USE_V2_MODEL_RUNNER=1)",
    ]


def _in_doubt(table: GoodputTable, context: float | None) -> list[str]:
    """Where the table cannot tell its best K from another one."""
    if not table.has_times:
        return []
    seen = survey(table, context)
    batches = sorted({tie.batch for tie in seen.ties})
    if not batches:
        return []
    at = ", ".join(map(str, batches))
    return [f"at batch {at} the best K leads another one by less than the noise: adaptk table show says which"]


def _off_ladder(ks: Sequence[int]) -> list[str]:
    off = [k for k in ks if k not in LADDER]
    if not off:
        return []
    names = ", ".join(f"K={k}" for k in off)
    return [
        f"{names} {'is' if len(off) == 1 else 'are'} off the ladder 0, 1, 3, 7: with K+1 of 1, 2, 4, 8 tokens per "
        "request graphs tile best (--arms 0,1,3,7)"
    ]


def _shadowed(ks: Sequence[int]) -> list[str]:
    """Pairs of widths of which neither divides the other: captured sizes of one can take the place of the other's."""
    pairs = [(one, other) for one in ks for other in ks if one < other and (other + 1) % (one + 1)]
    if not pairs:
        return []
    names = ", ".join(f"K={one} with K={other}" for one, other in pairs[:6]) + (", ..." if len(pairs) > 6 else "")
    return [
        f"{names}: K+1 of the one does not divide that of the other, so on runner V2 some batch sizes find the other "
        "tier's graph in their place and run PIECEWISE; K of the ladder do not shadow each other"
    ]


def _above_ceiling(triples: Sequence[Sequence[int]]) -> list[str]:
    said = []
    for first, last, k in triples:
        widest = _CEILING // (k + 1)
        if k > 0 and last > widest:
            said.append(
                f"K={k} above batch {max(widest, first - 1)} is more than {_CEILING} tokens, vLLM's default ceiling of "
                "captured sizes (1,024 on Blackwell): those steps run without a graph, unless "
                "--max-cudagraph-capture-size is raised"
            )
    return said


def _rests_on(table: GoodputTable, triples: Sequence[Sequence[int]], ks: Sequence[int]) -> list[str]:
    if not table.has_times:
        return []
    said = []
    unknown = [k for k in ks if not table.knows(k)]
    if unknown:
        names = ", ".join(f"K={k}" for k in unknown)
        said.append(f"{names} {'has' if len(unknown) == 1 else 'have'} no rows in the table: taken from other K")
    if triples[-1][1] > table.batches[-1]:
        said.append(f"above batch {table.batches[-1]} the table has no rows: times go on in a line (--max-batch)")
    if table.acceptance is None:
        said.append("acceptance is unknown: 0.7 was assumed at every position, and the whole schedule rests on that")
    return said
