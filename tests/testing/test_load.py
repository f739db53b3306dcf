"""The load of the fault tests finds out wrong bytes and failures without a name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tieredkv.backends.base import ReadRequest, WriteRequest
from tieredkv.errors import TierError, TierUnavailableError
from tieredkv.results import GetStatus, PutStatus, ReadOutcome, WriteOutcome
from tieredkv.testing.load import Load, under_load
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio


class _Mixing(MemoryBackend):
    """Gives what was asked for first to whoever asks for a value of that size."""

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        first: dict[int, str] = {}
        return await super().read_many(
            [
                ReadRequest(
                    first.setdefault(request.nbytes, request.name), request.buffers, request.check
                )
                for request in requests
            ]
        )


class _Failing(MemoryBackend):
    """Fails every read and every write with an error."""

    error: TierError | None = None

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        return [ReadOutcome(GetStatus.UNKNOWN, self.error) for _ in requests]

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        return [WriteOutcome(PutStatus.FAILED, None, self.error) for _ in requests]


async def test_all_is_well_over_a_backend_that_works() -> None:
    backend = MemoryBackend()
    await backend.open()
    async with under_load(backend) as load:
        await load.recovered()
    await backend.aclose()
    assert (load.wrong, load.failures) == ([], {})


async def test_a_value_of_another_name_is_found_out() -> None:
    backend = _Mixing()
    await backend.open()
    load = Load(backend)
    assert await load.write(load.names) == load.names
    hits = await load.read(load.names)
    await backend.aclose()
    assert len(hits) == 3
    assert len(load.wrong) == len(load.names) - 3


@pytest.mark.parametrize(
    ("error", "is_named"),
    [
        (TierUnavailableError("memory", "read", "refused"), True),
        (TierError("another", "read", "refused"), False),
        (TierError("memory", "read", ""), False),
        (None, False),
    ],
)
async def test_a_failure_has_to_name_its_tier_and_reason(
    error: TierError | None, *, is_named: bool
) -> None:
    backend = _Failing()
    backend.error = error
    load = Load(backend)
    assert await load.read(["chunk-1"]) == await load.write(["chunk-1"]) == []
    assert (len(load.wrong), load.failures.total()) == ((0, 2) if is_named else (2, 0))
    assert load.num_answers == 2
