"""Frames: their bytes, and that no change of one goes unnoticed."""

from __future__ import annotations

import struct
import threading
from itertools import pairwise

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tieredkv import frames
from tieredkv.frames import TRAILER_BYTES, FrameCheck, SizeCheck, Trailer, now_ms, seal
from tieredkv.results import GetStatus

NAME = "llama@000000ff@0@00010203@user-42"

# Computed apart from the library, by packing the fields with `struct` and digesting with `xxhash`:
#   head = struct.pack("<4sBBHQQQ16sQ", b"TKV1", 1, 0, 0, 10, 0x0102030405060708,
#                      0x1112131415161718, xxhash.xxh3_128_digest(NAME.encode()), 0)
#   frame = b"0123456789" + head
#   frame += struct.pack("<Q", xxhash.xxh3_64_intdigest(frame))
GOLDEN = bytes.fromhex(
    "30313233343536373839"  # payload: the ten digits
    "544b5631 01 00 0000"  # magic, version, flags, reserved
    "0a00000000000000"  # payload bytes
    "0807060504030201"  # generation
    "1817161514131211"  # expiry
    "6e1aaae8b8ae74c69f5163d923c8acfd"  # XXH3-128 of the name
    "0000000000000000"  # reserved
    "cc7d391e39a744be"  # XXH3-64 of all above
)
# The same for an empty payload under a name beyond ASCII, generation 1, no expiry.
GOLDEN_EMPTY = bytes.fromhex(
    "544b5631 01 00 0000"
    "0000000000000000"
    "0100000000000000"
    "0000000000000000"
    "d3c7a9156a7094082062ac10e56def38"
    "0000000000000000"
    "a128a8ac9748117f"
)
YEAR_2100_MS = 4_102_444_800_000


def frame_of(
    payload: bytes, name: str = NAME, *, generation: int = 7, expires_ms: int = 0
) -> bytearray:
    block = bytearray(payload) + bytearray(TRAILER_BYTES)
    seal(memoryview(block), name, generation=generation, expires_ms=expires_ms)
    return block


def check_of(frame: bytes | bytearray, name: str = NAME, *, floor: int = 0) -> FrameCheck:
    view = memoryview(frame)
    return FrameCheck(name, view[:-TRAILER_BYTES], view[-TRAILER_BYTES:], floor=floor)


def resealed(frame: bytearray) -> bytearray:
    """Give a forged frame the checksum that fits it."""
    frame[-8:] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(frame[:-8])))
    return frame


class TestGoldenBytes:
    def test_the_digests_are_those_of_the_xxh3_specification(self) -> None:
        assert xxhash.xxh3_64_hexdigest(b"") == "2d06800538d394c2"
        assert xxhash.xxh3_128_hexdigest(b"") == "99aa06d3014798d86001c324468d497f"
        assert xxhash.xxh3_64_hexdigest(b"\x00") == "c44bdff4074eecdb"
        assert xxhash.xxh3_128_hexdigest(b"\x00") == "a6cd5e9392000f6ac44bdff4074eecdb"

    def test_a_frame(self) -> None:
        block = bytearray(b"0123456789") + bytearray(b"\xff" * TRAILER_BYTES)
        seal(
            memoryview(block),
            NAME,
            generation=0x0102030405060708,
            expires_ms=0x1112131415161718,
        )
        assert block == GOLDEN

    def test_a_frame_without_payload(self) -> None:
        assert frame_of(b"", "ключ", generation=1) == GOLDEN_EMPTY

    def test_golden_frames_pass(self) -> None:
        check = check_of(GOLDEN)
        assert check.result() is GetStatus.HIT
        assert check.payload_bytes == 10
        assert check.generation == 0x0102030405060708
        assert check.expires_ms == 0x1112131415161718
        assert check_of(GOLDEN_EMPTY, "ключ").result() is GetStatus.HIT

    @given(
        payload=st.binary(max_size=2000),
        name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
        generation=st.integers(0, 2**64 - 1),
        expires_ms=st.integers(0, 2**64 - 1),
    )
    def test_an_independent_writer_agrees(
        self, payload: bytes, name: str, generation: int, expires_ms: int
    ) -> None:
        frame = payload + b"TKV1" + (1).to_bytes(4, "little")
        for number in (len(payload), generation, expires_ms):
            frame += number.to_bytes(8, "little")
        frame += xxhash.xxh3_128_intdigest(name.encode()).to_bytes(16, "big")
        frame += bytes(8)
        frame += xxhash.xxh3_64_intdigest(frame).to_bytes(8, "little")
        assert frame_of(payload, name, generation=generation, expires_ms=expires_ms) == frame


