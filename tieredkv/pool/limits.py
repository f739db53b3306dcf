"""How much memory this process may have, as the system says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["memory_limits", "warn_of_limits"]

_log: Final = logging.getLogger(__name__)

_KiB: Final = 1024


def memory_limits(root: Path = Path("/")) -> dict[str, int]:
    """Return the limits that are known, in bytes, by what they are called; none but on Linux.

    ``MemAvailable`` is what can be had without swapping now; ``memory.max`` is the lowest limit of
    the control groups that the process is in (a container's).

    Source: Linux, Documentation/filesystems/proc.rst and admin-guide/cgroup-v2.rst.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    limits: dict[str, int] = {}
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            limits["MemAvailable"] = int(line.split()[1]) * _KiB
    group_limits = list(_group_limits(root))
    if group_limits:
        limits["memory.max"] = min(group_limits)
    return limits


def warn_of_limits(capacity_bytes: int, overflow_bytes: int) -> None:
    """Log whether the system has less memory than L1 may come to use."""
    used_bytes = capacity_bytes + overflow_bytes
    for limit, limit_bytes in memory_limits().items():
        if used_bytes > limit_bytes:
            _log.warning(
                "L1 may use %d bytes (capacity %d, overflow %d), but %s is %d: the system may end "
                "the process; lower the capacity",
                *(used_bytes, capacity_bytes, overflow_bytes, limit, limit_bytes),
            )


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the limits of the process's control group and of those around it."""
    groups = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        hierarchy, _, path = line.partition("::")
        if hierarchy != "0":  # of version 1
            continue
        group = groups / path.lstrip("/")
        for directory in (group, *group.parents):
            for limit in _lines(directory / "memory.max"):
                if limit.isdecimal():  # else "max"
                    yield int(limit)
            if directory == groups:
                break


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
