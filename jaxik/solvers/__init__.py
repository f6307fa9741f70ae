"""The verbs: `differential` (step), `nonlinear` (solve), `search`, `tracking`, `asynchronous`; `options.py` is shared.

A verb checks its arguments, casts them, and hands a method of one element to batching. Imports everything below;
`search` builds on `nonlinear`, which knows nothing of `differential`, nor the other way round.
"""
