"""The pages on configuration: their examples work, their tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tieredkv import TieredStore
from tieredkv.loading import aliases, load

DOCS = Path(__file__).parents[2] / "docs"
MIGRATION = DOCS / "how-to/migrate-from-lmcache.md"
EXAMPLES = [
    pytest.param(kind, text, id=f"{page.stem}-{number}")
    for page in sorted(DOCS.rglob("*.md"))
    for number, (kind, text) in enumerate(
        re.findall(r"^```(json|toml|yaml)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    )
]


@pytest.fixture(autouse=True)
def environment_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_US_TOKEN", "HF_EU_TOKEN", "VALKEY_PASSWORD"):
        monkeypatch.setenv(name, "secret")


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_an_example_is_a_configuration(kind: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / f"example.{kind}"
    file.write_text(text)
    assert load(file, TieredStore).warnings == ()


def test_every_name_of_lmcache_is_told() -> None:
    text = MIGRATION.read_text()
    rows = re.findall(r"^\| (L1|`\w+`) \| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
    kinds = {"L1": "l1", "`fs`": "disk", "`valkey`": "valkey", "`hfbucket`": "hfbucket"}
    told = {(kinds[kind], foreign): house for kind, foreign, house in rows}
    for kind in kinds.values():
        converted = aliases._ALIASES[kind].keys() | aliases._ASSEMBLED[kind]
        assert {foreign for of, foreign in told if of == kind} == converted
        for foreign, alias in aliases._ALIASES[kind].items():
            assert told[kind, foreign] == f"`{alias.house}`"
    unused = next(line for line in text.splitlines() if line.startswith("Accepted without effect"))
    every = set().union(*aliases._UNUSED.values())
    assert every <= set(re.findall(r"`(\w+)`", unused))
