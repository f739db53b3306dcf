"""Values in memory, and the requests that move them: what backends and bare loops measure with."""

from __future__ import annotations

import mmap
import random

from tieredkv import ObjectKey
from tieredkv.backends.base import ReadRequest, WriteRequest
from tieredkv.frames import TRAILER_BYTES, FrameCheck, SizeCheck, seal

__all__ = ["Values"]


class Values:
    """Values of one size.

    Attributes:
        nbytes: The size of each.
        names: Their wire names.
        blocks: Their memory, on pages of its own each, with room for a trailer behind the value.
        payloads: The part of each block that is the value.
    """

    def __init__(self, nbytes: int, count: int, *, scatter: bool) -> None:
        """Fill the memory.

        Args:
            nbytes: The size of each value.
            count: How many.
            scatter: Whether value and trailer are read into a buffer each.
        """
        self.nbytes = nbytes
        self.names = [ObjectKey("llama", 0, at.to_bytes(32)).wire_name for at in range(count)]
        block_bytes = -(-(nbytes + TRAILER_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = memoryview(mmap.mmap(-1, count * block_bytes))
        memory[:] = random.Random(1).randbytes(block_bytes) * count
        starts = range(0, count * block_bytes, block_bytes)
        self.blocks = [memory[at : at + nbytes + TRAILER_BYTES] for at in starts]
        self.payloads = [block[:nbytes] for block in self.blocks]
        self._scatter = scatter

    def reads(self, mode: str) -> list[ReadRequest]:
        """Return requests for all values, in a mode of integrity."""
        make = self._framed_read if mode == "checksum" else self._bare_read
        return [make(at) for at in range(len(self.names))]

    def writes(self, mode: str) -> list[WriteRequest]:
        """Return requests to write all values, in a mode of integrity."""
        make = self._framed_write if mode == "checksum" else self._bare_write
        return [make(at) for at in range(len(self.names))]

    def _bare_read(self, at: int) -> ReadRequest:
        payload = self.payloads[at]
        return ReadRequest(self.names[at], (payload,), SizeCheck(self.names[at], payload))

    def _framed_read(self, at: int) -> ReadRequest:
        block, name = self.blocks[at], self.names[at]
        buffers = block[: self.nbytes], block[self.nbytes :]
        check = FrameCheck(name, *buffers)
        return ReadRequest(name, buffers if self._scatter else (block,), check)

    def _bare_write(self, at: int) -> WriteRequest:
        return WriteRequest(self.names[at], self.nbytes, self.payloads[at].toreadonly)

    def _framed_write(self, at: int) -> WriteRequest:
        name, block = self.names[at], self.blocks[at]

        def sealed() -> memoryview:
            seal(block, name, generation=1)
            return block.toreadonly()

        return WriteRequest(name, block.nbytes, sealed)
