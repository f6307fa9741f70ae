"""A table of what each test module compiles: `pytest --compiled` prints it, longest first.

A suite of JAX is compile time, so this is where to look before a test is made quicker: the number of programs, and the
seconds for tracing, lowering and compiling (or reading from the cache) them. These are by the clock, and longer beside
another load; "cpu" is what processors spent, on finished subprocesses too, and hardly depends on that.
"""

import os
from collections import defaultdict
from collections.abc import Iterator

import jax
import pytest

EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
totals = {"programs": 0.0, "trace": 0.0, "lower": 0.0, "compile": 0.0}


def _listen(event: str, seconds: float, **_: object) -> None:
    if event in EVENTS:
        totals[EVENTS[event]] += seconds
        totals["programs"] += EVENTS[event] == "compile"


jax.monitoring.register_event_duration_secs_listener(_listen)


def _spent() -> dict[str, float]:
    return totals | {"cpu": sum(os.times()[:4])}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compiled", action="store_true", help="print what each module compiles")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _spent()
    item.user_properties.append(("compiled", before))
    result = yield
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Put what the test compiled into its last report, which is the one that crosses from a worker to the terminal."""
    yield
    for name, before in item.user_properties:
        if name == "compiled":
            before.update({key: value - before[key] for key, value in _spent().items()})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--compiled"):
        return
    modules: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for report in [r for reports in terminalreporter.stats.values() for r in reports]:
        module = getattr(report, "nodeid", "").split("::")[0]
        modules[module]["seconds"] += getattr(report, "duration", 0.0)
        if getattr(report, "when", None) == "teardown":
            for key, value in dict(report.user_properties).get("compiled", {}).items():
                modules[module][key] += value
    columns = ["cpu", "seconds", "programs", "trace", "lower", "compile"]
    terminalreporter.section("compiled")
    terminalreporter.line(f"{'module':44s}" + "".join(f"{c:>10s}" for c in columns))
    for module, row in sorted(modules.items(), key=lambda item: -item[1]["cpu"]):
        terminalreporter.line(f"{module:44s}" + "".join(f"{row[c]:10.1f}" for c in columns))
