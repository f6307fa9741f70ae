"""Pictures of what `search` and the other libraries do: success against time, throughput against batch size."""

from pathlib import Path
from typing import Any

MARKERS = {"jaxik": "o", "newton": "s", "mink": "^", "pink": "v", "mjinx": "D"}


def draw(results: dict[str, Any], folder: Path) -> None:
    """Write `search_success.png` and `search_throughput.png`."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    _success(results["panda"], folder / "search_success.png")
    _throughput(results, folder / "search_throughput.png")


def _success(libraries: dict[str, Any], path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    missing_floor = 1.0
    for name, points in libraries.items():
        if "absent" in points:
            continue
        # One of twice as many targets stands for none that was missed, which a logarithm cannot show.
        missed = [max(1 - point["success"], 0.5 / point["targets"]) for point in points]
        missing_floor = min(missing_floor, *missed)
        ends = f"{name}, {points[0]['setting']} to {points[-1]['setting']}"
        axes.plot([point["us_per_target"] for point in points], missed, marker=MARKERS[name], label=ends)
    axes.set(xscale="log", yscale="log", ylim=(0.6 * missing_floor, 1.0))
    axes.margins(x=0.15)
    axes.set(xlabel="time per target [µs], one device", ylabel="share of targets not reached")
    axes.set_title("Panda: 1e-4 m, 1e-3 rad, within limits, judged by C MuJoCo")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _throughput(results: dict[str, Any], path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    table = results["throughput"]
    axes.plot(list(table), [row["targets_per_s"] for row in table.values()], marker="o", label="jaxik")
    peers = {
        name: points[-1] for name, points in results["panda"].items() if name != "jaxik" and "absent" not in points
    }
    for place, (name, point) in enumerate(peers.items(), 1):
        axes.axhline(point["targets_per_s"], linestyle="--", color=f"C{place}", label=f"{name}, {point['setting']}")
    axes.set(xscale="log", yscale="log", xlabel="batch size", ylabel="verified targets per second")
    axes.set_xticks(list(table), [_short(batch) for batch in table], minor=False)
    axes.minorticks_off()
    axes.set_title("Panda: throughput by batch size")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(loc=(0.62, 0.2))
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _short(count: int) -> str:
    """262144 as 256 Ki: whole, the largest would run into each other."""
    for power, unit in ((20, " Mi"), (10, " Ki")):
        if count >> power and count % (1 << power) == 0:
            return f"{count >> power}{unit}"
    return str(count)
