"""Offline replay: what a policy would have done on recorded traffic and in hard worlds.

A *world* (``simulator``) is a cost surface (``surface``; from ``costs``, ``presets`` or a trace), a drafter
(``drafter``), a load (``workload``; made by ``arrivals``, read by ``requestfiles``), noise and drift (``noise``).
``simulate`` drives a policy (``policies``, by name in ``registry``) through it; the step itself is in ``compiled``.
A *scenario* (``scenarios``; ``cases``, ``draftcases`` with ``casechecks``, and ``worlds``) is a world with what
policies may know and what must hold; ``traces`` and ``fleet`` make one of a recorded trace and of a request log.
``measures`` say what a run was worth, ``evaluate`` makes flat rows of it, ``intervals`` say how sure they are,
``sweep`` runs many, ``sources``, ``views`` and ``report`` serve the command line. ``offpolicy`` values a policy from a
trace's propensities, without a simulation.
"""
