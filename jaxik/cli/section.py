"""Typed reading of a configuration file; errors name the file and the keys that lead to the value."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from jaxik.core.errors import JaxikError, unknown_name

# The largest count or seed: JAX holds them as int32.
MAX_INT32 = 2**31 - 1

_REQUIRED: Any = object()


class ConfigError(JaxikError):
    """A mistake in a configuration; the message starts with its place, `file.yaml: tasks.tip.frame: ...`."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a value: a file and the keys that lead to it."""

    file: str
    keys: tuple[str, ...] = ()

    def __truediv__(self, key: str | int) -> "Place":
        if isinstance(key, int) and self.keys:
            return Place(self.file, (*self.keys[:-1], f"{self.keys[-1]}[{key}]"))
        return Place(self.file, (*self.keys, str(key)))

    def __str__(self) -> str:
        return ": ".join([self.file, *([".".join(self.keys)] if self.keys else [])])

    def fail(self, message: str) -> NoReturn:
        raise ConfigError(f"{self}: {message}")

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Raise errors of the block as a `ConfigError` about the value at this place."""
        try:
            yield
        except ConfigError:
            raise
        except JaxikError as error:
            raise ConfigError(f"{self}: {error}") from None


@dataclasses.dataclass(frozen=True)
class Section:
    """A mapping of a configuration, and its place."""

    values: Any
    place: Place

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping):
            self.place.fail(f"is a mapping (key: value), not {preview(self.values)}")
        for key in self.values:
            if not isinstance(key, str):
                self.place.fail(f"keys are text, not {key!r}: put it in quotes")

    def allow(self, *keys: str) -> None:
        """Refuse every other key."""
        for key in self.values:
            if key not in keys:
                with self.place.blamed():
                    raise unknown_name("key", key, keys)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def at(self, key: str) -> Place:
        return self.place / key

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        if key not in self.values and default is _REQUIRED:
            self.place.fail(f"has no {key!r}, and needs one" if self.place.keys else f"{key!r} is missing")
        return self.values.get(key, default)

    def section(self, key: str) -> "Section":
        return Section(self.get(key), self.at(key))

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self.get(key, default)
        if key in self and not isinstance(value, str):
            self.at(key).fail(f"is text, not {preview(value)}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: Any = _REQUIRED) -> Any:
        value = self.text(key, default)
        if key in self and value not in choices:
            self.at(key).fail(f"is one of {', '.join(choices)}, not {value!r}")
        return value

    def integer(self, key: str, default: Any = _REQUIRED, least: int = 0) -> Any:
        value = self.get(key, default)
        if key in self and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            self.at(key).fail(f"is a whole number from {least} on, not {preview(value)}")
        if key in self and value > MAX_INT32:
            self.at(key).fail(f"is a whole number up to {MAX_INT32}, not {preview(value)}")
        return value

    def number(self, key: str) -> float:
        """Read a finite number that is not negative: a cost, tolerance or option."""
        return float(_not_negative(read_numbers(self.get(key), (), self.at(key)), self.at(key)))

    def number_or_rows(self, key: str, rows: int | None) -> np.ndarray:
        """Read a finite number that is not negative, or a list of `rows` of them; None: of any length."""
        value = self.get(key)
        shape = (rows or len(value),) if isinstance(value, list) else ()
        return _not_negative(read_numbers(value, shape, self.at(key)), self.at(key))


def read_numbers(value: Any, shape: tuple[int, ...], place: Place) -> np.ndarray:
    """Read numbers in nested lists as a float64 array of exactly this shape; NaN and infinity pass."""
    wanted = "a number" if not shape else f"{' x '.join(map(str, shape))} numbers"
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in _flat(value)):
        place.fail(f"is {wanted}, not {preview(value)}")
    try:
        array = np.array(value, float)
    except ValueError:
        place.fail(f"is {wanted}; its rows differ in length")
    if array.shape != shape:
        place.fail(f"is {wanted}, not {preview(value)}")
    return array


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _not_negative(value: np.ndarray, place: Place) -> np.ndarray:
    if not (np.isfinite(value) & (value >= 0)).all():
        place.fail(f"is finite and not negative, not {preview(value.tolist())}")
    return value


def preview(value: Any) -> str:
    """Format a value for an error message; of a list the first 8 entries."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        text = ", ".join(preview(item) for item in value[:8])
        return f"[{text}{', ...' if len(value) > 8 else ''}]"
    return "a mapping" if isinstance(value, Mapping) else repr(value)
