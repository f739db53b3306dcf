"""The index: order of use and room, against a model that is written as plainly as can be."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieredkv.backends.disk.files import Found
from tieredkv.backends.disk.index import Index, room_bytes

PLACES = [(shard, f"file-{number}") for shard in (0, 7, 255) for number in range(4)]
places = st.sampled_from(PLACES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), places, st.integers(0, 3 << 40)),
        st.tuples(st.just("touch"), places),
        st.tuples(st.just("forget"), places),
        st.tuples(st.just("pop")),
    )
)


@given(steps)
def test_values_leave_in_the_order_of_their_last_use(steps: list[tuple[object, ...]]) -> None:
    index = Index()
    model: OrderedDict[tuple[int, str], int] = OrderedDict()
    for step in steps:
        match step:
            case ("put", (int(shard), str(file)), int(nbytes)):
                index.put(shard, file, nbytes)
                model[shard, file] = nbytes
                model.move_to_end((shard, file))
            case ("touch", (int(shard), str(file))):
                index.touch([(shard, file)])
                if (shard, file) in model:
                    model.move_to_end((shard, file))
            case ("forget", (int(shard), str(file))):
                index.forget(shard, file)
                model.pop((shard, file), None)
            case _:
                oldest = index.pop_oldest()
                expected = model.popitem(last=False)[0] if model else None
                assert (oldest and (oldest.shard, oldest.file)) == expected
        assert index.count == len(model)
        assert index.room_bytes == sum(map(room_bytes, model.values()))
        assert all((place in index) == (place in model) for place in PLACES)
    while model:
        oldest = index.pop_oldest()
        assert oldest is not None
        assert (oldest.shard, oldest.file) == model.popitem(last=False)[0]
    assert index.pop_oldest() is None
    assert (index.count, index.room_bytes) == (0, 0)


@given(st.dictionaries(places, st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 50))))
def test_files_found_leave_in_the_order_of_their_times(
    files: dict[tuple[int, str], tuple[int, int]],
) -> None:
    index = Index()
    for shard in {shard for shard, _ in files}:
        found = [Found(file, *facts) for (at, file), facts in files.items() if at == shard]
        index.replace(shard, found)
    assert index.count == len(files)
    assert index.room_bytes == sum(room_bytes(nbytes) for nbytes, _ in files.values())
    popped = [index.pop_oldest() for _ in files]
    times = [oldest.used_us for oldest in popped if oldest is not None]
    assert times == sorted(used_us for _, used_us in files.values())


def test_a_scan_brings_in_what_is_new_and_drops_what_is_gone() -> None:
    index = Index()
    index.put(3, "gone", 10_000)
    index.put(3, "stays", 5_000)
    index.put(4, "elsewhere", 1)
    index.replace(3, [Found("stays", 9_000, 0), Found("new", 0, 1)])
    assert index.count == 3
    assert index.room_bytes == 12_288 + 4_096 + 4_096
    order = [oldest.file for _ in range(3) if (oldest := index.pop_oldest())]
    assert order == ["new", "stays", "elsewhere"], "what this process has used is not older now"


def test_a_time_to_come_counts_as_now() -> None:
    index = Index()
    index.replace(0, [Found("from a wrong clock", 1, 1 << 52)])
    index.put(1, "later", 1)
    assert [oldest.file for _ in range(2) if (oldest := index.pop_oldest())] == [
        "from a wrong clock",
        "later",
    ]


def test_a_value_is_used_for_the_first_time_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000_000 * 60
    monkeypatch.setattr("time.time_ns", lambda: now_s * 10**9)
    index = Index()
    index.put(0, "file", 1)
    for seconds, is_first in (
        (0, False),
        (59, False),
        (1, True),
        (1, False),
        (58, False),
        (1, True),
    ):
        now_s += seconds
        assert index.touch([(0, "file"), (0, "file")]) == [(0, "file")] * is_first
    assert index.touch([(0, "unknown")]) == []
