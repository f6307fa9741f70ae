"""`jaxik robots`: what is bundled."""

import argparse

from rich.table import Table
from rich.text import Text

from jaxik.cli.consoles import console
from jaxik.robot.loading.catalog import bundled_outline, bundled_robots


def run_robots(arguments: argparse.Namespace) -> int:
    """List the bundled robots, a line each; `jaxik info` has the sites that do not fit."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("robot", no_wrap=True)
    table.add_column("degrees of freedom", justify="right", no_wrap=True)
    table.add_column("sites")  # free to wrap, so that it is the one that gives way; its texts then do not
    for name in bundled_robots():
        outline = bundled_outline(name)
        sites = Text(", ".join(outline.sites), no_wrap=True, overflow="ellipsis")
        table.add_row(Text(name, "bold"), str(outline.nv), sites)
    console().print(table)
    return 0
