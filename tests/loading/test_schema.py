"""Settings are read off signatures: what a new keyword argument needs is nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import attrs
import pytest

from tieredkv.config import Size
from tieredkv.errors import ConfigError
from tieredkv.loading.schema import construct, fields_of, given, tag_of


@attrs.frozen(kw_only=True)
class WriteNever:
    reason: str = ""


@attrs.frozen(kw_only=True)
class WriteLater:
    after_s: float
    most: int = attrs.field(default=0, converter=int)


class Store:
    def __init__(
        self,
        place: str | Sequence[str],
        *,
        policy: WriteNever | WriteLater | None = None,
        level: Literal["low", "high", False] = "low",
        size: Size | None = None,
        memory: object = None,
    ) -> None:
        self.arguments = {"place": place, "policy": policy, "level": level, "size": size}


def made(**values: Any) -> dict[str, Any]:
    return construct(Store, fields_of(Store), given(values, "here"), path="here").arguments


def test_only_what_plain_data_can_express_is_a_setting() -> None:
    assert list(fields_of(Store)) == ["place", "policy", "level", "size"]
    assert [name for name, field in fields_of(Store).items() if field.is_required] == ["place"]
    assert [name for name, field in fields_of(Store).items() if field.is_size] == ["size"]


def test_one_of_several_classes_is_chosen_by_its_type() -> None:
    assert tag_of(WriteLater) == "write_later"
    assert made(place="x", policy="write_never")["policy"] == WriteNever()
    later = {"type": "write_later", "after_s": 1, "most": 2}
    assert made(place="x", policy=later)["policy"] == WriteLater(after_s=1, most=2)
    assert made(place="x", policy=None)["policy"] is None


def test_lists_literals_and_sizes() -> None:
    assert made(place=["a", "b"], level=False, size="1MiB") == {
        "place": ["a", "b"],
        "policy": None,
        "level": False,
        "size": "1MiB",
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"policy": {"after_s": 1}}, "here.policy.type is missing: it is one of write_never, wri"),
        ({"policy": {"type": "write_late"}}, "here.policy.type='write_late' must be one of"),
        ({"policy": {"type": "write_later"}}, "here.policy.after_s is missing: it must be given"),
        ({"policy": "write_later"}, "here.policy.after_s is missing: it must be given"),
        (
            {"policy": {"type": "write_later", "after_s": "1"}},
            "here.policy.after_s='1' must be a n",
        ),
        ({"level": True}, "here.level=True must be 'low' or 'high' or False"),
        ({"level": "lo"}, "here.level='lo' must be 'low' or 'high' or False"),
        ({"place": 1}, "here.place=1 must be a text or a list of texts"),
        ({"size": 1.5}, "here.size=1.5 must be a size (bytes, or a text like '4GiB')"),
    ],
)
def test_another_type_is_refused_in_words(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        made(**{"place": "x", **values})
