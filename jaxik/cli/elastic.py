"""Read what may yield, and sum up by how much it did."""

from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from jaxik.cli.section import Section
from jaxik.core.trees import parts
from jaxik.limits.elastic import Elastic

KEY = "elastic"


def elastic(section: Section, key: str, of: Any, name: str | None = None) -> Elastic:
    """A constraint or limit as the value of `key` lets it yield: true, a penalty, or {penalty, order, singular_value}.

    Raises:
      ConfigError: for anything else, and what may not yield.
    """
    given: dict[str, Any] = {}
    if isinstance(value := section.get(key), dict):
        inner = section.section(key)
        inner.allow("penalty", "order", "singular_value")
        given = {k: inner.number(k) for k in ("penalty", "singular_value") if k in inner}
        given |= {"order": inner.integer("order")} if "order" in inner else {}
    elif value is False:
        section.at(key).fail("is true, a penalty or {penalty, order, singular_value}; leave it out to hold")
    elif value is not True:
        given = {"penalty": section.number(key)}
    with section.at(key).blamed():
        return Elastic(of, **given, name=name)


def without_elastic(section: Section) -> Section:
    """The section without that key."""
    return Section({key: value for key, value in section.values.items() if key != KEY}, section.place)


def yielded_facts(yielded: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By part how many elements or steps yield, and by how much in norm: all that do at the median, and at most."""
    found = {}
    for part, missed in parts(yielded).items():
        norm = np.linalg.norm(np.asarray(missed, float).reshape(len(missed), -1), axis=1)
        yields = norm[norm > 0]
        median, most = (float(np.median(yields)), float(np.max(yields))) if yields.size else (0.0, 0.0)
        found[part] = {"count": int(yields.size), "median": median, "max": most}
    return found


def yielded_table(facts: dict[str, dict[str, Any]]) -> Table:
    """The same for a person."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column in ("yielded", "how often", "median", "max"):
        table.add_column(column, justify="left" if column == "yielded" else "right")
    for part, fact in facts.items():
        table.add_row(Text(part), f"{fact['count']:,}", f"{fact['median']:.3g}", f"{fact['max']:.3g}")
    return table
