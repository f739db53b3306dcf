"""Clients of Valkey that others use: what `benchmarks.peers_valkey` compares the store with.

All speak RESP3 but `RawSockets`, which never says HELLO; replies to GET and MGET are the same in
both. `RawSockets` and `GlideSync` are told where the bytes shall land, the others return new
objects. A group of several values is one MGET, or one pipeline of SETs with an expiry. Who keeps
bytes keeps them under the same keys as the store in "size" does; py-key-value keeps JSON, so bytes
go through base64.
"""

from __future__ import annotations

import base64
import socket
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import cycle
from typing import Any, ClassVar, Final

from benchmarks.peer import AsyncClient, BlockingClient, Load

__all__ = ["ASYNC", "BLOCKING", "CONNECTIONS", "JSON", "TTL_S"]

CONNECTIONS: Final = 8
TTL_S: Final = 3600
_HOST: Final = "127.0.0.1"
_TIMEOUT_S: Final = 60


class RawSockets(BlockingClient):
    """The floor: no more system calls than it takes if sizes are known and nothing goes wrong."""

    name = "raw sockets"

    def open(self) -> None:
        address = (_HOST, self.place)
        self._idle = deque(socket.create_connection(address) for _ in range(CONNECTIONS))
        for connection in self._idle:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get(self, group: slice) -> Sequence[memoryview]:
        keys, buffers = self.load.keys[group], self.load.buffers[group]
        head = b"$%d\r\n" % self.load.nbytes
        first = b"*%d\r\n" % len(keys) + head if len(keys) > 1 else head
        between = [first, *[b"\r\n" + head] * (len(keys) - 1), b"\r\n"]
        landed = [bytearray(len(part)) for part in between]
        parts: list[bytearray | memoryview] = [landed[0]]
        for buffer, then in zip(buffers, landed[1:], strict=True):
            parts += buffer, then
        connection = self._idle.pop()
        connection.sendall(_command("MGET" if len(keys) > 1 else "GET", *keys))
        connection.recvmsg_into(parts, 0, socket.MSG_WAITALL)
        self._idle.append(connection)
        assert landed == between
        return buffers

    def set(self, group: slice) -> None:
        keys, values = self.load.keys[group], self.load.values[group]
        expiry = b"\r\n$2\r\nEX\r\n" + _bulk(str(TTL_S))
        connection, before = self._idle.pop(), b""
        for key, value in zip(keys, values, strict=True):
            head = b"*5\r\n$3\r\nSET\r\n%b$%d\r\n" % (_bulk(key), len(value))
            connection.sendall(before + head, socket.MSG_MORE)
            connection.sendall(value, socket.MSG_MORE)
            before = expiry
        connection.sendall(expiry)
        reply = bytearray(len(_OK) * len(keys))
        connection.recv_into(reply, 0, socket.MSG_WAITALL)
        self._idle.append(connection)
        assert reply == _OK * len(keys)

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


_OK: Final = b"+OK\r\n"


