"""A server's program that speaks TLS: installed, or fetched from Debian without installing it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

import attrs

__all__ = ["TLSProgram", "find_tls_program"]

_NAMES: Final = ("valkey-server", "redis-server")
_PACKAGE: Final = "redis-server"  # which every Debian and Ubuntu has in its main archive
_APT_TIMEOUT_S: Final = 300.0

# apt keeps to a directory of its own, so it needs no rights and leaves the system as it is. What
# the system's configuration hooks to an update would reach outside of it.
_APT_CONFIGURATION: Final = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "{directory}/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "{directory}/cache";
Debug::NoLocking "true";
APT::Sandbox::User "";
APT::Get::Assume-Yes "true";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
"""


@attrs.frozen(kw_only=True)
class TLSProgram:
    """A program that can be run.

    Attributes:
        path: The program.
        library_path: Directories of libraries that it needs besides the system's.
    """

    path: Path
    library_path: tuple[Path, ...] = ()

    @classmethod
    def unpacked_in(cls, root: Path) -> Self | None:
        """Return the program of packages unpacked below a directory; None: there is none."""
        path = root / "usr/bin" / _PACKAGE
        if not path.exists():
            return None
        return cls(path=path, library_path=tuple(sorted(root.glob("usr/lib/*-linux-gnu*"))))


def find_tls_program(directory: Path) -> TLSProgram:
    """Return a Valkey or Redis server that speaks TLS: from PATH, or else from Debian's archive.

    For the latter, packages are fetched with apt and unpacked, not installed, which takes a few
    seconds and 25 MB, needs no rights, and changes nothing outside of ``directory``.

    Args:
        directory: Keeps what was fetched, for the next call, too; it is made if it is not there.

    Raises:
        RuntimeError: There is none and none can be had; the message has what the tools said.
    """
    for name in _NAMES:
        found = shutil.which(name)
        if found is not None and _speaks_tls(Path(found)):
            return TLSProgram(path=Path(found))
    root = directory / "root"
    program = TLSProgram.unpacked_in(root)
    if program is None:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as work:
            fetched = _fetch(Path(work))
            try:
                fetched.rename(root)
            except OSError:  # another process was faster
                if TLSProgram.unpacked_in(root) is None:
                    raise
        program = TLSProgram.unpacked_in(root)
        assert program is not None
    return program


def _speaks_tls(program: Path) -> bool:
    return b"libssl" in program.read_bytes()  # the name of the library that it is linked with


def _fetch(work: Path) -> Path:
    """Fetch and unpack the server with what it needs and the system lacks; return the root."""
    configuration = work / "apt.conf"
    configuration.write_text(_APT_CONFIGURATION.format(directory=work), encoding="utf-8")
    (work / "state/lists/partial").mkdir(parents=True)
    archives = work / "cache/archives"
    (archives / "partial").mkdir(parents=True)
    apt = ("apt-get", f"--config-file={configuration}", "--quiet=2")
    _run(*apt, "update")
    _run(*apt, "--download-only", "install", _PACKAGE)
    root = work / "root"
    for archive in sorted(archives.glob("*.deb")):
        _run("dpkg-deb", "--extract", str(archive), str(root))
    if TLSProgram.unpacked_in(root) is None:
        raise RuntimeError(f"the package {_PACKAGE} has no {_PACKAGE} any more")
    return root


def _run(*command: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 (our own arguments)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            timeout=_APT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"no server with TLS: {command[0]}: {error}") from error
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace")[-2000:]
        raise RuntimeError(f"no server with TLS: {' '.join(command)}:\n{said}")
