"""Wire names: their form, what they refuse, and that no two keys share one."""

from __future__ import annotations

import copy
import enum
import pickle
import re
import sys
import unicodedata

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tieredkv.errors import KeyFormatError, TieredKVError
from tieredkv.keys import (
    MAX_STR_KEY_BYTES,
    MAX_WIRE_NAME_BYTES,
    Key,
    ObjectKey,
    key_of,
    tenant_of,
    wire_name_of,
)

CONTROLS = [chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code)) == "Cc"]

# Alphabets lean towards what escaping and parsing may confuse.
_TRICKY = st.sampled_from("%@{}/\\.~-_ 0123456789abcdefABCDEF\n\x00\x7f\x85é漢🙂")
_ANY = st.characters(exclude_categories=["Cs"])
_IN_MODEL = st.one_of(_TRICKY, _ANY).filter(lambda c: c not in "@{}" and c not in CONTROLS)
_IN_SALT = _IN_MODEL.filter(lambda c: c not in "/\\")

object_keys = st.builds(
    ObjectKey,
    model_name=st.text(_IN_MODEL, min_size=1, max_size=40),
    kv_rank=st.integers(0, 2**32 - 1),
    chunk_hash=st.binary(min_size=1, max_size=32),
    object_group_id=st.one_of(st.integers(0, 300), st.integers(0, 2**70)),
    cache_salt=st.text(_IN_SALT, max_size=40),
)
str_keys = st.text(st.one_of(_TRICKY, _ANY), min_size=1, max_size=100).filter(
    lambda key: len(key.encode()) <= MAX_STR_KEY_BYTES
)
keys = st.one_of(object_keys, str_keys)


def parts(key: Key) -> object:
    return key if isinstance(key, str) else attrs.astuple(key)[:5]


class TestForm:
    def test_an_unsalted_key_has_four_fields(self) -> None:
        key = ObjectKey("llama", 0xFF, bytes.fromhex("00010203"))
        assert key.wire_name == "llama@000000ff@0@00010203"
        assert (key.object_group_id, key.cache_salt) == (0, "")

    def test_a_salted_key_ends_with_its_salt(self) -> None:
        key = ObjectKey("llama", 0xFF, bytes.fromhex("00010203"), 0, "user-42")
        assert key.wire_name == "llama@000000ff@0@00010203@user-42"

    def test_the_group_is_bare_lower_case_hex(self) -> None:
        assert ObjectKey("m", 0xABCDEF01, b"\xff", 0x1AF).wire_name == "m@abcdef01@1af@ff"

    def test_a_slash_is_fine_in_a_model(self) -> None:
        name = ObjectKey("meta-llama/Llama-3-8B", 0, b"\x01").wire_name
        assert name == "meta-llama/Llama-3-8B@00000000@0@01"
        assert ObjectKey.parse(name).model_name == "meta-llama/Llama-3-8B"

    @given(object_keys)
    def test_no_trailing_at_sign_without_a_salt(self, key: ObjectKey) -> None:
        assert key.wire_name.count("@") == (4 if key.cache_salt else 3)
        assert not key.wire_name.endswith("@")

    @given(object_keys, st.text(_IN_SALT, min_size=1, max_size=20))
    def test_one_content_under_two_salts_is_two_objects(self, key: ObjectKey, salt: str) -> None:
        twin = attrs.evolve(key, cache_salt=key.cache_salt + salt)
        assert twin.wire_name != key.wire_name
        assert twin != key

    @given(keys)
    def test_no_name_has_what_servers_and_shells_stumble_over(self, key: Key) -> None:
        name = wire_name_of(key)
        assert not set(name) & {"{", "}", *CONTROLS}
        name.encode()  # no lone surrogates

    @given(keys)
    def test_length_is_bounded(self, key: Key) -> None:
        assert 1 <= len(wire_name_of(key).encode()) <= MAX_WIRE_NAME_BYTES

    def test_a_str_enum_stands_for_its_value(self) -> None:
        class Model(str, enum.Enum):
            LLAMA = "llama"

        class Rank(int, enum.Enum):
            LAST = 0xFF

        key = ObjectKey(Model.LLAMA, Rank.LAST, b"\x01", Rank.LAST, Model.LLAMA)
        assert key.wire_name == "llama@000000ff@ff@01@llama"
        assert wire_name_of(Model.LLAMA) == "llama"
        assert type(wire_name_of(Model.LLAMA)) is str


