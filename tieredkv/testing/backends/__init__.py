"""The conformance kit: what a backend must do to be one.

Subclass `BackendConformance` in a test module, with one line for each of four hooks::

    from tieredkv.testing.backends import BackendConformance


    class TestMyBackend(BackendConformance):
        def make_backend(self): return MyBackend(self.tmp_path)
        def raw_put(self, name, value): my_file(self.tmp_path, name).write_bytes(value)
        def raw_get(self, name): return my_bytes(self.tmp_path, name)  # None if absent
        def raw_delete(self, name): my_file(self.tmp_path, name).unlink()

pytest then runs every test on every event loop that anyio's pytest plugin knows, or on those of an
``anyio_backend`` fixture of yours. A test about a capability that the backend does not have passes.
`tieredkv.testing.machines` has the state machine that goes with it, over the same hooks.

Needs pytest.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{part}"
        for part in ("cancellation", "fixtures", "lifecycle", "names", "reads", "writes")
    )
)

from tieredkv.testing.backends.cancellation import CancellationConformance  # noqa: E402
from tieredkv.testing.backends.hooks import BackendHooks  # noqa: E402
from tieredkv.testing.backends.lifecycle import LifecycleConformance  # noqa: E402
from tieredkv.testing.backends.names import NameConformance  # noqa: E402
from tieredkv.testing.backends.reads import ReadConformance  # noqa: E402
from tieredkv.testing.backends.writes import WriteConformance  # noqa: E402

__all__ = ["BackendConformance", "BackendHooks"]


class BackendConformance(
    ReadConformance,
    WriteConformance,
    NameConformance,
    LifecycleConformance,
    CancellationConformance,
):
    """Every test of the kit; see `BackendHooks` for what a subclass overrides."""
