"""Load a YAML file."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from jaxik.cli.section import ConfigError, Place, Section


class YamlFile(NamedTuple):
    """A configuration file: its path, its text, and the mapping that it holds."""

    path: Path
    text: str
    root: Section


class _Loader(yaml.SafeLoader):
    """YAML with the numbers of version 1.2, in which 1e-4 is a number; a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} is there twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(path: Path) -> YamlFile:
    """Read a configuration.

    Raises:
      ConfigError: if the file is missing or malformed, with the line, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {read_failure(error)}") from None
    place = Place(str(path))
    values = parse(text, place)
    if values is None:
        place.fail("is empty; it needs 'robot' and 'tasks' (see jaxik solve --help)")
    return YamlFile(path, text, Section(values, place))


def parse(text: str, place: Place) -> Any:
    """The plain values of YAML.

    Raises:
      ConfigError: if it is malformed, with the line.
    """
    try:
        return yaml.load(text, _Loader)  # a safe loader: plain values only
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{place}: {where}{error.problem or 'malformed YAML'}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: malformed YAML: {error}") from None


def read_failure(error: Exception) -> str:
    """The short reason why a file could not be read."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, UnicodeDecodeError):
        return "is no text in UTF-8"
    if "unsafely" in str(error):  # NumPy takes any other file for a pickle, and recommends to load it
        return "is no .npy or .npz file: numpy.save and numpy.savez write them"
    return getattr(error, "strerror", None) or str(error)
