"""How a function of one element runs over a batch: tiles, a queue of elements, common subexpressions, derivatives.

A verb hands in a `Method` (`method.py`) and gets arrays with batch axes back (`run.py`, `implicit_diff.py`). Knows no
robot and no task. A GPU kernel would be chosen in `run.py`. Imports core and numerics.
"""
