"""A cost table without weights and without an engine: blocks of a model's shape, timed on this machine.

``configs`` reads a model's config.json into an ``Architecture``; ``model`` and ``drafters`` build it with random
weights out of ``blocks``; ``timing`` times a call, ``samples`` says what its timings are worth; ``plan`` orders the
cells, ``measure`` visits them within a budget, ``session`` joins all of it, ``result`` makes a table of what came out.
"""
