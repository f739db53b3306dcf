"""Pages of a listing are, put together, what a plain reading of the rule gives."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tieredkv.testing.hub.buckets import Bucket, BucketFile, iso_time

PATHS = st.text("ab/.", min_size=1, max_size=8).filter(lambda path: not path.startswith("/"))


def in_bucket(paths: set[str]) -> Bucket:
    bucket = Bucket("local/kv", is_private=False, created_ms=0)
    for path in paths:
        bucket.set_file(path, BucketFile(path, "0" * 64, 0, 0, 0))
    return bucket


def expected(paths: set[str], prefix: str, *, recursive: bool) -> set[tuple[str, str]]:
    """Files that start with the prefix; deeper than its children, only the directory."""
    depth = len(prefix.rstrip("/").split("/")) + 1 if prefix else 1
    found = set()
    for path in paths:
        if path.startswith(prefix):
            parts = path.split("/")
            if recursive or len(parts) <= depth:
                found.add(("file", path))
            else:
                found.add(("directory", "/".join(parts[:depth])))
    return found


@settings(deadline=None)
@given(
    paths=st.sets(PATHS, max_size=20),
    prefix=st.one_of(st.just(""), PATHS),
    recursive=st.booleans(),
    limit=st.integers(1, 5),
)
@example(paths={"a/b", "a.b", "a"}, prefix="", recursive=False, limit=1)
@example(paths={"a/b/c", "a/bb/c", "ab/b/c"}, prefix="a", recursive=False, limit=1)
def test_all_pages(paths: set[str], prefix: str, *, recursive: bool, limit: int) -> None:
    bucket = in_bucket(paths)
    found, cursor = [], ""
    while True:
        page = bucket.list_page(prefix, recursive=recursive, cursor=cursor, limit=limit)
        assert len(page.items) <= limit
        found += [(item["type"], item["path"]) for item in page.items]
        if page.cursor is None:
            break
        cursor = page.cursor
    assert len(found) == len(set(found))
    assert set(found) == expected(paths, prefix, recursive=recursive)


@settings(deadline=None)
@given(paths=st.sets(PATHS, min_size=1, max_size=10), data=st.data())
def test_files_that_come_and_go_between_pages(paths: set[str], data: st.DataObject) -> None:
    bucket = in_bucket(paths)
    first = bucket.list_page("", recursive=True, cursor="", limit=3)
    gone = data.draw(st.sampled_from(sorted(paths)))
    bucket.set_file(gone, None)
    bucket.set_file("new", BucketFile("new", "0" * 64, 0, 0, 0))
    rest = bucket.list_page("", recursive=True, cursor=first.cursor or "zz", limit=99)
    found = [item["path"] for item in [*first.items, *rest.items]]
    assert len(found) == len(set(found))
    assert paths - {gone} <= set(found) <= paths | {"new"}


def test_times_as_the_hub_writes_them() -> None:
    assert iso_time(1_700_000_000_120) == "2023-11-14T22:13:20.120Z"
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
