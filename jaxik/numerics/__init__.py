"""Mathematics of one element: SE(3), small dense linear algebra, trigonometry, and what keeps XLA from recomputing it.

Knows no robot and no batch. Imports nothing else of jaxik.
"""
