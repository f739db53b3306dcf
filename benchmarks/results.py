"""Results of benchmarks, and the files that keep them: the page is drawn from nothing else."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import attrs

from benchmarks.report import Figure, Report, Row

__all__ = ["Benchmark", "Results", "Run", "Stopwatch", "dumps", "loads"]


@attrs.frozen(kw_only=True)
class Run:
    """How, where and when a benchmark was run.

    Attributes:
        command: What runs it again.
        date: Year, month and day.
        python: Implementation and version.
        system: Kernel and architecture.
        processor: Its model, if the system tells.
        cpus: How many.
        load: What the system called its load in the minute before, and in the last one.
        seconds: How long it took.
        packages: Those that the process had loaded by then, with their versions.
    """

    command: str
    date: str
    python: str
    system: str
    processor: str
    cpus: int
    load: tuple[float, float]
    seconds: float
    packages: Mapping[str, str]

    @property
    def machine(self) -> str:
        """What it ran on, in words."""
        cores = f"{self.cpus} core" + "s" * (self.cpus > 1)
        return f"{cores} of {self.processor}, {self.system}, {self.python}"


class Stopwatch:
    """Notes the circumstances of a run that begins now."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._load = os.getloadavg()[0]

    def stop(self, command: str) -> Run:
        """Return what is to be told of the run of `command` that ends now."""
        return Run(
            command=command,
            date=time.strftime("%Y-%m-%d"),
            python=f"{platform.python_implementation()} {platform.python_version()}",
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            processor=_processor(),
            cpus=os.cpu_count() or 1,
            load=(self._load, os.getloadavg()[0]),
            seconds=time.monotonic() - self._began,
            packages=_packages(),
        )


@attrs.frozen
class Benchmark:
    """One benchmark's results.

    Attributes:
        about: What it measures and how, in its own words.
        run: The circumstances.
        reports: The results.
    """

    about: str
    run: Run
    reports: tuple[Report, ...]


Results = Mapping[str, Benchmark]


def dumps(results: Results) -> str:
    """Return results as JSON, numbers with five digits."""
    plain = {name: _rounded(attrs.asdict(benchmark)) for name, benchmark in results.items()}
    return json.dumps({"benchmarks": plain}, separators=(",", ":")) + "\n"


def loads(text: str) -> dict[str, Benchmark]:
    """Return the results that a text of `dumps` holds."""
    return {
        name: Benchmark(
            about=plain["about"],
            run=Run(**plain["run"] | {"load": tuple(plain["run"]["load"])}),
            reports=tuple(map(_report, plain["reports"])),
        )
        for name, plain in json.loads(text)["benchmarks"].items()
    }


def _report(plain: dict[str, Any]) -> Report:
    rows = [Row(**row) for row in plain["rows"]]
    figures = [
        Figure(**figure | {"spread": tuple(figure["spread"]) if figure["spread"] else None})
        for figure in plain["figures"]
    ]
    return Report(**plain | {"rows": rows, "figures": figures})


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _rounded(of) for name, of in value.items()}
    return [_rounded(of) for of in value] if isinstance(value, (list, tuple)) else value


def _packages() -> dict[str, str]:
    owners = packages_distributions()
    loaded = {module.partition(".")[0] for module in sys.modules}
    names = {name for module in loaded for name in owners.get(module, ())}
    return {name: version(name) for name in sorted(names)}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor() or "an unknown processor"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else "an unknown processor"