class TestChangesAreNoticed:
    @pytest.mark.parametrize("frame", [GOLDEN, GOLDEN_EMPTY], ids=["payload", "empty"])
    def test_every_single_byte_and_every_value_of_it(self, frame: bytes) -> None:
        name = NAME if frame is GOLDEN else "ключ"
        trailer_at = len(frame) - TRAILER_BYTES
        foreign = range(trailer_at, trailer_at + 6)  # magic, version, flags
        for at, right in enumerate(frame):
            changed = bytearray(frame)
            wanted = GetStatus.MISS if at in foreign else GetStatus.CORRUPT
            for wrong in range(256):
                if wrong != right:
                    changed[at] = wrong
                    assert check_of(changed, name).result() is wanted, (at, wrong)

    @given(payload=st.binary(max_size=5000), data=st.data())
    def test_any_single_byte_of_any_frame(self, payload: bytes, data: st.DataObject) -> None:
        frame = frame_of(payload)
        at = data.draw(st.integers(0, len(frame) - 1))
        frame[at] ^= data.draw(st.integers(1, 255))
        assert check_of(frame).result() is not GetStatus.HIT

    @given(payload=st.binary(min_size=2, max_size=300), data=st.data())
    def test_swapped_pieces(self, payload: bytes, data: st.DataObject) -> None:
        frame = frame_of(payload)
        cut = data.draw(st.integers(1, len(payload) - 1))
        moved = payload[cut:] + payload[:cut]
        frame[: len(payload)] = moved
        wanted = GetStatus.HIT if moved == payload else GetStatus.CORRUPT
        assert check_of(frame).result() is wanted

    @given(st.binary(max_size=300), st.integers(1, 80))
    def test_lost_bytes_at_either_end(self, payload: bytes, lost: int) -> None:
        frame = frame_of(payload)
        if lost <= len(payload):
            assert check_of(frame[lost:]).result() is GetStatus.CORRUPT
        if len(frame) - lost >= TRAILER_BYTES:
            assert check_of(frame[:-lost]).result() is not GetStatus.HIT

    def test_a_frame_of_another_key(self) -> None:
        assert check_of(frame_of(b"bytes"), NAME + "x").result() is GetStatus.CORRUPT

    def test_a_payload_size_that_lies_under_a_right_checksum(self) -> None:
        frame = frame_of(b"0123456789")
        struct.pack_into("<Q", frame, 10 + 8, 9)
        assert check_of(resealed(frame)).result() is GetStatus.CORRUPT


class TestForeign:
    @pytest.mark.parametrize(
        ("at", "value"), [(0, 0x55), (4, 0), (4, 2), (5, 1), (5, 0x80)], ids=str
    )
    def test_other_magic_version_or_flags_under_a_right_checksum(self, at: int, value: int) -> None:
        frame = frame_of(b"bytes")
        frame[5 + at] = value
        check = check_of(resealed(frame))
        assert check.result() is GetStatus.MISS
        assert check.reason == "foreign"

    def test_bare_bytes(self) -> None:
        check = check_of(bytes(200))
        assert check.result() is GetStatus.MISS
        assert check.reason == "foreign"
        assert Trailer.unpack(memoryview(bytes(TRAILER_BYTES))) is None


