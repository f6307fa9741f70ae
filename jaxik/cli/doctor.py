"""`jaxik doctor`: what is installed, what the machine offers, and whether a solve is right."""

import argparse
import json

from rich.text import Text

from jaxik.cli.consoles import console
from jaxik.cli.finding import Finding, examined, reason
from jaxik.cli.packages import check_extras, check_versions

STYLES = {"ok": "green", "missing": "yellow", "fault": "bold red"}
FAULT = 1


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print a line for each check; the exit code is 1 where one of them found a fault."""
    findings = {"versions": examined(check_versions), "extras": examined(check_extras)} | _machine()
    faults = [name for name, finding in findings.items() if finding.state == "fault"]
    if arguments.json:
        print(json.dumps(_as_json(findings, faults), indent=2))
    else:
        _show(findings)
    return FAULT if faults else 0


def _machine() -> dict[str, Finding]:
    # Imported here: where JAX or MuJoCo cannot be imported, versions still are what one asks for first.
    try:
        from jaxik.cli.machine import CHECKS, check_devices
    except Exception as error:
        advice = "pip install --force-reinstall the package that the message names"
        return {"imports": Finding(reason(error), state="fault", advice=advice)}
    devices = {"devices": examined(check_devices)}
    if devices["devices"].state == "fault":
        return devices
    return devices | {name: examined(check) for name, check in CHECKS.items()}


def _show(findings: dict[str, Finding]) -> None:
    out, width = console(), max(map(len, findings))
    for name, finding in findings.items():
        line = Text(f"{finding.state:<8}", STYLES[finding.state]).append(f"{name:<{width + 2}}", "not bold default")
        line.append(finding.said, "not bold default").append(f": {finding.advice}" if finding.advice else "", "bold")
        out.print(line, soft_wrap=True)


def _as_json(findings: dict[str, Finding], faults: list[str]) -> dict[str, object]:
    """Faults by name; of each check its data, and what is said and advised where it is not well."""
    checks: dict[str, object] = {}
    for name, finding in findings.items():
        more = {} if finding.state == "ok" else {"said": finding.said, "advice": finding.advice}
        checks[name] = {"state": finding.state} | more | finding.data
    versions = findings["versions"].data
    return {"faults": faults, "versions": versions, "checks": {k: v for k, v in checks.items() if k != "versions"}}
