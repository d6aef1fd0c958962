"""vLLM's step outputs made into StepRecords, each draft credited to the decision that made it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import gt
from typing import Any

from adaptk.step import StepRecord
from adaptk.vllm_plugin import compat, graphmisses

_NONE: tuple[int, ...] = ()


class Step:
    """One scheduled step whose output has not come back yet; times in seconds of ``time.perf_counter``."""

    # Defaults stand on the class: most steps change few of them, and each one set costs the engine's loop.
    context = 0
    prefill = 0
    decodes: int | None = None  # None: the whole batch
    decoding: Sequence[str] | None = None  # these; None: the whole batch
    dummies: set[str] | None = None  # requests whose drafts are none
    dummied = 0  # the decoding ones among these, and those whose drafts were left out for another reason
    draft_k: int | None = None
    asked: int | None = None  # drafts asked for when this step's were made, where that is not the record before's k
    k = 0
    vllms_k = 0  # what vLLM would have used; only set where somebody counts
    controller: Any = None
    busy = False
    timed = True
    elapsed: float | None = None
    finished = 0.0
    drafted: Sequence[int] = ()
    accepted: Sequence[int] = ()
    index: Sequence[int | None] | None = None  # place in the runner's output; None: as it stands there
    written: list[tuple[Any, int]] | None = None  # each request and its output tokens, where some may be discarded

    def __init__(self, output: Any, entered: float, widths: list[int]) -> None:
        self.output = output
        self.entered = entered
        self.batch = batch = len(output.num_scheduled_tokens)
        # Drafts of each request where all have as many, else None; and those of all, dummies included.
        self.uniform = (widths[0] if widths.count(widths[0]) == batch else None) if widths else 0
        self.width = sum(widths) if self.uniform is None else self.uniform * batch


class Collector:
    """Reads what adaptk needs out of vLLM's objects, once at the schedule of a step and once at its update.

    Records have no ``device_ms``. From 0.24 to 0.33 ``ModelRunnerOutput`` holds no time. Runner V2's
    ``StepTimingCollector`` (0.28 on) times steps only while adaptive verification is profiled, and waits for the device
    to read them; ``--enable-logging-iteration-details`` times how long the engine waited for a result, which is no step
    where several are in flight, and is known only after the update. Events of adaptk's own would have to be put into
    the workers' step, where an event recorded during graph capture or read too early stops or stalls the engine, would
    be read a step late, and leave out the host's share, which differs between arms. So the clock between two updates,
    which is what users wait for, is taken.

    Parameters
    ----------
    dummy_limit
        Longest sequence that still gets real drafts, tokens; one longer one makes the next drafts of all scheduled
        requests dummies. ``None``: there is no such rule.
    """

    def __init__(self, dummy_limit: int | None = None) -> None:
        self.dummy_limit = dummy_limit
        self.clamped = 0  # requests that claimed more accepted drafts than they had
        self.ignored = 0  # requests gone, or stale, when their output came
        self.misses = graphmisses.GraphMisses()
        self._prefilling: set[str] = set()
        self._dummies: set[str] = set()  # requests whose next drafts are dummies
        self._foreign: set[str] = set()  # requests whose next drafts nobody here decided
        self._finished_above = compat.finished_above()
        self.numbered = False  # whether records say which request is which, for a trace
        self._numbers: dict[str, int] = {}  # of the requests that have not finished
        self._next_number = 0

    def resume(self, requests: Iterable[str]) -> None:
        """Forget what is known of the requests, after steps that were not read.

        Parameters
        ----------
        requests
            Those in the scheduler. Until each was scheduled once, its drafts are of no known decision, or dummies, and
            are not counted; the time of such a step is nobody's.
        """
        self._foreign = set(requests)
        self._prefilling = set(self._foreign)  # perhaps: has steps looked at in full until each was seen
        self._dummies.clear()

    def schedule(self, output: Any, requests: Mapping[str, Any], entered: float) -> Step:
        """Describe the step that ``output`` schedules, before the scheduler counts its tokens as computed."""
        scheduled = output.num_scheduled_tokens
        spec = output.scheduled_spec_decode_tokens
        cached = output.scheduled_cached_reqs
        step = Step(output, entered, list(map(len, spec.values())))
        pure = (
            not output.scheduled_new_reqs
            and not cached.resumed_req_ids
            and not self._prefilling
            and output.total_num_scheduled_tokens == step.batch + step.width
        )
        if not pure:
            longest = self._schedule_mixed(step, requests)
        else:
            computed = cached.num_computed_tokens
            step.context = sum(computed)
            longest = 0
            if self.dummy_limit is not None:
                # An upper bound; the exact length is only worth a loop where it could matter.
                longest = max(computed) + 1 + step.width
                if longest > self.dummy_limit:
                    longest = max(n + scheduled[r] for n, r in zip(computed, cached.req_ids, strict=True))
        if self._dummies:
            padded = step.dummies or set()
            known = {r for r in spec if r in self._dummies and spec[r][0] in (0, -1)} - padded
            if known:
                step.dummies, step.dummied = known | padded, len(known)
            self._dummies = {r for r in self._dummies if r in requests and r not in scheduled}
        if self.dummy_limit is not None and longest > self.dummy_limit:
            self._dummies.update(scheduled)
            step.draft_k = 0  # the drafter does not run at all
        return step

    def _schedule_mixed(self, step: Step, requests: Mapping[str, Any]) -> int:
        """Fill in a step with prompt tokens in it; gives the longest sequence after it, tokens."""
        output = step.output
        spec = output.scheduled_spec_decode_tokens
        foreign = self._foreign
        begun = {new.req_id for new in output.scheduled_new_reqs} | set(output.scheduled_cached_reqs.resumed_req_ids)
        prefilling = set()
        decoding: list[str] = []
        longest = 0
        for rid, tokens in output.num_scheduled_tokens.items():
            request = requests[rid]
            computed = request.num_computed_tokens
            step.context += computed
            longest = max(longest, computed + tokens)
            fresh = tokens - len(spec.get(rid, _NONE))
            # More than one token: lost blocks of the KV cache are computed again, which vLLM does not call a prefill.
            if fresh == 1 and rid not in begun and not request.is_prefill_chunk:
                if rid not in foreign:
                    decoding.append(rid)
                continue
            step.prefill += fresh
            if computed + tokens < request.num_tokens + request.num_output_placeholders:
                prefilling.add(rid)
        # Prompts of requests that sat this step out go on later.
        waiting = {r for r in self._prefilling - output.num_scheduled_tokens.keys() if r in requests}
        self._prefilling = prefilling | waiting
        if len(decoding) < step.batch:
            step.decodes, step.decoding = len(decoding), decoding
        padded = begun & spec.keys()  # a new request can have no drafts: these only fill up a graph's shape
        if foreign:
            seen = foreign & output.num_scheduled_tokens.keys()
            self._foreign = {r for r in foreign - seen if r in requests}
            padded |= seen & spec.keys()
            step.timed = not seen and step.timed
        if padded:
            step.dummies = padded
        return longest

    def count(self, step: Step, requests: Mapping[str, Any], result: Any) -> None:
        """Fill in drafts verified and accepted, before the scheduler takes in ``result``."""
        sampled = result.sampled_token_ids
        ids = result.req_ids
        output = step.output
        if (
            step.dummies is not None
            or output.num_invalid_spec_tokens
            or compat.load_failed(result)
            or not len(sampled) == len(ids) == step.batch
            or not compat.all_sound(list(map(requests.get, ids)), self._finished_above)
        ):
            self._count_irregular(step, requests, result)
            if compat.load_failed(result):  # which of the outputs are discarded shows only once that was done
                known = map(requests.get, output.num_scheduled_tokens)
                step.written = [(r, 0 if r is None else r.num_output_tokens) for r in known]
            return
        accepted = [len(tokens) - 1 for tokens in sampled]
        uniform = step.uniform
        if uniform is not None:
            drafted = [uniform] * step.batch
            fits = max(accepted) <= uniform
        else:
            drafted = list(map(len, map(output.scheduled_spec_decode_tokens.get, ids, repeat(_NONE))))
            fits = not any(map(gt, accepted, drafted))
        if fits and min(accepted) >= 0:
            step.drafted, step.accepted = drafted, accepted
        else:
            self._count_irregular(step, requests, result)

    def _count_irregular(self, step: Step, requests: Mapping[str, Any], result: Any) -> None:
        sampled, places = result.sampled_token_ids, result.req_id_to_index
        spec = step.output.scheduled_spec_decode_tokens
        invalid = step.output.num_invalid_spec_tokens or {}
        dummies = step.dummies or ()
        drafts: list[int] = []
        hits: list[int] = []
        index: list[int | None] = []
        for rid in step.output.num_scheduled_tokens:
            drafted = accepted = 0
            request = requests.get(rid)
            place = places.get(rid) if sampled else None
            if request is None or request.status > self._finished_above:
                self.ignored += 1
                place = None
            elif compat.stale(request):
                self.ignored += 1
                # Dropped output never reaches the user; before 0.27 all of it was dropped.
                place = None if getattr(request, "drop_stale_output", True) else place
                step.dummied += place is not None and rid in spec and rid not in dummies and bool(sampled[place])
            elif place is not None and rid in spec and rid not in dummies and sampled[place]:
                drafted = max(len(spec[rid]) - invalid.get(rid, 0), 0)
                accepted = len(sampled[place]) - 1
                if not 0 <= accepted <= drafted:
                    self.clamped += 1
                    accepted = min(max(accepted, 0), drafted)
            drafts.append(drafted)
            hits.append(accepted)
            index.append(place)
        step.drafted, step.accepted, step.index = drafts, hits, index

    def record(self, step: Step, result: Any) -> StepRecord:
        """The record of a counted step, after the scheduler has taken in ``result`` and cut it at stops.

        vLLM cuts the runner's own lists, so that their lengths are now what counted.
        """
        sampled: Sequence[Sequence[int]] = result.sampled_token_ids
        if step.written is not None:
            self._leave_out_discarded(step)
        if step.index is None:
            emitted = list(map(len, sampled))
            verified = gone = None
        else:
            emitted = [0 if place is None else len(sampled[place]) for place in step.index]
            verified = None if sum(step.drafted) == step.width else step.width
            gone = self._gone(step, emitted) if 0 in emitted else None
        mode = graphmisses.mode_of(result)
        if mode is not None and self._missed_graph(step, mode):
            step.elapsed = None
        decodes = step.decodes
        if step.dummied:
            # As decodes without drafts they would count as a drafter that found none, which it was not asked to.
            decodes = max((step.batch if decodes is None else decodes) - step.dummied, 0)
        return StepRecord(
            batch_size=step.batch,
            elapsed_ms=None if step.elapsed is None else step.elapsed * 1000.0,
            k=step.k,
            drafted=step.drafted,
            accepted=step.accepted,
            context_tokens=step.context,
            prefill_tokens=step.prefill,
            draft_k=step.draft_k,
            asked=step.asked,
            decodes=decodes,
            gone=gone,
            verified=verified,
            emitted=emitted,
            t_ms=step.finished * 1000.0,
            requests=self._number(step, result) if self.numbered else None,
            waited=bool(step.output.pending_structured_output_tokens),
        )

    def _gone(self, step: Step, emitted: Sequence[int]) -> int:
        """Decoding requests, among those whose drafts count, that gave no token."""
        silent = {rid for rid, tokens in zip(step.output.num_scheduled_tokens, emitted, strict=True) if not tokens}
        if step.decoding is not None:
            silent.intersection_update(step.decoding)
        return len(silent.difference(step.dummies or ()))

    def _missed_graph(self, step: Step, mode: str) -> bool:
        """Whether a step without prompt tokens lacked a graph that such steps have."""
        return not step.prefill and self.misses.exceptional(step.batch, max(step.drafted, default=0), mode)

    def _leave_out_discarded(self, step: Step) -> None:
        """Drop what the scheduler did not take in, because the KV cache that it was computed from had not arrived."""
        drafted, accepted, index = list(step.drafted), list(step.accepted), list(step.index or ())
        for i, (request, written) in enumerate(step.written or ()):
            if request is None or index[i] is None or request.num_output_tokens > written:
                continue
            self.ignored += 1
            drafted[i], accepted[i], index[i] = 0, 0, None
        step.drafted, step.accepted, step.index = drafted, accepted, index

    def forget(self, finished: Iterable[str]) -> None:
        """Requests are over: of a step that is recorded this is seen, of any other one it must be told."""
        for rid in finished:
            self._numbers.pop(rid, None)

    def _number(self, step: Step, result: Any) -> list[int]:
        """The numbers of the step's requests, in the order of its drafts."""
        numbers = self._numbers
        self.forget(step.output.finished_req_ids)
        ids = list(result.req_ids if step.index is None else step.output.num_scheduled_tokens)
        for rid in ids:
            if rid not in numbers:
                numbers[rid], self._next_number = self._next_number, self._next_number + 1
        return [numbers[rid] for rid in ids]


def lost(step: Step) -> StepRecord:
    """The record of a step whose output never came: it keeps decisions and records in step and teaches nothing."""
    # decodes=0: requests that decoded without drafts would count as a drafter that found none.
    return StepRecord(batch_size=step.batch, elapsed_ms=None, k=step.k, drafted=[], accepted=[], decodes=0)
