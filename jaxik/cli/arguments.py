"""The commands and options, and what a wrong one says."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from jaxik.cli.config_help import CONFIG_HELP, DATASET_HELP, TRACK_HELP
from jaxik.core.errors import JaxikError, unknown_name
from jaxik.core.version import __version__

DEFAULT_BATCH_SIZE = (
    8192  # elements a call: enough for full tiles on every core, and a second or two between two progress reports
)

SHOWN = "YAML file of solve, track or generate, folder of the last, bundled name, or MJCF or URDF file"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise JaxikError(f"{message} (see {self.prog} --help)")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments behind the program's name.

    Raises:
      JaxikError: for an unknown command or option, or a wrong value.
      SystemExit: after --help and --version.
    """
    parser, commands = build_parsers()
    arguments, rest = parser.parse_known_args(argv)
    if rest and rest[0].startswith("-"):
        raise unknown_name("option", rest[0].split("=")[0], options(commands[arguments.command]))
    if rest:
        raise JaxikError(f"one argument too many: {rest[0]!r} (see jaxik {arguments.command} --help)")
    return arguments


def options(parser: argparse.ArgumentParser) -> list[str]:
    """All long and short options of a command."""
    return list(parser._option_string_actions)  # argparse has no public list of them


def build_parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The whole command line, and its commands by name."""
    parser = _Parser("jaxik", description="Batched inverse kinematics on MuJoCo models.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__, help="print the version and end")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    return parser, {
        "solve": _solve(commands),
        "track": _track(commands),
        "generate": _generate(commands),
        "dataset": _dataset(commands),
        "render": _render(commands),
        "view": _view(commands),
        "info": _info(commands),
        "robots": _robots(commands),
        "doctor": _doctor(commands),
    }


def _solve(commands: Any) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "solve",
        help="solve the targets of a YAML file",
        description="Solve inverse kinematics for the robot, tasks and targets of a YAML file, and print a summary.",
        epilog=CONFIG_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("config", metavar="CONFIG", type=Path, help="YAML file: robot, tasks, targets, options; described below")
    add("--num-targets", metavar="N", type=_positive, help="draw N of sampled targets, take the first N of listed ones")
    add("--seed", metavar="S", type=_natural, help="seed of sampled targets and starts")
    add("--max-steps", metavar="N", type=_positive, help="end each element after at most N steps")
    add("--dtype", choices=("float32", "float64"), help="precision of everything that is computed")
    add(
        "--batch-size",
        metavar="N",
        type=_positive,
        default=DEFAULT_BATCH_SIZE,
        help="elements in one call (default: %(default)s)",
    )
    add("-o", "--output", metavar="FILE", type=Path, help="write the solutions to an .npz file")
    add("--force", action="store_true", help="replace the files to write where they exist")
    add("--trace", metavar="FILE", type=Path, help="draw every element's steps into a .png, .svg or .pdf file")
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
    printed.add_argument("--json", action="store_true", help="print the summary as JSON, in SI units")
    return parser


def _track(commands: Any) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "track",
        help="follow the paths of a YAML file over time",
        description="Follow the targets of a YAML file over time, one step of differential IK after the other.",
        epilog=TRACK_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("config", metavar="CONFIG", type=Path, help="YAML file: robot, tasks, limits, track; described below")
    add("--dtype", choices=("float32", "float64"), help="precision of everything that is computed")
    add("-o", "--output", metavar="FILE", type=Path, help="write the motion to an .npz file")
    add("--csv", metavar="FILE", type=Path, help="write it as a table, a line a step")
    add("--plot", metavar="FILE", type=Path, help="draw joints, speeds and errors into a .png, .svg or .pdf file")
    add("--force", action="store_true", help="replace the files to write where they exist")
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
    printed.add_argument("--json", action="store_true", help="print the summary as JSON, in SI units")
    return parser


def _generate(commands: Any) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "generate",
        help="make a dataset of verified solutions, of any size",
        description="Draw targets, solve them, and write rows of targets and configurations into a Zarr store.",
        epilog=DATASET_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("config", metavar="CONFIG", type=Path, help="YAML file: robot, tasks, dataset; described below")
    add("output", metavar="STORE", type=Path, help="folder to write, such as reach.zarr")
    add("--count", metavar="N", type=_positive, help="rows")
    add("--seed", metavar="S", type=_natural, help="seed of everything that is drawn")
    add("--dtype", choices=("float32", "float64"), help="precision of everything that is computed")
    add("--resume", action="store_true", help="go on with a store of the same plan")
    add(
        "--part",
        metavar="K/N",
        default="1/1",
        help="make the K-th of N parts, into a folder that all share; auto, auto/N: in a Slurm array, a Kubernetes job",
    )
    add("--engine", choices=("process", "ray"), default="process", help="ray: an actor on each node of a Ray cluster")
    add("--address", metavar="ADDRESS", help="of the Ray cluster (default: a local one)")
    add("--workers", metavar="N", type=_positive, help="Ray actors (default: one a node)")
    add("--strict", action="store_true", help="refuse to go on with rows of another kind of device")
    add("--batch-size", metavar="N", type=_positive, default=16384, help="rows in one call (default: %(default)s)")
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
    printed.add_argument("--json", action="store_true", help="print progress and summary as lines of JSON")
    return parser


def _dataset(commands: Any) -> argparse.ArgumentParser:
    text = "look into a dataset, verify it by C MuJoCo, or export it"
    more = " The exit code of verify is 1 where something is missing, damaged or wrong."
    parser = commands.add_parser(
        "dataset", help=text, description=f"{text[0].upper()}{text[1:]}.{more}", allow_abbrev=False
    )
    add = parser.add_argument
    add("action", metavar="info|verify|export", choices=("info", "verify", "export"), help="what to do")
    add("store", metavar="STORE", type=Path, help="folder that jaxik generate wrote")
    add("file", metavar="FILE", type=Path, nargs="?", help="of export: .npz or .parquet, or a folder")
    add("--format", choices=("npz", "parquet", "lerobot"), help="export: lerobot: motions as episodes, into a folder")
    add("--rows", metavar="N", type=_positive, default=10_000, help="verify: rows to judge (default: %(default)s)")
    add("--full", action="store_true", help="verify: judge all rows")
    add("--repair", action="store_true", help="verify: forget damaged shards, for generate --resume to make again")
    add("--json", action="store_true", help="print what was found as JSON")
    return parser


def _render(commands: Any) -> argparse.ArgumentParser:
    text = "draw a robot, or what a configuration leads to"
    parser = commands.add_parser("render", help=text, description=text.capitalize() + ".", allow_abbrev=False)
    add = parser.add_argument
    add("source", metavar="CONFIG|ROBOT|STORE", help=SHOWN)
    add(
        "picture",
        metavar="PICTURE",
        type=Path,
        help=".png or .jpg; .mp4 or .gif: a motion, or one through solutions",
    )
    add("--size", metavar="WxH", type=_size, default=(640, 480), help="width and height in pixels (default: 640x480)")
    add("--azimuth", metavar="DEG", type=float, default=135.0, help="direction of view about z (default: %(default)s)")
    add("--elevation", metavar="DEG", type=float, default=-20.0, help="above 0 it looks up (default: %(default)s)")
    add("--force", action="store_true", help="replace the picture where it exists")
    return parser


def _view(commands: Any) -> argparse.ArgumentParser:
    text = "show a robot, or what a configuration leads to, on a page where targets are dragged"
    parser = commands.add_parser("view", help=text, description=text.capitalize() + ".", allow_abbrev=False)
    add = parser.add_argument
    add("source", metavar="CONFIG|ROBOT|STORE", help=SHOWN)
    add("--port", metavar="N", type=_port, default=8080, help="where the page is served (default: %(default)s)")
    add("--host", metavar="ADDRESS", default="127.0.0.1", help="0.0.0.0: for other machines too (default: this one)")
    add("--html", metavar="FILE", type=Path, help="write one file to look at instead, which needs no server")
    add("--force", action="store_true", help="replace the file where it exists")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to 65535, not {text!r}")
    return int(text)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and 0 < int(width) <= 8192 and 0 < int(height) <= 8192):
        raise argparse.ArgumentTypeError(f"width and height as in 640x480, at most 8192, not {text!r}")
    return int(width), int(height)


def _info(commands: Any) -> argparse.ArgumentParser:
    text = "print the joints, limits, frames and masses of a robot"
    parser = commands.add_parser("info", help=text, description=text.capitalize() + ".", allow_abbrev=False)
    parser.add_argument("robot", metavar="ROBOT", help="bundled name, or path of an MJCF or URDF file")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON, in SI units")
    return parser


def _robots(commands: Any) -> argparse.ArgumentParser:
    text = "list the bundled robots"
    parser = commands.add_parser("robots", help=text, description=text.capitalize() + ".", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    return parser


def _doctor(commands: Any) -> argparse.ArgumentParser:
    text = "check versions, devices, pictures, and one solve by C MuJoCo"
    more = " The exit code is 1 where there is a fault."
    parser = commands.add_parser(
        "doctor", help=text, description=f"{text[0].upper()}{text[1:]}.{more}", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    return parser


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number from 0 on, not {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, not {text!r}")
    return int(text)
