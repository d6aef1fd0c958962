"""The marks and words beside an engine, explained alike where the keys are and in the command's help."""

MARKS = """\
~              a gain that rests on a K timed in fewer than 8 steps there
!, !!          behind a step time: off the table by 10 %, by 30 %
!!unreachable  the page cannot be had (lost 42 s: since when)
!!inactive     adaptk stands aside, and vLLM's own K is played
!!dead drafter the drafts are (nearly) never accepted
!!table off    a step time is surely off the table by over 30 %
!!timing       too many steps are slowed for no reason: no visits meanwhile
!changed       acceptance or step times changed within the last minute
!ledger        the budget of exploring is spent: no visits until it has grown
!trace         the trace lost rows: its disk is full or slow
!stale         for a minute steps went on, and what is believed was not copied
!page          lines of the page are not understood
+2             two more of these: open the engine, or ask for --json
idle           no step for 10 s; no gain is shown then, nor if off or inactive"""