def _command(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(map(_bulk, words))


def _bulk(word: str) -> bytes:
    encoded = word.encode()
    return b"$%d\r\n%b\r\n" % (len(encoded), encoded)


class GlideSync(BlockingClient):
    """What our backend stands on; each thread has a client, which has one connection."""

    name = "glide_sync"
    packages = ("valkey-glide-sync",)

    def open(self) -> None:
        self._glide: Any = import_module("glide_sync")
        configuration = _configuration(self._glide, self.place)
        clients = [self._glide.GlideClient.create(configuration) for _ in range(CONNECTIONS)]
        self._idle = deque(clients)

    def get(self, group: slice) -> Sequence[memoryview]:
        keys, buffers = self.load.keys[group], self.load.buffers[group]
        client = self._idle.pop()
        if len(keys) == 1:
            sizes = [client.get(keys[0], buffer=buffers[0])]
        else:
            sizes = client.mget(keys, buffers=buffers)
        self._idle.append(client)
        assert all(int(size) == self.load.nbytes for size in sizes)
        return buffers

    def set(self, group: slice) -> None:
        client = self._idle.pop()
        client.exec(_batch(self._glide, self.load, group), raise_on_error=True)
        self._idle.append(client)

    def close(self) -> None:
        for client in self._idle:
            client.close()


class RedisPy(BlockingClient):
    name = "redis-py"
    packages = ("redis", "hiredis")
    module: ClassVar = "redis"
    kind: ClassVar = "Redis"

    def open(self) -> None:
        module: Any = import_module(self.module)
        pool = module.ConnectionPool(
            host=_HOST, port=self.place, protocol=3, max_connections=CONNECTIONS
        )
        self._client = getattr(module, self.kind)(connection_pool=pool)

    def get(self, group: slice) -> Sequence[bytes]:
        keys = self.load.keys[group]
        return [self._client.get(keys[0])] if len(keys) == 1 else self._client.mget(keys)

    def set(self, group: slice) -> None:
        with self._client.pipeline(transaction=False) as pipeline:
            for key, value in zip(self.load.keys[group], self.load.values[group], strict=True):
                pipeline.set(key, value, ex=TTL_S)
            pipeline.execute()

    def close(self) -> None:
        self._client.connection_pool.disconnect()


class ValkeyPy(RedisPy):
    name = "valkey-py"
    packages = ("valkey", "libvalkey")
    module = "valkey"
    kind = "Valkey"


class RedisPyAsync(AsyncClient):
    name = "redis-py asyncio"
    packages = ("redis", "hiredis")
    module: ClassVar = "redis.asyncio"
    kind: ClassVar = "Redis"

    async def open(self) -> None:
        module: Any = import_module(self.module)
        self._client = getattr(module, self.kind)(connection_pool=_pool(module, self.place))

    async def get(self, group: slice) -> Sequence[bytes]:
        keys = self.load.keys[group]
        if len(keys) == 1:
            return [await self._client.get(keys[0])]
        values: Sequence[bytes] = await self._client.mget(keys)
        return values

    async def set(self, group: slice) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for key, value in zip(self.load.keys[group], self.load.values[group], strict=True):
                pipeline.set(key, value, ex=TTL_S)
            await pipeline.execute()

    async def aclose(self) -> None:
        await self._client.connection_pool.disconnect()


class ValkeyPyAsync(RedisPyAsync):
    name = "valkey-py asyncio"
    packages = ("valkey", "libvalkey")
    module = "valkey.asyncio"
    kind = "Valkey"


class GlideAsync(AsyncClient):
    """Clients of one connection each, which take commands in turns and wait for no reply."""

    name = "glide asyncio"
    packages = ("valkey-glide",)

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() or _other_core()

    async def open(self) -> None:
        self._glide: Any = import_module("glide")
        configuration = _configuration(self._glide, self.place)
        self._clients = [
            await self._glide.GlideClient.create(configuration) for _ in range(CONNECTIONS)
        ]
        self._turns = cycle(self._clients)

    async def get(self, group: slice) -> Sequence[bytes]:
        keys, client = self.load.keys[group], next(self._turns)
        if len(keys) == 1:
            return [await client.get(keys[0])]
        values: Sequence[bytes] = await client.mget(keys)
        return values

    async def set(self, group: slice) -> None:
        batch = _batch(self._glide, self.load, group)
        await next(self._turns).exec(batch, raise_on_error=True)

    async def aclose(self) -> None:
        for client in self._clients:
            await client.close()


class AioCache(AsyncClient):
    """Over redis-py, with the serializer that leaves bytes alone and without its time-out."""

    name = "aiocache"
    packages = ("aiocache", "redis", "hiredis")

    async def open(self) -> None:
        self._cache = import_module("aiocache").RedisCache(
            endpoint=_HOST,
            port=self.place,
            pool_max_size=CONNECTIONS,
            connection_pool_class=import_module("redis.asyncio").BlockingConnectionPool,
            connection_pool_kwargs={"protocol": 3, "timeout": _TIMEOUT_S},
            serializer=import_module("aiocache.serializers").NullSerializer(encoding=None),
            timeout=None,
        )

    async def get(self, group: slice) -> Sequence[bytes]:
        keys = self.load.keys[group]
        if len(keys) == 1:
            return [await self._cache.get(keys[0])]
        values: Sequence[bytes] = await self._cache.multi_get(keys)
        return values

    async def set(self, group: slice) -> None:
        pairs = list(zip(self.load.keys[group], self.load.values[group], strict=True))
        if len(pairs) == 1:
            await self._cache.set(*pairs[0], ttl=TTL_S)
        else:
            await self._cache.multi_set(pairs, ttl=TTL_S)

    async def aclose(self) -> None:
        await self._cache.client.connection_pool.disconnect()


class _KeyValue(AsyncClient):
    """py-key-value over either client."""

    _store: Any

    async def get(self, group: slice) -> Sequence[bytes]:
        entries = await self._store.get_many(self.load.keys[group])
        return [base64.b64decode(entry["value"]) for entry in entries]

    async def set(self, group: slice) -> None:
        entries = [{"value": base64.b64encode(value).decode()} for value in self.load.values[group]]
        await self._store.put_many(self.load.keys[group], entries, ttl=TTL_S)


class KeyValueRedis(_KeyValue):
    """Its store takes texts only, so redis-py has to decode."""

    name = "py-key-value, redis"
    packages = ("py-key-value-aio", "redis", "hiredis")

    async def open(self) -> None:
        redis: Any = import_module("redis.asyncio")
        pool = _pool(redis, self.place, decode_responses=True)
        self._client = redis.Redis(connection_pool=pool)
        stores: Any = import_module("key_value.aio.stores.redis")
        self._store = stores.RedisStore(client=self._client, default_collection="redis")

    async def aclose(self) -> None:
        await self._client.connection_pool.disconnect()


class KeyValueValkey(_KeyValue):
    """Its store takes one client, so it has one connection."""

    name = "py-key-value, valkey"
    packages = ("py-key-value-aio", "valkey-glide")

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() or _other_core()

    async def open(self) -> None:
        glide: Any = import_module("glide")
        self._client = await glide.GlideClient.create(_configuration(glide, self.place))
        stores: Any = import_module("key_value.aio.stores.valkey")
        self._store = stores.ValkeyStore(client=self._client, default_collection="valkey")

    async def aclose(self) -> None:
        await self._client.close()


BLOCKING: Final[Sequence[type[BlockingClient]]] = (RawSockets, GlideSync, RedisPy, ValkeyPy)
ASYNC: Final[Sequence[type[AsyncClient]]] = (RedisPyAsync, ValkeyPyAsync, GlideAsync, AioCache)
JSON: Final[Sequence[type[AsyncClient]]] = (KeyValueRedis, KeyValueValkey)


def _pool(module: Any, port: int, **options: object) -> Any:
    """Return a pool of connections that tasks wait for."""
    return module.BlockingConnectionPool(
        host=_HOST,
        port=port,
        protocol=3,
        max_connections=CONNECTIONS,
        timeout=_TIMEOUT_S,
        **options,
    )


def _configuration(glide: Any, port: int) -> Any:
    address = glide.NodeAddress(_HOST, port)
    return glide.GlideClientConfiguration([address], request_timeout=_TIMEOUT_S * 1000)


def _batch(glide: Any, load: Load, group: slice) -> Any:
    batch = glide.Batch(is_atomic=False)
    expiry = glide.ExpirySet(glide.ExpiryType.SEC, TTL_S)
    for key, value in zip(load.keys[group], load.values[group], strict=True):
        batch.set(key, value, expiry=expiry)
    return batch


def _other_core() -> str | None:
    """Say whether valkey-glide and valkey-glide-sync, which share a package, differ."""
    ours, theirs = version("valkey-glide-sync"), version("valkey-glide")
    return None if ours == theirs else f"it is {theirs} and valkey-glide-sync is {ours}"
