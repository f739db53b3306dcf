"""Errors: the tree in the documentation is the tree in the code, and errors travel."""

from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import re

import pytest

from tieredkv import errors
from tieredkv.keys import ObjectKey
from tieredkv.results import PutResult, PutStatus, WriteOutcome

RESULT = PutResult(
    ObjectKey("m", 0, b"\x01"), ok=False, tiers={"l1": WriteOutcome(PutStatus.REJECTED)}
)
SAMPLES: list[errors.TieredKVError] = [
    errors.TieredKVError("all"),
    errors.ConfigError("field=1 is outside 2..3"),
    errors.KeyFormatError("the key is empty"),
    errors.ValueFormatError("not contiguous"),
    errors.LeaseReleasedError("released"),
    errors.StoreClosedError("closed"),
    errors.WrongLoopError("another loop"),
    errors.PutFailedError(RESULT),
    errors.SizeMismatchError(10, 20),
    errors.OutOfMemoryError(4096),
    errors.MissingDependencyError("pip install it"),
    errors.TierError("disk", "write", "no such directory"),
    errors.TierUnavailableError("valkey", "read", "no answer within 5 s"),
    errors.TierFullError("disk", "write", "full"),
]


def drawn_tree() -> dict[str, tuple[str, str | None]]:
    """Read class → (parent, built-in base) off the module's docstring."""
    tree: dict[str, tuple[str, str | None]] = {}
    parents = {0: "TieredKVError"}
    for line in inspect.getdoc(errors).splitlines():  # type: ignore[union-attr]
        found = re.fullmatch(r" {4}([│ ]*)[├└]── (\w+)\s+(?:\((\w+)\))?.*", line)
        if found:
            depth = len(found[1]) // 4
            tree[found[2]] = (parents[depth], found[3])
            parents[depth + 1] = found[2]
    return tree


def test_the_tree_is_drawn_as_it_is() -> None:
    real = {}
    for name in errors.__all__:
        if name == "TieredKVError":
            continue
        bases = getattr(errors, name).__bases__
        ours = [base.__name__ for base in bases if base.__module__ == errors.__name__]
        foreign = [base.__name__ for base in bases if hasattr(builtins, base.__name__)]
        real[name] = (ours[0], foreign[0] if foreign else None)
    assert drawn_tree() == real


def test_every_error_is_public_and_of_one_root() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert defined == set(errors.__all__)
    assert all(issubclass(getattr(errors, name), errors.TieredKVError) for name in defined)
    assert {type(sample) for sample in SAMPLES} == {getattr(errors, name) for name in defined}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_errors_cross_process_borders(error: errors.TieredKVError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_a_tier_error_says_tier_operation_and_reason() -> None:
    error = errors.TierUnavailableError("valkey", "read", "no answer within 5 s")
    assert str(error) == "valkey: read: no answer within 5 s"
    assert (error.tier, error.operation, error.reason) == ("valkey", "read", "no answer within 5 s")


def test_an_error_that_is_kept_keeps_no_frames_not_even_of_those_that_led_to_it() -> None:
    def first() -> None:
        raise KeyError("first")

    def second() -> None:
        try:
            first()
        except KeyError:
            raise OSError("second") from ValueError("cause")

    def third() -> None:
        try:
            second()
        except OSError as error:
            raise errors.TierError("disk", "write", "third") from error

    with pytest.raises(errors.TierError) as raised:
        third()
    error = errors.without_frames(raised.value)
    assert error is raised.value
    cause = error.__cause__
    assert cause is not None
    chain = (error, cause, cause.__cause__, cause.__context__)
    assert [str(one.__traceback__) for one in chain if one is not None] == ["None"] * 4
