# SPDX-License-Identifier: BSD-3-Clause
"""Connected sockets between all ranks of a job that share a key-value store, such as torch's.

Each rank listens, writes "address:port:token" to the store under its number, and reads the entries of all others. It
connects to the lower ranks, and accepts the higher ones. The connecting rank sends a greeting: the other rank's token,
and its own number. The accepting rank answers with the other's token. So both ends prove that they read the store. A
rank closes connections with another greeting, and reads no byte beyond a greeting's length from them.

A failing rank writes the reason to the store, and the others raise PeerError with it.

The environment:
    PICI_SOCKET_IFNAME   the network interface to listen at; else GLOO_SOCKET_IFNAME; else the address from which this
                         host reaches MASTER_ADDR; else the address of this host's name
    PICI_SOCKET_PORTS    "lo-hi": the ports to listen at; else any free one
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import hmac
import logging
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

from .errors import PeerError, TimedOutError

GREETING = struct.Struct("<8s16sI")  # MAGIC, the token of the wanted rank, the rank that connects
MAGIC = b"pici/1\r\n"
TOKEN = 16  # bytes
STRANGER_S = 5.0  # for a greeting, from the connection on
NOTICE_S = 30.0  # after which a warning names the ranks that did not come yet
STRANGERS = 128  # connections without a greeting that are kept at a time

_log = logging.getLogger("pici")
_SIOCGIFADDR = 0x8915
_POLL_S = (0.001, 0.1)  # between two looks at the store: at first, and at the most


def _of_interface(name: str, variable: str) -> str:
    """The address of a network interface: its IPv4 address, or else a global IPv6 address."""
    known = [i for _, i in socket.if_nameindex()]
    if name not in known:
        raise ValueError(f"{variable}={name}: there is no such network interface; there are {', '.join(known)}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            request = struct.pack("256s", name.encode())
            return socket.inet_ntoa(fcntl.ioctl(s, _SIOCGIFADDR, request)[20:24])
        except OSError as e:
            if e.errno != errno.EADDRNOTAVAIL:
                raise
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as f:
            rows = [line.split() for line in f]
    except FileNotFoundError:
        rows = []
    for address, _, _, scope, _, interface in rows:
        if interface == name and scope != "20":  # 20: link-local, which needs a scope at the other end
            return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
    raise ValueError(f"{variable}={name}: this network interface has no address")


def _towards(host: str) -> str:
    """The address from which this host reaches another. Sends nothing."""
    problem: Optional[OSError] = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
        try:
            with socket.socket(family, kind, protocol) as s:
                s.connect(address)
                return str(s.getsockname()[0])
        except OSError as e:
            problem = e
    raise problem or OSError(errno.EHOSTUNREACH, f"no route to {host}")


def own_address() -> str:
    """The address that this rank listens at. ValueError: the environment names a missing one."""
    for variable in ("PICI_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        name = os.environ.get(variable, "").split(",")[0].strip()
        if name:
            return _of_interface(name, variable)
    master = os.environ.get("MASTER_ADDR", "")
    try:
        return _towards(master or socket.gethostname())
    except OSError as e:
        if master:
            raise ValueError(f"MASTER_ADDR={master}: {e}; PICI_SOCKET_IFNAME names the interface to use") from e
        return "127.0.0.1"


def own_ports() -> Iterable[int]:
    """The ports to try, in this order; 0 stands for any."""
    text = os.environ.get("PICI_SOCKET_PORTS", "")
    if not text:
        return (0,)
    lo, dash, hi = text.partition("-")
    if not (dash and lo.isascii() and lo.isdigit() and hi.isascii() and hi.isdigit()):
        raise ValueError(f"PICI_SOCKET_PORTS={text}: not a range of ports such as 20000-20100")
    if not 1 <= int(lo) <= int(hi) <= 65535:
        raise ValueError(f"PICI_SOCKET_PORTS={text}: not a range inside 1-65535")
    return range(int(lo), int(hi) + 1)


def _listen(backlog: int) -> socket.socket:
    """A socket that listens at the environment's address and ports."""
    address = own_address()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in own_ports():
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            # A port whose earlier connections have not ended may be listened at again.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(backlog)
            listener.setblocking(False)
            return listener
        except OSError as e:
            listener.close()
            if e.errno != errno.EADDRINUSE:
                raise OSError(e.errno, f"cannot listen at {address} port {port}: {e.strerror}") from e
    raise ValueError(f"PICI_SOCKET_PORTS={os.environ.get('PICI_SOCKET_PORTS')}: no port of these is free")


class _Place:
    """A rank's entry in the store."""

    def __init__(self, rank: int, text: str) -> None:
        try:
            self.host, port, token = text.rsplit(":", 2)
            self.port, self.token = int(port), bytes.fromhex(token)
            if not self.host or not 0 < self.port < 65536 or len(self.token) != TOKEN:
                raise ValueError
        except ValueError:
            raise PeerError(
                f"rank {rank} wrote {text[:80]!r} to the store, which is not address:port:token: does it run another "
                "version of pici?"
            ) from None


