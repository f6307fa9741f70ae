"""Datasets: rows as functions of their index, solved in shards, stored as Zarr, verified by C MuJoCo.

`plan` says what a row is, `rows` solves rows by index, `store` holds the files, `generate` runs shards, `dataset` reads
them, `verify` and `card` say what is in them. Imports solvers and what these may, and `robot.loading`; zarr where it is
used.
"""
