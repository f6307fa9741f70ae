"""Limits: what a configuration or a displacement must not leave, as bounds and rows of a step. One file a class.

A new limit, or a barrier, is a class in a file of its name; `base.py` is the contract, `combine.py` makes one box and
one set of rows of all. Imports what tasks may, and tasks.
"""
