"""Fair use of the event loop: work that does not wait gives way now and then."""

from __future__ import annotations

from typing import Final

from anyio.lowlevel import checkpoint

from tieredkv.config import KiB, MiB

__all__ = ["BUDGET_BYTES", "HIT_BYTES", "Pacer"]

_SLICE_BYTES: Final = 1 * MiB
BUDGET_BYTES: Final = 4 * MiB
HIT_BYTES: Final = 16 * KiB  # a hit takes about as long as copying this much


class Pacer:
    """Counts what one store has done on its loop since it last gave way.

    A checkpoint costs more than a hit in L1, so hits go without one; after about a millisecond of
    hits, or 4 MiB of copying, the next operation begins with one.

    Attributes:
        spent: Bytes copied since, with `HIT_BYTES` for each hit; at `BUDGET_BYTES` it is time for
            a `pause`.
    """

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent: int = 0

    async def pause(self) -> None:
        """Let others run."""
        self.spent = 0
        await checkpoint()

    def copied(self, target: memoryview, source: memoryview) -> bool:
        """Copy bytes at once and return True, if they are one slice and no pause is due."""
        nbytes = source.nbytes
        if nbytes > _SLICE_BYTES or self.spent >= BUDGET_BYTES:
            return False
        target[:nbytes] = source
        self.spent += nbytes
        return True

    async def copy(self, target: memoryview, source: memoryview) -> None:
        """Copy bytes in slices of 1 MiB, giving way after each 4 MiB."""
        if self.copied(target, source):
            return
        for at in range(0, source.nbytes, _SLICE_BYTES):
            if self.spent >= BUDGET_BYTES:
                await self.pause()
            piece = source[at : at + _SLICE_BYTES]
            target[at : at + piece.nbytes] = piece
            self.spent += piece.nbytes