class _Meeting:
    """The ranks in one place of the store. Uses only set, get and add, which all torch stores have; only get may wait,
    and it is called for existing keys."""

    def __init__(self, store: Any, rank: int, ranks: int, timeout: float, look: Callable[[], object]) -> None:
        self.store, self.rank, self.ranks = store, rank, ranks
        self.timeout = timeout
        self.look = look
        self.told: Optional[PeerError] = None  # what another rank wrote to the store
        self.deadline = time.monotonic() + timeout

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def publish(self, place: str) -> None:
        self.store.set(str(self.rank), place)
        self.store.add(f"ready/{self.rank}", 1)
        self.store.add("ready", 1)

    def fail(self, why: BaseException) -> None:
        """Tell the others. They hear only the first rank that fails."""
        if self.store.add("failed", 1) == 1:
            me = f"rank {self.rank}"
            self.store.set("why", str(why) if str(why).startswith(me) else f"{me}: {why}")
            self.store.add("told", 1)

    def check(self) -> None:
        """Raise another rank's error, or its loss."""
        if self.store.add("told", 0):
            self.told = PeerError(f"the ranks are not connected: {self._get('why')}")
            raise self.told
        self.look()

    def _get(self, key: str) -> str:
        value = self.store.get(key)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def missing(self) -> list[int]:
        return [r for r in range(self.ranks) if not self.store.add(f"ready/{r}", 0)]

    def texts(self) -> list[str]:
        """The entries of all ranks, as soon as all have published theirs."""
        pause, most = _POLL_S
        notice = time.monotonic() + NOTICE_S
        while self.store.add("ready", 0) < self.ranks:
            self.check()
            if self.left() <= 0:
                raise TimedOutError(
                    f"rank {self.rank} timed out after {self.timeout:g} s waiting for {_named(self.missing())} to "
                    "connect: all ranks must make the same calls"
                )
            if time.monotonic() >= notice:
                _log.warning("rank %d waits for %s to connect", self.rank, _named(self.missing()))
                notice = self.deadline
            time.sleep(pause)
            pause = min(2 * pause, most)
        return [self._get(str(r)) for r in range(self.ranks)]

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Tells the other ranks of exceptions inside it."""
        try:
            yield
        except BaseException as e:
            if e is not self.told:
                with contextlib.suppress(Exception):  # the store itself may have failed; raise e
                    self.fail(e)
            raise


def _named(ranks: Iterable[int]) -> str:
    numbers = [str(r) for r in sorted(ranks)]
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(numbers)}"


def _connect(meeting: _Meeting, peer: int, place: _Place) -> socket.socket:
    """A connection to a lower rank, on which the greeting was sent."""
    try:
        s = socket.create_connection((place.host, place.port), max(meeting.left(), 0.001))
    except OSError as e:
        hint = ""
        if place.host.startswith("127.") or place.host == "::1":
            hint = ", an address that only its own host can reach"
        raise PeerError(
            f"rank {meeting.rank} cannot connect to rank {peer} at {place.host} port {place.port}{hint}: {e}; "
            "PICI_SOCKET_IFNAME names the interface to listen at"
        ) from e
    try:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(GREETING.pack(MAGIC, place.token, meeting.rank))
    except OSError as e:
        s.close()
        raise PeerError(f"rank {peer} closed the connection of rank {meeting.rank}: {e}") from e
    except BaseException:
        s.close()
        raise
    return s


def _answered(meeting: _Meeting, peer: int, s: socket.socket, token: bytes) -> None:
    """Wait for the answer of a lower rank, this rank's token."""
    got = b""
    while len(got) < TOKEN:
        if meeting.left() <= 0:
            raise TimedOutError(f"rank {peer} did not answer rank {meeting.rank} within {meeting.timeout:g} s")
        s.settimeout(min(1.0, max(meeting.left(), 0.001)))
        try:
            part = s.recv(TOKEN - len(got))
        except socket.timeout:
            meeting.check()
            continue
        except OSError as e:
            raise PeerError(f"rank {peer} broke the connection of rank {meeting.rank}: {e}") from e
        if not part:
            meeting.check()
            raise PeerError(f"rank {peer} closed the connection of rank {meeting.rank}")
        got += part
    if not hmac.compare_digest(got, token):
        raise PeerError(f"the process at the address of rank {peer} is not a rank of this group")


