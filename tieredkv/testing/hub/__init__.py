"""A local Hugging Face Hub: buckets and the Xet CAS, for tests without a network.

The unmodified ``huggingface_hub.HfApi`` (1.5 and newer) and ``hf_xet`` (1.7 and newer) create,
list, upload, download, copy and delete against it; faults come when a test asks for them::

    from huggingface_hub import HfApi
    from tieredkv.testing import hub

    with hub.start() as server:
        api = HfApi(endpoint=server.endpoint, token=server.token)
        api.create_bucket("local/kv", private=True)
        server.inject(hub.Fault(path="/batch$", status=503, retry_after_s=1, times=2))
        api.batch_bucket_files("local/kv", add=[(b"value", "key")])
        print([(r["method"], r["path"], r["status"]) for r in server.log])

It listens on the loopback interface only, and proves nothing of what it is given: neither hashes
nor chunks are verified. Where the real Hub's behaviour is not known, it is what the client and its
tests expect.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from tieredkv.testing.hub.accounts import new_access_token
from tieredkv.testing.hub.faults import Fault
from tieredkv.testing.hub.process import ProcessHub
from tieredkv.testing.hub.request_log import LogEntry
from tieredkv.testing.hub.server import LocalHub, ThreadHub
from tieredkv.testing.hub.settings import CasKind, HubSettings

__all__ = [
    "CasKind",
    "Fault",
    "HubSettings",
    "LocalHub",
    "LogEntry",
    "ProcessHub",
    "ThreadHub",
    "start",
]


def start(
    root: str | os.PathLike[str] | None = None,
    *,
    process: bool = False,
    cas: CasKind = "http",
    port: int = 0,
    token: str | None = None,
    user: str = "local",
    xet_token_ttl_s: int = 900,
    page_size: int = 1000,
) -> LocalHub:
    """Start a local Hub; it answers when this returns.

    Args:
        root: Directory that keeps everything for the next start. None: a temporary one, which
            `LocalHub.stop` removes.
        process: In a child process instead of threads of this one.
        cas: ``"http"``: contents go to this server, too. ``"local"``: hf_xet keeps them below the
            root by itself, for one process at a time, without a network to fail.
        port: On 127.0.0.1; 0 is any free one.
        token: The owner's access token; None: a random one.
        user: The owner's name.
        xet_token_ttl_s: Life of a token for the CAS. hf_xet renews 30 s before the end.
        page_size: Most items of a page of a listing.

    Raises:
        ConfigError: A setting that cannot be.
        OSError: The port is taken, or the root cannot be written.
        RuntimeError: The child process has not come up.
    """
    with contextlib.ExitStack() as resources:
        if root is None:
            root = resources.enter_context(tempfile.TemporaryDirectory(prefix="local-hub-"))
        settings = HubSettings(
            root=Path(root).absolute(),
            cas=cas,
            port=port,
            token=new_access_token() if token is None else token,
            user=user,
            xet_token_ttl_s=xet_token_ttl_s,
            page_size=page_size,
        )
        server = ProcessHub(settings) if process else ThreadHub(settings)
        server.adopt(resources.pop_all())
    return server
