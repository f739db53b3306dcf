"""The live picture of a replay, on a terminal; elsewhere nothing is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from tieredkv.cli.report import Report

__all__ = ["Screen"]

_REFRESH_S: Final = 0.1


class Screen:
    """Draws on a console as long as it is open, then leaves no trace."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._progress = Progress(
            TextColumn("requests"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
            expand=True,
        )

    @contextmanager
    def open(self) -> Iterator[None]:
        """Draw inside this; lines that are logged meanwhile appear above the picture."""
        if not self._console.is_interactive:
            yield
            return
        with self._live:
            yield

    async def keep_current(self, report: Callable[[], Report]) -> None:
        """Draw the latest report again and again, until cancelled."""
        if not self._live.is_started:
            return
        task = self._progress.add_task("", total=None)
        while True:
            now = report()
            self._progress.update(task, completed=now.requests, total=now.planned_requests)
            self._live.update(Group(self._progress, now.table()), refresh=True)
            await anyio.sleep(_REFRESH_S)
