"""`jaxik robots`: what is bundled."""

import argparse
import json

from rich.table import Table
from rich.text import Text

from jaxik.cli.consoles import console
from jaxik.robot.loading.catalog import bundled_outline, bundled_robots


def run_robots(arguments: argparse.Namespace) -> int:
    """List the bundled robots, a line each; `jaxik info` has the sites that do not fit."""
    outlines = {name: bundled_outline(name) for name in bundled_robots()}
    if arguments.json:
        listed = [{"name": name, "nv": outline.nv, "sites": outline.sites} for name, outline in outlines.items()]
        print(json.dumps(listed, indent=2))
        return 0
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("robot", no_wrap=True)
    table.add_column("degrees of freedom", justify="right", no_wrap=True)
    table.add_column("sites")  # free to wrap, so that it is the one that gives way; its texts then do not
    for name, outline in outlines.items():
        sites = Text(", ".join(outline.sites), no_wrap=True, overflow="ellipsis")
        table.add_row(Text(name, "bold"), str(outline.nv), sites)
    console().print(table)
    return 0