class TestInjective:
    @given(keys, keys)
    @example("a%", "a%25")
    @example("%40", "@")
    @example("llama@000000ff@0@00", ObjectKey("llama", 0xFF, b"\x00"))
    @example("llama%40000000ff%400%4000", ObjectKey("llama", 0xFF, b"\x00"))
    @example(ObjectKey("m", 0, b"\x00", 0, "s"), ObjectKey("m", 0, b"\x00", 0))
    @example("\x85", "%C2%85")
    def test_two_keys_never_share_a_name(self, one: Key, other: Key) -> None:
        assert (wire_name_of(one) == wire_name_of(other)) == (parts(one) == parts(other))

    @given(object_keys, str_keys)
    def test_the_kinds_never_meet(self, key: ObjectKey, text: str) -> None:
        assert "@" in key.wire_name
        assert "@" not in wire_name_of(text)

    @given(object_keys)
    def test_the_name_of_an_object_key_as_a_str_key_is_another_one(self, key: ObjectKey) -> None:
        if len(key.wire_name.encode()) <= MAX_STR_KEY_BYTES:
            assert wire_name_of(key.wire_name) != key.wire_name

    @given(object_keys, object_keys)
    def test_equality_and_hash_are_those_of_the_name(
        self, one: ObjectKey, other: ObjectKey
    ) -> None:
        assert (one == other) == (one.wire_name == other.wire_name)
        twin = attrs.evolve(one)
        assert twin == one
        assert hash(twin) == hash(one)


class TestInverse:
    @given(object_keys)
    def test_parse_inverts(self, key: ObjectKey) -> None:
        parsed = ObjectKey.parse(key.wire_name)
        assert parts(parsed) == parts(key)
        assert parsed.wire_name == key.wire_name

    @given(keys)
    def test_key_of_inverts_both_kinds(self, key: Key) -> None:
        assert parts(key_of(wire_name_of(key))) == parts(key)

    @given(st.text(_TRICKY, max_size=40))
    @example("a%4")
    @example("%c3%a9")
    @example("%C3")
    @example("%41")
    @example("%25")
    @example("é%C3%A9")
    @example("llama@000000ff@0@00010203@")
    @example("llama@000000FF@0@00010203")
    @example("llama@000000ff@00@00010203")
    def test_what_is_not_a_wire_name_is_refused(self, text: str) -> None:
        try:
            key = key_of(text)
        except KeyFormatError:
            return
        assert wire_name_of(key) == text

    @given(object_keys)
    def test_the_tenant_is_the_salt(self, key: ObjectKey) -> None:
        assert tenant_of(key.wire_name) == key.cache_salt

    @given(str_keys)
    def test_a_str_key_has_no_tenant(self, key: str) -> None:
        assert tenant_of(wire_name_of(key)) == ""

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param("llama@000000ff@00010203", id="three-fields"),
            pytest.param("llama@1@0@1a2b3c@bfloat16", id="another-tool's"),
            pytest.param("vllm@llama@1@0@1a2b3c", id="another-tool's-older"),
            pytest.param("llama@ff@0@00010203", id="short-rank"),
            pytest.param("llama@0000000ff@0@00010203", id="long-rank"),
            pytest.param("llama@000000FF@0@00010203", id="upper-case-rank"),
            pytest.param("llama@000000ff@00@00010203", id="padded-group"),
            pytest.param("llama@000000ff@@00010203", id="no-group"),
            pytest.param("llama@000000ff@-1@00010203", id="negative-group"),
            pytest.param("llama@000000ff@0@0001020", id="odd-hash"),
            pytest.param("llama@000000ff@0@", id="no-hash"),
            pytest.param("@000000ff@0@00010203", id="no-model"),
            pytest.param("llama@000000ff@0@00010203@", id="empty-salt"),
            pytest.param("llama@000000ff@0@00010203@a@b", id="six-fields"),
            pytest.param("llama@000000ff@0@00010203@a/b", id="slash-in-salt"),
            pytest.param("llama@000000ff@0@00010203\n", id="line-end"),
            pytest.param("lla{ma}@000000ff@0@00010203", id="hashtag"),
            pytest.param(
                "llama@\u0660\u0660\u0660\u0660\u0660\u0660ff@0@00010203", id="other-digits"
            ),
            pytest.param("llama@000000ff@0@\u0660\u0661", id="other-digits-in-hash"),
            pytest.param("llama", id="one-field"),
            pytest.param("", id="empty"),
            pytest.param("\ud800@000000ff@0@00", id="surrogate"),
        ],
    )
    def test_parse_refuses(self, name: str) -> None:
        with pytest.raises(KeyFormatError):
            ObjectKey.parse(name)

    def test_parse_of_bytes_is_a_type_error(self) -> None:
        with pytest.raises(TypeError):
            ObjectKey.parse(b"llama@000000ff@0@00010203")  # type: ignore[arg-type]


