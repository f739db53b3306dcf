"""Every error this library raises, in one tree.

::

    TieredKVError
    ├── ConfigError                 (ValueError) a setting that cannot work
    ├── KeyFormatError              (ValueError) a key or wire name out of form
    ├── ValueFormatError            (ValueError) bytes that cannot be taken as they are
    ├── LeaseReleasedError          (RuntimeError) a memory object used after its release
    ├── StoreClosedError            (RuntimeError) the store or backend is not open
    ├── WrongLoopError              (RuntimeError) called from another event loop
    ├── PutFailedError              a put that did not meet its requirement; ``.result`` says where
    ├── SizeMismatchError           a value of another size than was asked for
    ├── OutOfMemoryError            L1 and its overflow have no room for the value
    ├── MissingDependencyError      (ImportError) a package that a backend needs is absent or unfit
    └── TierError                   a tier failed; ``.tier`` says which, ``.operation`` at what
        ├── TierUnavailableError    it cannot be reached, or did not answer in time
        └── TierFullError           it has no room

Objects of a wrong *type* raise the built-in ``TypeError``. No message holds a secret or a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from tieredkv.results import PutResult

__all__ = [
    "ConfigError",
    "KeyFormatError",
    "LeaseReleasedError",
    "MissingDependencyError",
    "OutOfMemoryError",
    "PutFailedError",
    "SizeMismatchError",
    "StoreClosedError",
    "TierError",
    "TierFullError",
    "TierUnavailableError",
    "TieredKVError",
    "ValueFormatError",
    "WrongLoopError",
]

ErrorT = TypeVar("ErrorT", bound=BaseException)


def without_frames(error: ErrorT) -> ErrorT:
    """Drop the tracebacks of an error and of those that led to it, and return it.

    The frames hold what was in use when it was raised: the memory of a request, the buffers of a
    vendor's client. An error that is kept would keep those, too. For worker threads: on the event
    loop, what led to an error may be one that the caller is handling, and that is the caller's.
    """
    errors: list[BaseException] = [error]
    for one in errors:  # grows meanwhile
        one.__traceback__ = None
        led = (one.__cause__, one.__context__)
        errors += [other for other in led if other is not None and other not in errors]
    return error


class TieredKVError(Exception):
    """Root of every error of this library."""


class ConfigError(TieredKVError, ValueError):
    """A setting is malformed or out of range; the message names field, value and remedy."""


class KeyFormatError(TieredKVError, ValueError):
    """A key or a wire name is out of form; the message names the part."""


class ValueFormatError(TieredKVError, ValueError):
    """A value cannot be stored as it is (layout, size); the message says how to make it fit."""


class LeaseReleasedError(TieredKVError, RuntimeError):
    """A memory object was used, or released again, after its lease had ended."""


class StoreClosedError(TieredKVError, RuntimeError):
    """The store or backend is not open: not entered yet, or closed already."""


class WrongLoopError(TieredKVError, RuntimeError):
    """An object that belongs to one event loop was called from another one."""


class PutFailedError(TieredKVError):
    """A put did not meet the write policy's requirement.

    Attributes:
        result: The outcome, with one entry a tier.
    """

    def __init__(self, result: PutResult) -> None:
        detail = ", ".join(f"{tier}: {outcome}" for tier, outcome in result.tiers.items())
        super().__init__(f"put of {result.key!r} did not reach the tiers it requires ({detail})")
        self.result: PutResult = result

    def __reduce__(self) -> tuple[type[Self], tuple[PutResult]]:
        return type(self), (self.result,)


class SizeMismatchError(TieredKVError):
    """The stored value has another size than was asked for.

    Attributes:
        stored: Payload bytes that the tier holds.
        wanted: Payload bytes that the caller asked for.
    """

    def __init__(self, stored: int, wanted: int) -> None:
        super().__init__(f"the stored value has {stored} bytes, {wanted} were asked for")
        self.stored: int = stored
        self.wanted: int = wanted

    def __reduce__(self) -> tuple[type[Self], tuple[int, int]]:
        return type(self), (self.stored, self.wanted)


class OutOfMemoryError(TieredKVError):
    """L1 and its overflow have no room for a value that needs memory now.

    Attributes:
        nbytes: Size of the value.
    """

    def __init__(self, nbytes: int) -> None:
        super().__init__(
            f"L1 has no memory for {nbytes} bytes: release leases and views, or give it more"
        )
        self.nbytes: int = nbytes

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self.nbytes,)


class MissingDependencyError(TieredKVError, ImportError):
    """A package that is imported on demand is missing or unfit; the message has the command."""


class TierError(TieredKVError):
    """A tier failed at an operation.

    Attributes:
        tier: Name of the tier.
        operation: What it was doing: ``"open"``, ``"read"``, ``"write"``, ``"stat"``, …
        reason: What went wrong and, where there is one, the remedy.
    """

    def __init__(self, tier: str, operation: str, reason: str) -> None:
        super().__init__(f"{tier}: {operation}: {reason}")
        self.tier: str = tier
        self.operation: str = operation
        self.reason: str = reason

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        return type(self), (self.tier, self.operation, self.reason)


class TierUnavailableError(TierError):
    """The tier cannot be reached or did not answer in time; what it holds is unknown."""


class TierFullError(TierError):
    """The tier has no room for the value."""
