"""What everything rests on: errors, statuses, pytrees, checks of arguments, files of arrays.

Knows no numerics and no robot. Imports nothing else of jaxik.
"""
