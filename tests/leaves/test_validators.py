"""Settings: what is refused, and what the refusal says."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable
from fractions import Fraction

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tieredkv.config import (
    GiB,
    KiB,
    L1Config,
    MiB,
    TiB,
    WriteThrough,
    boolean,
    choice,
    number,
    parse_size,
    seconds,
    whole,
)
from tieredkv.errors import ConfigError, TieredKVError

UNITS = {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}

# One of each type that JSON, TOML, YAML or a careless caller may put in a number's place.
NOT_NUMBERS = [True, False, None, "1", b"1", [1], {"a": 1}, (1,), 1j, decimal.Decimal(1), ...]


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TieredKVError)
    return str(caught.value)


class TestSizes:
    def test_constants(self) -> None:
        assert (KiB, MiB, GiB, TiB) == (2**10, 2**20, 2**30, 2**40)

    @pytest.mark.parametrize(("unit", "nbytes"), UNITS.items())
    def test_eight_units(self, unit: str, nbytes: int) -> None:
        assert parse_size(f"3{unit}") == 3 * nbytes
        assert parse_size(f" 1.5 {unit} ") == nbytes * 3 // 2
        assert parse_size(f"0{unit}") == 0

    @given(
        whole_part=st.integers(0, 10**6),
        fraction=st.text("0123456789", max_size=30),
        unit=st.sampled_from(list(UNITS)),
    )
    @example(0, "99999999999999999999999999999", "kB")
    def test_exact_to_the_byte(self, whole_part: int, fraction: str, unit: str) -> None:
        text = f"{whole_part}.{fraction}" if fraction else str(whole_part)
        assert parse_size(text + unit) == math.floor(Fraction(text) * UNITS[unit])

    def test_whatever_the_callers_decimal_context(self) -> None:
        with decimal.localcontext() as context:
            context.prec = 2
            context.traps[decimal.Inexact] = True
            assert parse_size("1.2345678GiB") == math.floor(Fraction("1.2345678") * GiB)

    @given(st.integers(0, 2**63 - 1))
    def test_an_int_is_bytes(self, nbytes: int) -> None:
        assert parse_size(nbytes) == nbytes

    @pytest.mark.parametrize("letter", "kKmMgGtT")
    def test_a_bare_letter_is_refused_with_both_readings(self, letter: str) -> None:
        message = refusal(lambda: parse_size(f"4{letter}", field="capacity"))
        assert message.startswith(f"capacity='4{letter}' has two readings: write ")
        two, ten = {
            "K": ("KiB", "kB"),
            "M": ("MiB", "MB"),
            "G": ("GiB", "GB"),
            "T": ("TiB", "TB"),
        }[letter.upper()]
        assert f"'4{two}' ({4 * UNITS[two]} bytes)" in message
        assert f"'4{ten}' ({4 * UNITS[ten]} bytes)" in message

    @pytest.mark.parametrize(
        ("text", "nearest"),
        [
            ("4GIB", "GiB"),
            ("4gib", "GiB"),
            ("4KB", "kB"),
            ("4kib", "KiB"),
            ("4mb", "MB"),
            ("4Gib", "GiB"),
            ("4GiBs", "GiB"),
        ],
    )
    def test_other_spellings_are_refused_with_the_nearest_unit(
        self, text: str, nearest: str
    ) -> None:
        message = refusal(lambda: parse_size(text))
        assert f"(did you mean {nearest!r}?)" in message
        assert " ".join(UNITS) in message

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "GiB",
            "-1GiB",
            "+1GiB",
            "1,5GiB",
            "1_000GiB",
            ".5GiB",
            "1.GiB",
            "1e3GiB",
            "0x10GiB",
            "nan",
            "inf",
            "nanGiB",
            "4 GiB 1",
            "4GiB;",
            "\u0664GiB",
            "4 furlongs",
            "10%",
            "9" * 5000 + "GiB",
        ],
        ids=lambda text: repr(text[:12]),
    )
    def test_not_a_size(self, text: str) -> None:
        assert refusal(lambda: parse_size(text, field="overflow")).startswith("overflow=")

    @pytest.mark.parametrize("text", ["4", "4.5", "4096 "])
    def test_a_bare_number_as_text_has_no_unit(self, text: str) -> None:
        assert "no unit" in refusal(lambda: parse_size(text))

    @pytest.mark.parametrize("value", [*NOT_NUMBERS, 1.0, math.nan, math.inf], ids=repr)
    def test_wrong_types(self, value: object) -> None:
        if value != "1":
            assert "is not a size" in refusal(lambda: parse_size(value))

    @pytest.mark.parametrize("value", [-1, -(2**70), pytest.param(-(10**5000), id="huge negative")])
    def test_negative(self, value: int) -> None:
        refusal(lambda: parse_size(value))

    def test_an_int_beyond_any_memory(self) -> None:
        assert "bits" in refusal(lambda: parse_size(10**5000, field="capacity"))


class TestNumbers:
    @pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
    def test_wrong_types(self, value: object) -> None:
        assert refusal(lambda: number(value, field="ratio", low=0)).startswith("ratio=")
        assert refusal(lambda: whole(value, field="count", low=0)).startswith("count=")
        assert refusal(lambda: seconds(value, field="wait_s")).startswith("wait_s=")

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_not_finite(self, value: float) -> None:
        assert "must be finite" in refusal(lambda: number(value, field="ratio", low=0, high=1))
        assert "must be finite" in refusal(lambda: seconds(value, field="wait_s"))
        assert "whole number" in refusal(lambda: whole(value, field="count", low=0))

    @pytest.mark.parametrize("digits", [400, 5000])
    def test_an_int_that_no_float_can_hold(self, digits: int) -> None:
        value = 10**digits
        assert "finite" in refusal(lambda: number(value, field="ratio", low=0))
        assert "count" in refusal(lambda: whole(value, field="count", low=0))

    @given(value=st.floats(allow_nan=False, allow_infinity=False), low=st.just(0.0))
    def test_range_ends_are_in_range(self, value: float, low: float) -> None:
        if 0 <= value <= 1:
            assert number(value, field="ratio", low=low, high=1) == value
        else:
            message = refusal(lambda: number(value, field="ratio", low=low, high=1))
            assert message == f"ratio={value} is outside 0.0..1"

    @given(st.integers(-(2**63) + 1, 2**63 - 1))
    def test_whole_range(self, value: int) -> None:
        if 1 <= value <= 64:
            assert whole(value, field="count", low=1, high=64) == value
        else:
            message = refusal(lambda: whole(value, field="count", low=1, high=64))
            assert message == f"count={value} is outside 1..64"
        if value < 1:
            assert "1 and up" in refusal(lambda: whole(value, field="count", low=1))

    def test_a_float_is_no_whole_number(self) -> None:
        assert "not float" in refusal(lambda: whole(3.0, field="count", low=0))

    def test_an_int_is_a_number(self) -> None:
        result = number(1, field="ratio", low=0, high=1)
        assert result == 1.0
        assert type(result) is float

    @pytest.mark.parametrize("value", [0, 0.0, -0.0, -1, -1e-9])
    def test_seconds_are_above_zero(self, value: float) -> None:
        refusal(lambda: seconds(value, field="wait_s"))

    @given(st.floats(min_value=5e-324, allow_infinity=False))
    def test_any_positive_number_of_seconds(self, value: float) -> None:
        assert seconds(value, field="wait_s") == value


class TestBooleans:
    def test_true_and_false(self) -> None:
        assert boolean(True, field="prefault") is True
        assert boolean(False, field="prefault") is False

    @pytest.mark.parametrize("value", ["false", "true", "", 0, 1, None, [], 0.0, "no"], ids=repr)
    def test_nothing_else(self, value: object) -> None:
        message = refusal(lambda: boolean(value, field="prefault"))
        assert message.startswith(f"prefault={value!r} must be true or false")


class TestChoices:
    CHOICES = ("LRU", "S3-FIFO", "ARC")

    @pytest.mark.parametrize("value", CHOICES)
    def test_exactly(self, value: str) -> None:
        assert choice(value, field="policy", choices=self.CHOICES) == value

    @pytest.mark.parametrize(
        ("value", "nearest"), [("lru", "LRU"), ("S3FIFO", "S3-FIFO"), ("arcs", "ARC")]
    )
    def test_the_nearest_is_named(self, value: str, nearest: str) -> None:
        message = refusal(lambda: choice(value, field="policy", choices=self.CHOICES))
        assert message.startswith(f"policy={value!r} must be one of 'LRU', 'S3-FIFO', 'ARC'")
        assert message.endswith(f"(did you mean {nearest!r}?)")

    @pytest.mark.parametrize(
        "value", ["", "clairvoyant", None, 1, True, ["first"], b"FIFO"], ids=repr
    )
    def test_nothing_near(self, value: object) -> None:
        message = refusal(lambda: choice(value, field="policy", choices=self.CHOICES))
        assert "did you mean" not in message


class TestL1Config:
    def test_defaults(self) -> None:
        config = L1Config(capacity="4GiB")
        assert config.capacity == 4 * GiB
        assert config.overflow == 512 * MiB
        assert config.alignment_bytes == 4096
        assert (config.trigger_watermark, config.eviction_ratio) == (0.8, 0.2)
        assert config.lease_warn_s == 60

    @given(st.integers(4096, 2**42))
    def test_overflow_is_an_eighth_but_at_least_64_mib(self, capacity: int) -> None:
        assert L1Config(capacity=capacity).overflow == max(64 * MiB, capacity // 8)

    def test_overflow_can_be_turned_off(self) -> None:
        assert L1Config(capacity=4096, overflow=0).overflow == 0

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("capacity", True),
            ("capacity", None),
            ("capacity", "4G"),
            ("capacity", 4095),
            ("capacity", 0),
            ("capacity", -1),
            ("capacity", 1e9),
            ("capacity", "999999999TiB"),
            ("overflow", "lots"),
            ("overflow", False),
            ("overflow", -1),
            ("alignment_bytes", 4095),
            ("alignment_bytes", 96),
            ("alignment_bytes", 32),
            ("alignment_bytes", 0),
            ("alignment_bytes", -4096),
            ("alignment_bytes", 4096.0),
            ("alignment_bytes", "4KiB"),
            ("alignment_bytes", True),
            ("alignment_bytes", 2 * GiB),
            ("trigger_watermark", 80),
            ("trigger_watermark", -0.1),
            ("trigger_watermark", 1.0000001),
            ("trigger_watermark", math.nan),
            ("trigger_watermark", "0.8"),
            ("trigger_watermark", True),
            ("eviction_ratio", 20),
            ("eviction_ratio", -1),
            ("eviction_ratio", math.nan),
            ("eviction_ratio", False),
            ("eviction_ratio", None),
            ("lease_warn_s", 0),
            ("lease_warn_s", -1),
            ("lease_warn_s", math.inf),
            ("lease_warn_s", math.nan),
            ("lease_warn_s", True),
            ("lease_warn_s", "60"),
        ],
    )
    def test_refusals_name_the_field(self, field: str, value: object) -> None:
        arguments = {"capacity": 16 * MiB} | {field: value}
        assert field in refusal(lambda: L1Config(**arguments))  # type: ignore[arg-type]

    def test_more_blocks_than_the_allocator_can_count(self) -> None:
        message = refusal(lambda: L1Config(capacity="200GiB", alignment_bytes=64))
        assert "alignment_bytes=64" in message

    def test_frozen_and_by_keyword_only(self) -> None:
        config = L1Config(capacity=MiB)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            config.capacity = 1  # type: ignore[misc]
        with pytest.raises(TypeError):
            L1Config(MiB)  # type: ignore[call-arg]

    def test_evolve_validates_again(self) -> None:
        with pytest.raises(ConfigError, match=re.escape("trigger_watermark=2")):
            attrs.evolve(L1Config(capacity=MiB), trigger_watermark=2)


class TestWriteThrough:
    def test_default(self) -> None:
        assert WriteThrough().require == "any"

    def test_the_nearest_requirement_is_named(self) -> None:
        message = refusal(lambda: WriteThrough(require="All"))  # type: ignore[arg-type]
        assert message.endswith("(did you mean 'all'?)")
        refusal(lambda: WriteThrough(require=True))  # type: ignore[arg-type]