class _Door:
    """Accepts the higher ranks, and closes the connections of unauthenticated peers."""

    def __init__(self, meeting: _Meeting, listener: socket.socket, places: list[_Place]) -> None:
        self.meeting, self.listener, self.places = meeting, listener, places
        self.wanted = set(range(meeting.rank + 1, meeting.ranks))
        self.greeted: dict[int, socket.socket] = {}
        self.pending: dict[socket.socket, tuple[bytearray, float]] = {}  # without a greeting: bytes, until when

    def run(self) -> None:
        looked = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            try:
                while self.wanted:
                    if self.meeting.left() <= 0:
                        raise TimedOutError(
                            f"{_named(self.wanted)} did not connect to rank {self.meeting.rank} within "
                            f"{self.meeting.timeout:g} s"
                        )
                    if time.monotonic() - looked >= 1:
                        self.meeting.check()
                        looked = time.monotonic()
                    for key, _ in selector.select(min(1.0, max(self.meeting.left(), 0))):
                        if key.fileobj is self.listener:
                            self.accept(selector)
                        elif key.fileobj in self.pending:  # not dropped since
                            assert isinstance(key.fileobj, socket.socket)
                            self.read(selector, key.fileobj)
                    now = time.monotonic()
                    for s in [s for s, (_, until) in self.pending.items() if now >= until]:
                        self.drop(selector, s)
            finally:
                for s in list(self.pending):
                    self.drop(selector, s)

    def accept(self, selector: selectors.BaseSelector) -> None:
        try:
            s, _ = self.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if len(self.pending) >= STRANGERS:
            self.drop(selector, next(iter(self.pending)))  # the oldest
        s.setblocking(False)
        self.pending[s] = (bytearray(), time.monotonic() + STRANGER_S)
        selector.register(s, selectors.EVENT_READ)

    def drop(self, selector: selectors.BaseSelector, s: socket.socket) -> None:
        selector.unregister(s)
        del self.pending[s]
        s.close()

    def read(self, selector: selectors.BaseSelector, s: socket.socket) -> None:
        got, _ = self.pending[s]
        try:
            part = s.recv(GREETING.size - len(got))
        except BlockingIOError:
            return
        except OSError:
            part = b""
        got += part
        if part and len(got) < GREETING.size:
            return
        peer = self.peer(bytes(got))
        if peer is None:
            self.drop(selector, s)
            return
        selector.unregister(s)
        del self.pending[s]
        self.greeted[peer] = s
        self.wanted.remove(peer)
        s.setblocking(True)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            s.sendall(self.places[peer].token)
        except OSError as e:
            raise PeerError(f"rank {peer} closed its connection to rank {self.meeting.rank}: {e}") from e

    def peer(self, greeting: bytes) -> Optional[int]:
        """The rank that sent a greeting; None: an unauthenticated peer."""
        if len(greeting) != GREETING.size:
            return None
        magic, token, peer = GREETING.unpack(greeting)
        known = magic == MAGIC and hmac.compare_digest(token, self.places[self.meeting.rank].token)
        return peer if known and peer in self.wanted else None


def connect(
    store: Any,
    rank: int,
    ranks: int,
    timeout: float,
    check: Callable[[], object] = lambda: None,
    look: Callable[[], object] = lambda: None,
) -> list[int]:
    """File descriptors of connected sockets to all ranks; this rank's own is -1. The caller owns them. All ranks call
    this with a store in which nobody else uses the same keys: set(key, text), get(key), add(key, number).
        timeout   seconds, for all of it
        check     called first; the other ranks learn of its exceptions too
        look      called repeatedly while this rank waits; raises if it knows that another rank has ended
    ValueError: the environment. TimedOutError: a rank did not come. PeerError: another rank failed, or closed its
    connection."""
    meeting = _Meeting(store, rank, ranks, timeout, look)
    peers: dict[int, socket.socket] = {}
    try:
        with meeting.telling():
            check()
            with _listen(ranks + STRANGERS) as listener:
                host, port = listener.getsockname()[:2]
                meeting.publish(f"{host}:{port}:{secrets.token_hex(TOKEN)}")
                places = [_Place(r, text) for r, text in enumerate(meeting.texts())]
                for peer in range(rank):
                    peers[peer] = _connect(meeting, peer, places[peer])
                door = _Door(meeting, listener, places)
                try:
                    door.run()
                finally:
                    peers.update(door.greeted)
                for peer in range(rank):
                    _answered(meeting, peer, peers[peer], places[rank].token)
            for s in peers.values():
                s.setblocking(True)
            return [peers[r].detach() if r != rank else -1 for r in range(ranks)]
    except BaseException:
        for s in peers.values():
            s.close()
        raise


def agree(
    store: Any,
    rank: int,
    ranks: int,
    timeout: float,
    settings: Callable[[], str],
    look: Callable[[], object] = lambda: None,
) -> None:
    """Compare settings that all ranks must share; settings() describes this rank's in words. The store, the timeout and
    look are as for connect().
    ValueError: they differ, or what settings() raised. TimedOutError: a rank did not come. PeerError: another failed.
    """
    meeting = _Meeting(store, rank, ranks, timeout, look)
    with meeting.telling():
        meeting.publish(settings())
        texts = meeting.texts()
        for other, text in enumerate(texts):
            if text != texts[0]:
                raise ValueError(f"must be the same on all ranks: rank 0 has {texts[0]}, rank {other} has {text}")


def identities(fds: Iterable[int]) -> list[tuple[int, int, int]]:
    """Which sockets these are: for each, its descriptor, device and inode."""
    return [(fd, status.st_dev, status.st_ino) for fd in fds if fd >= 0 for status in [os.fstat(fd)]]


def close_copies(sockets: Iterable[tuple[int, int, int]]) -> None:
    """Close the descriptors that are still those sockets, by identities()."""
    for fd, device, inode in sockets:
        with contextlib.suppress(OSError):  # it was closed
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) == (device, inode):
                os.close(fd)
