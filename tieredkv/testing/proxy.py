"""A TCP proxy between a client and a server that harms what passes, on schedule.

::

    with TCPProxy((host, port)) as proxy:
        backend = ValkeyBackend(f"valkey://127.0.0.1:{proxy.port}")
        ...
        proxy.inject(StreamFault("to_client", "corrupt", after_bytes=5000))

For what neither a server nor a client can be made to do: lose a connection in the middle of a
value, fall silent, change a byte. It knows no protocol, and listens on the loopback interface only.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, get_args

import attrs

from tieredkv.config import KiB, choice, number, whole

__all__ = ["Direction", "StreamFault", "StreamFaultKind", "TCPProxy"]

Direction: TypeAlias = Literal["to_server", "to_client"]
StreamFaultKind: TypeAlias = Literal["cut", "stall", "delay", "truncate", "corrupt"]

_LOOPBACK: Final = "127.0.0.1"
_PIECE_BYTES: Final = 64 * KiB
_CONNECT_TIMEOUT_S: Final = 10.0


@attrs.frozen(eq=False)
class StreamFault:
    """What happens to the bytes that pass in one direction.

    ============  ==============================================================================
    kind          effect
    ============  ==============================================================================
    ``cut``       Both ends find the connection closed, whatever is still to be said.
    ``truncate``  The receiver finds an orderly end; what the sender still says is lost.
    ``stall``     Nothing passes any more in this direction until `TCPProxy.calm`.
    ``delay``     What follows waits for `delay_s`, once.
    ``corrupt``   One byte is changed; what follows passes as it is.
    ============  ==============================================================================

    Attributes:
        direction: Which way.
        kind: How.
        after_bytes: So many bytes of a connection pass first, from the injection on.
        times: How many connections meet it; None for all.
        delay_s: Of ``delay``, in seconds.
        mask: Of ``corrupt``: the bits of the byte that are inverted.
    """

    direction: Direction
    kind: StreamFaultKind
    after_bytes: int = attrs.field(default=0, kw_only=True)
    times: int | None = attrs.field(default=1, kw_only=True)
    delay_s: float = attrs.field(default=0.1, kw_only=True)
    mask: int = attrs.field(default=0xFF, kw_only=True)

    def __attrs_post_init__(self) -> None:
        choice(self.direction, field="direction", choices=get_args(Direction))
        choice(self.kind, field="kind", choices=get_args(StreamFaultKind))
        whole(self.after_bytes, field="after_bytes", low=0)
        if self.times is not None:
            whole(self.times, field="times", low=1)
        number(self.delay_s, field="delay_s", low=0)
        whole(self.mask, field="mask", low=1, high=0xFF)


@attrs.define(eq=False)
class _Flow:
    """One direction of one connection, and how many bytes have come that way."""

    direction: Direction
    source: socket.socket
    sink: socket.socket
    passed: int = 0

    def end(self) -> None:
        """Tell the receiver that no more comes."""
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:  # it has hung up; what it had sent before is still under way
            return


@attrs.define(eq=False)
class _Link:
    """A connection of a client, and ours to the server for it."""

    client: socket.socket
    server: socket.socket
    flows: list[_Flow] = attrs.field(factory=list)
    threads: list[threading.Thread] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.flows += [
            _Flow("to_server", self.client, self.server),
            _Flow("to_client", self.server, self.client),
        ]

    def cut(self) -> None:
        for end in (self.client, self.server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is closed already
                continue

    def close(self) -> None:
        self.client.close()
        self.server.close()


@attrs.define(eq=False)
class _Armed:
    """A fault, where it begins to count, and who has met it."""

    fault: StreamFault
    starts: dict[_Flow, int]
    met: set[_Flow] = attrs.field(factory=set)
    is_over: bool = False

    def distance(self, flow: _Flow) -> int | None:
        """Return how many bytes are still to pass before the fault; None: it is not for them."""
        fault = self.fault
        if self.is_over or fault.direction != flow.direction or flow in self.met:
            return None
        if fault.times is not None and len(self.met) >= fault.times:
            return None
        return self.starts.get(flow, 0) + fault.after_bytes - flow.passed


class TCPProxy:
    """Passes connections on to a server, until a fault says otherwise. A context manager.

    Leaving it cuts every connection and ends every thread. Any thread may call.

    Args:
        target: Host and port of the server; asked for each connection anew, so it may come and go.

    Attributes:
        port: Where clients connect to, on 127.0.0.1.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server((_LOOPBACK, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()  # guards all that follows
        self._armed: list[_Armed] = []
        self._links: set[_Link] = set()
        self._closed = False
        self._accepting = threading.Thread(target=self._accept, name="tcp proxy", daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            links = tuple(self._links)
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._accepting.join()
        self._listener.close()
        for link in links:
            link.cut()
            for thread in link.threads:
                thread.join()

    @property
    def num_connections(self) -> int:
        """Connections that have not been closed at both ends."""
        return len(self._links)

    def inject(self, *faults: StreamFault) -> None:
        """Put faults in force, for the bytes that come from now on."""
        with self._changed:
            flows = [flow for link in self._links for flow in link.flows]
            starts = {flow: flow.passed for flow in flows}
            self._armed += [_Armed(fault, starts) for fault in faults]

    def met(self, fault: StreamFault) -> int:
        """Return how many connections have met a fault, since it was injected."""
        with self._changed:
            return sum(len(armed.met) for armed in self._armed if armed.fault is fault)

    def calm(self) -> None:
        """End all faults; what has stalled or is delayed goes on."""
        with self._changed:
            for armed in self._armed:
                armed.is_over = True
            self._changed.notify_all()

    def cut(self) -> None:
        """Cut every connection there is."""
        with self._changed:
            for link in self._links:
                link.cut()

    # -- in threads ------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the end
                return
            try:
                server = socket.create_connection(self._target, _CONNECT_TIMEOUT_S)
            except OSError:  # there is no server now, and so a client finds
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._begin(_Link(client, server))

    def _begin(self, link: _Link) -> None:
        with self._changed:
            if self._closed:
                link.close()
                return
            self._links.add(link)
            for flow in link.flows:
                pump = threading.Thread(
                    target=self._pump, args=(link, flow), name="tcp proxy", daemon=True
                )
                link.threads.append(pump)
                pump.start()

    def _pump(self, link: _Link, flow: _Flow) -> None:
        try:
            while piece := flow.source.recv(_PIECE_BYTES):
                self._pass_on(link, flow, piece)
            flow.end()
        except OSError:  # one end has hung up, and so the other one finds
            link.cut()
        with self._changed:
            link.flows.remove(flow)
            if not link.flows:
                link.close()
                self._links.discard(link)

    def _pass_on(self, link: _Link, flow: _Flow, piece: bytes) -> None:
        """Send a piece on, as far as the faults let it pass.

        Raises:
            OSError: The receiver has hung up.
        """
        while piece:
            armed, clean = self._next(flow, len(piece))
            flow.sink.sendall(piece[:clean])
            piece = piece[clean:]
            if armed is None:
                continue
            fault = armed.fault
            if fault.kind == "cut":
                link.cut()
                return
            if fault.kind == "truncate":
                flow.end()
                while flow.source.recv(_PIECE_BYTES):
                    pass
                return
            if fault.kind == "corrupt":
                piece = bytes((piece[0] ^ fault.mask,)) + piece[1:]
            else:
                self._wait(armed, fault.delay_s if fault.kind == "delay" else None)

    def _next(self, flow: _Flow, nbytes: int) -> tuple[_Armed | None, int]:
        """Return the next fault that so many bytes meet, and how many of them pass before."""
        with self._changed:
            nearest: _Armed | None = None
            clean = nbytes
            for armed in self._armed:
                distance = armed.distance(flow)
                if distance is not None and distance < clean:
                    nearest, clean = armed, max(distance, 0)
            flow.passed += clean
            if nearest is not None:
                nearest.met.add(flow)
            return nearest, clean

    def _wait(self, armed: _Armed, seconds: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or armed.is_over, seconds)
