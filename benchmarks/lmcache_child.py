"""What `benchmarks.lmcache_peer` runs in LMCache's interpreter: its adapters, on demand.

Arguments: port of the server, workers, bytes of a value, values of a batch. Each line of standard
input is one pass, like ``valkey load``, or ``l1 32`` for hits in its L1 with 32 keys at a time; the
answer is a line of JSON with what it took. Nothing here but the standard library and LMCache, so
that its environment needs nothing of ours.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

ADAPTERS: Final = ("valkey", "resp")
_PATIENCE_S: Final = 60
_API: Final = "lmcache.v1.distributed"


class Peer:
    """Both adapters, and memory of LMCache's own L1 that a batch is stored from and loaded into."""

    def __init__(self, port: int, workers: int, nbytes: int, count: int) -> None:
        torch: Any = import_module("torch")
        api: Any = import_module(f"{_API}.api")
        config: Any = import_module(f"{_API}.config")
        pool_bytes = 2 * count * nbytes + (64 << 20)
        memory = config.L1MemoryManagerConfig(size_in_bytes=pool_bytes, use_lazy=False, shm_name="")
        self._l1: Any = import_module(f"{_API}.l1_manager").L1Manager(
            config.L1ManagerConfig(memory)
        )
        self._layout: Any = api.MemoryLayoutDesc([torch.Size([nbytes])], [torch.uint8])
        self._keys: list[Any] = [api.ObjectKey(at.to_bytes(32), "peer", 0) for at in range(count)]
        self._held: list[Any] = [api.ObjectKey(key.chunk_hash, "sources", 0) for key in self._keys]
        self._sources: list[Any] = self._reserved(self._held)
        self._targets: list[Any] = self._reserved(
            [api.ObjectKey(key.chunk_hash, "targets", 0) for key in self._keys]
        )
        for at, source in enumerate(self._sources):
            _bytes(source)[:] = (at.to_bytes(8) * (-(-nbytes // 8)))[:nbytes]
        self._l1.finish_write(self._held)
        self._consume: Any = import_module("lmcache.v1.platform").consume_fd
        self._adapters = {name: self._adapter(name, port, workers) for name in ADAPTERS}

    def store(self, adapter: Any) -> None:
        task = adapter.submit_store_task(self._keys, self._sources)
        done: dict[Any, Any] = {}
        while task not in done:
            self._wait(adapter.get_store_event_fd())
            done.update(adapter.pop_completed_store_tasks())
        assert done[task].is_successful()

    def load(self, adapter: Any) -> None:
        task = adapter.submit_load_task(self._keys, self._targets)
        found = None
        while found is None:
            self._wait(adapter.get_load_event_fd())
            found = adapter.query_load_result(task)
        assert found.popcount() == len(self._keys)

    def lookup(self, adapter: Any) -> None:
        task = adapter.submit_lookup_and_lock_task(self._keys, {0: self._layout})
        found = None
        while found is None:
            self._wait(adapter.get_lookup_and_lock_event_fd())
            found = adapter.query_lookup_and_lock_result(task)
        adapter.submit_unlock(self._keys)
        assert found.popcount() == len(self._keys)

    def hit(self, batch: int) -> None:
        for at in range(0, len(self._held), batch):
            keys = self._held[at : at + batch]
            found = self._l1.reserve_read(keys)
            for key in keys:
                found[key][1].byte_array  # noqa: B018 - what is measured
            self._l1.finish_read(keys)

    def run(self, adapter: str, operation: str) -> None:
        if adapter == "l1":
            self.hit(int(operation))
        else:
            getattr(self, operation)(self._adapters[adapter])

    def prove(self) -> None:
        """Let each adapter store the batch and load it, and compare."""
        for adapter in self._adapters.values():
            for target in self._targets:
                _bytes(target)[:] = bytes(_bytes(target).nbytes)
            self.store(adapter)
            self.load(adapter)
            for source, target in zip(self._sources, self._targets, strict=True):
                assert _bytes(source) == _bytes(target)

    def close(self) -> None:
        for adapter in self._adapters.values():
            adapter.close()

    def _reserved(self, keys: list[Any]) -> list[Any]:
        reserved = self._l1.reserve_write(keys, [False] * len(keys), self._layout)
        return [reserved[key][1] for key in keys]

    def _adapter(self, name: str, port: int, workers: int) -> Any:
        adapters: Any = import_module(f"{_API}.l2_adapters")
        kinds: Any = import_module(f"{_API}.l2_adapters.config")
        server: dict[str, object] = (
            {"startup_nodes": f"127.0.0.1:{port}"}
            if name == "valkey"
            else {"host": "127.0.0.1", "port": port}
        )
        options = {"type": name, "num_workers": workers, **server}
        kind = kinds.get_l2_adapter_config_class(name)
        return adapters.create_l2_adapter(kind.from_dict(options), None)

    def _wait(self, event_fd: int) -> None:
        if not select.select([event_fd], [], [], _PATIENCE_S)[0]:
            raise TimeoutError("the adapter does not answer")
        self._consume(event_fd)


def _bytes(memory: Any) -> memoryview:
    return memoryview(memory.byte_array).cast("B")


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what LMCache prints is no answer
    peer = Peer(*map(int, sys.argv[1:]))
    peer.prove()
    print(json.dumps({"version": version("lmcache")}), file=answers)
    for line in sys.stdin:
        adapter, operation = line.split()
        cpu_s, began = time.process_time(), time.perf_counter()
        peer.run(adapter, operation)
        took = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu_s}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        took["rss_bytes"] = peak * (1 if sys.platform == "darwin" else 1024)
        print(json.dumps(took), file=answers)
    peer.close()


if __name__ == "__main__":
    main()
