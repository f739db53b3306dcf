"""A backend that cannot be opened says why, in the words of its tier, and is closed."""

from __future__ import annotations

import pytest

from tieredkv.errors import ConfigError, TierError, TierUnavailableError
from tieredkv.testing.memory import MemoryBackend, MemoryMedium

pytestmark = pytest.mark.anyio


class Shut(MemoryBackend):
    """Fails as it is opened."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(num_workers=1)
        self.error = error

    def _probe(self, client: MemoryMedium) -> None:
        raise self.error


class Ended(BaseException):
    """Not an error."""


async def failure_of(error: BaseException) -> BaseException:
    backend = Shut(error)
    with pytest.raises(type(error) if isinstance(error, Ended) else Exception) as failure:
        await backend.open()
    assert backend.medium.num_clients == 0
    return failure.value


async def test_of_the_medium_is_told_with_tier_and_operation() -> None:
    error = await failure_of(OSError(5, "Input/output error"))
    assert type(error) is TierError
    assert str(error) == "memory: open: OSError: [Errno 5] Input/output error"


async def test_of_a_setting_is_told_with_the_tier() -> None:
    error = await failure_of(ConfigError("num_workers=0 must be at least 1"))
    assert type(error) is ConfigError
    assert str(error) == "memory: num_workers=0 must be at least 1"


@pytest.mark.parametrize("error", [TierUnavailableError("memory", "open", "refused"), Ended()])
async def test_any_other_stays_as_it_is(error: BaseException) -> None:
    assert await failure_of(error) is error
