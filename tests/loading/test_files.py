"""Configuration files: three formats, one meaning, and what is wrong with one that is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loading.effective import given
from tieredkv import TieredStore
from tieredkv.errors import ConfigError, MissingDependencyError
from tieredkv.loading import load

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
TEXTS = {
    "kv.json": """{"l1": "4MiB", "fail_open": false,
                   "l2": [{"type": "disk", "path": "/kv", "num_workers": 2},
                          {"type": "valkey", "address": "valkey://h", "tls": null}]}""",
    "kv.toml": """
l1 = "4MiB"
fail_open = false
[[l2]]
type = "disk"
path = "/kv"
num_workers = 2
[[l2]]
type = "valkey"
address = "valkey://h"
""",
    "kv.yaml": """
l1: 4MiB
fail_open: false
l2:
- {type: disk, path: /kv, num_workers: 2}
- &server {type: valkey, address: "valkey://h"}
""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_says_the_same(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(TEXTS[name])
    told = {place: value for place, value in given(load(file, TieredStore)).items() if value != {}}
    assert {place: value for place, value in told.items() if value is not None} == {
        "fail_open": False,
        "l2[0].type": "disk",
        "l2[0].path": "/kv",
        "l2[0].num_workers": 2,
        "l2[1].type": "valkey",
        "l2[1].address": "valkey://h",
    }
    assert isinstance(TieredStore.from_config(str(file)), TieredStore)


def test_yaml_merges_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "kv.yml"
    file.write_text(
        "l1: 4MiB\n"
        "l2:\n"
        "- &one {type: disk, path: /a, num_workers: 2}\n"
        "- {<<: *one, path: /b, name: b}\n"
    )
    told = given(load(file, TieredStore))
    assert (told["l2[1].path"], told["l2[1].num_workers"]) == ("/b", 2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("kv.json", '{"l1": 1, "l1": 2}', "not valid JSON: 'l1' stands twice in one object"),
        ("kv.json", '{"l1": }', "not valid JSON: Expecting value: line 1 column 8"),
        ("kv.json", '{"l1": ' + "9" * 5000 + "}", "not valid JSON: Exceeds the limit"),
        ("kv.json", "[" * 100_000, "it is nested too deeply"),
        ("kv.json", "", "not valid JSON"),
        ("kv.toml", "l1 = 1\nl1 = 2", "not valid TOML: Cannot overwrite a value"),
        ("kv.toml", "l1", "not valid TOML"),
        ("kv.yaml", "l1: 1\nl1: 2", "not valid YAML: 'l1' stands twice in the mapping that begins"),
        ("kv.yaml", "l1: {a: 1, b: {c: 1, c: 2}}", "not valid YAML: 'c' stands twice"),
        ("kv.yaml", "l1: [", "not valid YAML"),
        ("kv.yaml", "? [a]\n: 1", "not valid YAML: found unhashable key in line 1"),
        ("kv.yaml", "l1: !!python/object:os.system x", "not valid YAML: could not determine a con"),
        ("kv.yaml", "l1: 2001-99-99", "not valid YAML"),
        ("kv.yaml", "a: \0", "not valid YAML: it holds characters that YAML does not allow"),
        ("kv.yaml", "[" * 1500, "it is nested too deeply"),
        ("kv.ini", "l1=1", "the name must end in one of .json, .toml, .yaml, .yml"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_is_wrong_with_a_file_is_said(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(file, TieredStore)
    assert str(refused.value).startswith(f"{file}: {message}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for name, why in {
        "none.json": "No such file or directory",
        "\0.json": "cannot be read",
        "~no-such-user/kv.json": "there is no such user",
    }.items():
        with pytest.raises(ConfigError, match=why):
            load(name if name[0] == "~" else tmp_path / name, TieredStore)
    (tmp_path / "latin.toml").write_bytes("l1 = 'é'".encode("latin-1"))
    with pytest.raises(ConfigError, match="cannot be read as UTF-8 text"):
        load(tmp_path / "latin.toml", TieredStore)


def test_nan_and_infinity_of_a_file_are_refused(tmp_path: Path) -> None:
    spec = '"type": "disk", "base_path": "/kv", "max_capacity_gb": NaN'
    for name, text in {
        "a.json": f'{{"l1": "4MiB", "l2": [{{{spec}}}]}}',
        "b.toml": 'l1 = "4MiB"\nl2 = [{type="fs", base_path="/kv", max_capacity_gb=nan}]',
        "c.yaml": "l1: 4MiB\nl2: [{type: fs, base_path: /kv, max_capacity_gb: .nan}]",
    }.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=r"l2\[0\].max_capacity_gb=nan must be finite"):
            load(tmp_path / name, TieredStore)


def test_without_pyyaml_the_command_that_installs_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kv.yaml"
    file.write_text("l1: 4MiB")
    monkeypatch.delitem(sys.modules, "tieredkv.loading.yaml_files", raising=False)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'tieredkv\[yaml\]'"):
        load(file, TieredStore)


def test_a_store_that_is_composed_by_hand_does_not_load_it() -> None:
    program = "import sys, tieredkv.blocking; assert 'tieredkv.loading.schema' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=ENVIRONMENT, check=True)


def test_loading_imports_no_vendor_and_no_yaml(tmp_path: Path) -> None:
    file = tmp_path / "kv.toml"
    file.write_text(TEXTS["kv.toml"])
    program = (
        "import sys, tieredkv\n"
        f"tieredkv.TieredStore.from_config({str(file)!r})\n"
        "unwanted = {'yaml', 'glide_sync', 'huggingface_hub', 'hf_xet', 'click'}\n"
        "assert not unwanted & sys.modules.keys(), unwanted & sys.modules.keys()\n"
        "assert 'tieredkv.backends.hfbucket' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=ENVIRONMENT, check=True)