class TestRefusals:
    @pytest.mark.parametrize("bad", ["@", "{", "}", "\x00", "\n", "\x7f", "\x85", "\ud800"])
    def test_in_a_model(self, bad: str) -> None:
        with pytest.raises(KeyFormatError, match="model_name") as caught:
            ObjectKey(f"lla{bad}ma", 0, b"\x01")
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, TieredKVError)

    @pytest.mark.parametrize(
        "bad", ["@", "{", "}", "/", "\\", "\x00", "\n", "\x7f", "\x85", "\udfff"]
    )
    def test_in_a_salt(self, bad: str) -> None:
        with pytest.raises(KeyFormatError, match="cache_salt"):
            ObjectKey("m", 0, b"\x01", cache_salt=f"us{bad}er")

    def test_every_control_character_and_only_those(self) -> None:
        for char in map(chr, [*range(0x300), 0x2028, 0xFEFF, 0xE000]):
            refused = char in CONTROLS or char in "@{}"
            if refused:
                with pytest.raises(KeyFormatError):
                    ObjectKey(f"m{char}", 0, b"\x01")
            else:
                ObjectKey(f"m{char}", 0, b"\x01")

    def test_a_salt_has_at_most_128_characters(self) -> None:
        assert ObjectKey("m", 0, b"\x01", cache_salt="漢" * 128).cache_salt == "漢" * 128
        with pytest.raises(KeyFormatError, match="129 characters, at most 128"):
            ObjectKey("m", 0, b"\x01", cache_salt="x" * 129)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("model_name", ""),
            ("kv_rank", -1),
            ("kv_rank", 2**32),
            pytest.param("kv_rank", 10**5000, id="kv_rank-huge"),
            ("object_group_id", -1),
            pytest.param("object_group_id", -(10**5000), id="object_group_id-huge"),
            ("chunk_hash", b""),
        ],
    )
    def test_out_of_range(self, field: str, value: object) -> None:
        arguments = {"model_name": "m", "kv_rank": 0, "chunk_hash": b"\x01"} | {field: value}
        with pytest.raises(KeyFormatError, match=field):
            ObjectKey(**arguments)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("model_name", b"m"),
            ("model_name", None),
            ("kv_rank", True),
            ("kv_rank", 1.0),
            ("kv_rank", "1"),
            ("chunk_hash", "00"),
            ("chunk_hash", bytearray(b"\x00")),
            ("chunk_hash", memoryview(b"\x00")),
            ("object_group_id", False),
            ("object_group_id", None),
            ("cache_salt", None),
            ("cache_salt", b"s"),
        ],
    )
    def test_wrong_type(self, field: str, value: object) -> None:
        arguments = {"model_name": "m", "kv_rank": 0, "chunk_hash": b"\x01"} | {field: value}
        with pytest.raises(TypeError, match=field):
            ObjectKey(**arguments)  # type: ignore[arg-type]

    def test_a_wire_name_that_no_tier_could_keep(self) -> None:
        room = MAX_WIRE_NAME_BYTES - len("@00000000@0@01")
        assert len(ObjectKey("m" * room, 0, b"\x01").wire_name) == MAX_WIRE_NAME_BYTES
        with pytest.raises(KeyFormatError, match="1537 bytes, at most 1536"):
            ObjectKey("m" * (room + 1), 0, b"\x01")
        with pytest.raises(KeyFormatError, match="at most 1536"):
            ObjectKey("漢" * (room // 3 + 1), 0, b"\x01")

    def test_str_keys_have_1_to_512_bytes(self) -> None:
        assert wire_name_of("k" * 512) == "k" * 512
        assert wire_name_of("é" * 256) == "é" * 256
        assert len(wire_name_of("@" * 512)) == MAX_WIRE_NAME_BYTES
        for key in ("k" * 513, "é" * 257, "🙂" * 129, "漢" * 170 + "abc"):
            with pytest.raises(KeyFormatError, match="at most 512"):
                wire_name_of(key)
        with pytest.raises(KeyFormatError, match="empty"):
            wire_name_of("")

    def test_lone_surrogates_in_a_str_key(self) -> None:
        with pytest.raises(KeyFormatError, match="lone surrogate"):
            wire_name_of("a\ud83d")

    @pytest.mark.parametrize("key", [b"k", bytearray(b"k"), memoryview(b"k")])
    def test_bytes_are_told_of_hex(self, key: object) -> None:
        with pytest.raises(TypeError, match=re.escape("use .hex()")):
            wire_name_of(key)  # type: ignore[arg-type]

    @pytest.mark.parametrize("key", [None, 1, ("a",)])
    def test_other_types(self, key: object) -> None:
        with pytest.raises(TypeError, match="ObjectKey or a str"):
            wire_name_of(key)  # type: ignore[arg-type]


class TestEscapes:
    @pytest.mark.parametrize(
        ("key", "name"),
        [
            ("plain/key.1~", "plain/key.1~"),
            ("100%", "100%25"),
            ("user@host", "user%40host"),
            ("{tag}", "%7Btag%7D"),
            ("a\x00b", "a%00b"),
            ("\x7f", "%7F"),
            ("\x85", "%C2%85"),
            ("é", "é"),
        ],
    )
    def test_are_percent_and_upper_case_hex(self, key: str, name: str) -> None:
        assert wire_name_of(key) == name
        assert key_of(name) == key


class TestPackedRanks:
    @given(*[st.integers(0, 255)] * 4)
    def test_eight_bits_each_world_size_highest(
        self, world: int, rank: int, local_world: int, local: int
    ) -> None:
        packed = ObjectKey.pack_rank(world, rank, local_world, local)
        assert packed == (world << 24) | (rank << 16) | (local_world << 8) | local
        assert packed.to_bytes(4, "big") == bytes([world, rank, local_world, local])

    @pytest.mark.parametrize("place", range(4))
    @pytest.mark.parametrize("value", [-1, 256, pytest.param(10**5000, id="huge")])
    def test_nothing_spills_into_a_neighbour(self, place: int, value: int) -> None:
        ranks = [0, 0, 0, 0]
        ranks[place] = value
        field = ("world_size", "rank", "local_world_size", "local_rank")[place]
        with pytest.raises(KeyFormatError, match=f"^{field} .*0..255"):
            ObjectKey.pack_rank(*ranks)

    @pytest.mark.parametrize("value", [True, 1.0, None, "1"])
    def test_only_integers(self, value: object) -> None:
        with pytest.raises(TypeError, match="local_rank"):
            ObjectKey.pack_rank(1, 0, 1, value)  # type: ignore[arg-type]


class TestValueObject:
    def test_frozen(self) -> None:
        key = ObjectKey("m", 0, b"\x01")
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            key.kv_rank = 1  # type: ignore[misc]

    @given(object_keys)
    def test_copies_and_pickles(self, key: ObjectKey) -> None:
        for twin in (copy.copy(key), copy.deepcopy(key), pickle.loads(pickle.dumps(key))):
            assert twin == key
            assert parts(twin) == parts(key)

    def test_evolve_makes_a_new_name(self) -> None:
        key = ObjectKey("m", 0, b"\x01")
        assert attrs.evolve(key, kv_rank=1).wire_name == "m@00000001@0@01"

    def test_repr_shows_the_parts(self) -> None:
        assert repr(ObjectKey("m", 1, b"\x01", 2, "s")) == (
            "ObjectKey(model_name='m', kv_rank=1, chunk_hash=b'\\x01', "
            "object_group_id=2, cache_salt='s')"
        )