class TestTimeAndGeneration:
    def test_a_value_lives_until_its_expiry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        frame = frame_of(b"bytes", expires_ms=YEAR_2100_MS)
        monkeypatch.setattr(frames, "now_ms", lambda: YEAR_2100_MS - 1)
        alive = check_of(frame)
        assert alive.result() is GetStatus.HIT
        assert alive.expires_ms == YEAR_2100_MS
        monkeypatch.setattr(frames, "now_ms", lambda: YEAR_2100_MS)
        expired = check_of(frame)
        assert expired.result() is GetStatus.MISS
        assert expired.reason == "expired"

    def test_zero_is_never(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(frames, "now_ms", lambda: 2**63)
        assert check_of(frame_of(b"bytes")).result() is GetStatus.HIT

    def test_a_corrupt_value_is_corrupt_even_when_expired(self) -> None:
        frame = frame_of(b"bytes", expires_ms=1)
        frame[0] ^= 1
        assert check_of(frame).result() is GetStatus.CORRUPT

    @pytest.mark.parametrize(("floor", "stale"), [(6, False), (7, False), (8, True)])
    def test_generations_below_the_floor_are_stale(self, floor: int, stale: bool) -> None:  # noqa: FBT001 - a parameter of the test
        check = check_of(frame_of(b"bytes", generation=7), floor=floor)
        assert check.result() is (GetStatus.MISS if stale else GetStatus.HIT)
        assert check.reason == ("stale_rejected" if stale else "")

    def test_the_clock_is_unix_milliseconds(self) -> None:
        assert 1_700_000_000_000 < now_ms() < YEAR_2100_MS


class TestFeeding:
    @given(payload=st.binary(max_size=3000), cuts=st.lists(st.integers(0, 3000), max_size=6))
    def test_pieces_give_the_same_verdict(self, payload: bytes, cuts: list[int]) -> None:
        for spoil in (False, True):
            frame = frame_of(payload)
            if spoil and payload:
                frame[len(payload) // 2] ^= 0x10
            check = check_of(frame)
            places = sorted({0, len(payload), *(cut for cut in cuts if cut < len(payload))})
            for start, end in pairwise(places):
                check.feed(memoryview(frame)[start:end])
            wanted = GetStatus.CORRUPT if spoil and payload else GetStatus.HIT
            assert check.result() is wanted

    def test_what_was_fed_is_not_read_again(self) -> None:
        frame = frame_of(b"0123456789")
        check = check_of(frame)
        check.feed(memoryview(frame)[:4])
        check.feed(memoryview(frame)[4:10])
        frame[:10] = bytes(10)
        assert check.result() is GetStatus.HIT

    def test_a_backend_that_stops_feeding_half_way_is_not_trusted(self) -> None:
        frame = frame_of(b"0123456789")
        check = check_of(frame)
        check.feed(memoryview(frame)[:4])
        assert check.result() is GetStatus.HIT
        frame[7] ^= 1
        spoiled = check_of(frame)
        spoiled.feed(memoryview(frame)[:4])
        assert spoiled.result() is GetStatus.CORRUPT


class TestSealing:
    def test_again_writes_the_same_bytes(self) -> None:
        frame = frame_of(b"bytes", expires_ms=5)
        again = bytearray(frame)
        seal(memoryview(again), NAME, generation=7, expires_ms=5)
        assert again == frame

    def test_two_threads_at_once_leave_a_valid_frame(self) -> None:
        block = bytearray(b"\x5a" * (256 * 1024)) + bytearray(TRAILER_BYTES)
        start = threading.Barrier(3)
        seen: list[bytes] = []

        def work() -> None:
            start.wait()
            for _ in range(50):
                seal(memoryview(block), NAME, generation=7)
                seen.append(bytes(block[-TRAILER_BYTES:]))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        start.wait()
        for thread in threads:
            thread.join()
        assert len(set(seen)) == 1
        assert check_of(block).result() is GetStatus.HIT


class TestBareValues:
    def check(self, landed: bytes | bytearray, name: str = NAME, *, floor: int = 0) -> SizeCheck:
        return SizeCheck(name, memoryview(landed), floor=floor)

    @given(st.binary(max_size=300))
    def test_all_that_landed_is_the_payload(self, payload: bytes) -> None:
        check = self.check(payload)
        check.feed(memoryview(payload))
        assert check.result() is GetStatus.HIT
        assert (check.payload_bytes, check.generation, check.expires_ms) == (len(payload), 0, 0)

    @given(st.binary(max_size=300))
    def test_a_tail_that_is_our_frame_is_stripped(self, payload: bytes) -> None:
        check = self.check(frame_of(payload, generation=9, expires_ms=YEAR_2100_MS))
        assert check.result() is GetStatus.HIT
        assert check.payload_bytes == len(payload)
        assert (check.generation, check.expires_ms) == (9, YEAR_2100_MS)

    @given(st.binary(max_size=100), st.integers(0, 10**6), st.integers(1, 255))
    def test_a_tail_that_only_looks_like_one_is_payload(
        self, payload: bytes, at: int, flip: int
    ) -> None:
        frame = frame_of(payload)
        frame[at % len(frame)] ^= flip
        check = self.check(frame)
        assert check.result() is GetStatus.HIT
        assert check.payload_bytes == len(frame)
        assert (check.generation, check.expires_ms) == (0, 0)

    def test_a_frame_of_another_key_is_payload(self) -> None:
        frame = frame_of(b"bytes", "other")
        check = self.check(frame)
        assert check.result() is GetStatus.HIT
        assert check.payload_bytes == len(frame)

    def test_an_expired_or_stale_frame_is_a_miss(self) -> None:
        expired = self.check(frame_of(b"bytes", expires_ms=1))
        assert expired.result() is GetStatus.MISS
        assert expired.reason == "expired"
        stale = self.check(frame_of(b"bytes", generation=3), floor=4)
        assert stale.result() is GetStatus.MISS
        assert stale.reason == "stale_rejected"


def test_the_clock_rounds_down_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tieredkv.frames.time.time_ns", lambda: 1_700_000_000_123_999_999)
    assert now_ms() == 1_700_000_000_123


def test_a_bare_value_has_no_generation() -> None:
    check = SizeCheck("name", memoryview(b"value"))
    assert check.result() is GetStatus.HIT
    assert (check.generation, check.expires_ms) == (0, 0)
