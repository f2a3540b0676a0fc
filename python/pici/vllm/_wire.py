# SPDX-License-Identifier: BSD-3-Clause
"""Messages between trainer and servers over a socket: frames with a code that only holders of the token can make.

Both ends first prove that they know the token, by HMACs of numbers that the other end has chosen. Every frame then has
a keyed BLAKE2 of its number, its head and its content. So the receiver detects damaged and inserted bytes before it
uses them. Only TLS encrypts contents. Heads are JSON; nothing is unpickled.
"""
from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import socket
import ssl
import struct
import time
from typing import Any, NamedTuple, Optional, Union

from .._store import local_path

Octets = Union[bytes, bytearray, memoryview]

LOG = "log"  # replaces the scheme of a log's URL
_SCHEME = re.compile("[a-z][a-z0-9+.-]*", re.IGNORECASE)

MAGIC = b"pici-w1\n"
NONCE = 32
PROOF = 32
MAC = 16
HEAD = struct.Struct("<BQ")
JSON, DATA = 1, 2
MAX_JSON = 256 << 20
TIMEOUT = 60.0  # seconds that an end waits for the other's bytes
GREETING = 10.0  # and within which one who connects must prove that it knows the token
PIECE = 1 << 22
SENT = 1 << 16  # most bytes that one call sends; the timeout is per call


class WireError(ConnectionError):
    """The other end sent an invalid message."""


class ClosedError(WireError):
    """The other end closed the connection."""


class Address(NamedTuple):
    """The origin of weights. scheme: tcp, tls or LOG."""

    scheme: str
    host: str
    port: int
    path: str


def parsed(url: str) -> Address:
    """Parse tcp://HOST:PORT, tls://HOST:PORT, or the URL of a log of deltas: file:///FOLDER or s3://BUCKET/RUN."""
    scheme, colon, rest = url.partition("://")
    if scheme not in ("tcp", "tls") and _SCHEME.fullmatch(scheme) and colon and rest:
        return Address(LOG, "", 0, local_path(url))
    host, colon, port = rest.rpartition(":")
    if scheme in ("tcp", "tls") and colon and port.isascii() and port.isdigit() and int(port) < 65536:
        return Address(scheme, host.strip("[]"), int(port), "")
    raise ValueError(
        f"url={url!r}: pass tcp://HOST:PORT, tls://HOST:PORT, or a log's URL: file:///FOLDER or s3://BUCKET/RUN"
    )


def spelled(scheme: str, host: str, port: int) -> str:
    """The URL of a listening socket."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def listening(certificate: str, key: str) -> tuple[ssl.SSLContext, str]:
    """The trainer's end of TLS, and the fingerprint of its certificate: SHA-256, in hexadecimal."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key or None)
    with open(certificate, encoding="ascii", errors="replace") as f:
        text = f.read()
    begin = text.index("-----BEGIN CERTIFICATE-----")  # load_cert_chain() has found one
    end = text.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
    return context, hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[begin:end])).hexdigest()


def _over_tls(s: socket.socket, host: str, fingerprint: str) -> ssl.SSLSocket:
    """The server's end of TLS. The certificate must have this fingerprint; without one, the system must trust it, and
    it must name the host.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if fingerprint:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    wrapped = context.wrap_socket(s, server_hostname=host)
    found = hashlib.sha256(wrapped.getpeercert(binary_form=True) or b"").hexdigest()
    if fingerprint and not hmac.compare_digest(found, fingerprint):
        wrapped.close()
        raise WireError(f"who listens has a certificate of the fingerprint {found}, not {fingerprint}")
    return wrapped


def remaining(deadline: float) -> float:
    """Seconds until the deadline, for a socket's timeout."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise WireError("timed out: the other end has not proven in time that it knows the token")
    return left


def _exactly(s: socket.socket, n: int, deadline: Optional[float] = None) -> bytearray:
    """Receive n bytes, and allocate memory as they arrive. Waits until the deadline; without one, each piece has the
    socket's timeout.
    """
    data = bytearray()
    while len(data) < n:
        if deadline is not None:
            s.settimeout(remaining(deadline))
        try:
            piece = s.recv(min(PIECE, n - len(data)))
        except socket.timeout:
            if deadline is None:
                raise
            continue  # remaining() says so
        if not piece:
            raise ClosedError("the other end closed the connection")
        data += piece
    return data


class Channel:
    """A connection whose ends have proven that they know the token."""

    def __init__(self, s: socket.socket, token: str, listens: bool, deadline: Optional[float] = None) -> None:
        """listens: whether this is the trainer's end. deadline: until when both ends prove that they know the token."""
        self._socket = s
        #: bytes sent and received
        self.sent = self.received = 0
        self._counts = [0, 0]
        secret = token.encode()
        if deadline is None:
            deadline = time.monotonic() + (GREETING if listens else TIMEOUT)
        s.settimeout(remaining(deadline))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = os.urandom(NONCE)
        if listens:
            s.sendall(MAGIC + own)
            greeting = bytes(_exactly(s, len(MAGIC) + NONCE + PROOF, deadline))
            other = greeting[len(MAGIC) : len(MAGIC) + NONCE]
            nonces = own + other
            known = hmac.compare_digest(greeting[-PROOF:], self._proof(secret, b"server", nonces))
            if not known or greeting[: len(MAGIC)] != MAGIC:
                raise WireError("who connected does not know the token")
            s.sendall(self._proof(secret, b"trainer", nonces))
        else:
            greeting = bytes(_exactly(s, len(MAGIC) + NONCE, deadline))
            if greeting[: len(MAGIC)] != MAGIC:
                raise WireError("who listens is no trainer of pici, or of another version")
            nonces = greeting[len(MAGIC) :] + own
            s.sendall(MAGIC + own + self._proof(secret, b"server", nonces))
            try:
                proof = bytes(_exactly(s, PROOF, deadline))
            except ClosedError:
                raise WireError("the trainer closed the connection: it has another token, or no room") from None
            if not hmac.compare_digest(proof, self._proof(secret, b"trainer", nonces)):
                raise WireError("who listens does not know the token")
        keys = [self._proof(secret, who + b" sends", nonces) for who in (b"trainer", b"server")]
        self._keys = keys if listens else keys[::-1]  # of sent, and of received messages
        s.settimeout(TIMEOUT)

    @staticmethod
    def _proof(secret: bytes, what: bytes, nonces: bytes) -> bytes:
        return hmac.new(secret, what + b"\0" + nonces, hashlib.sha256).digest()

    def _mac(self, way: int, *pieces: Octets) -> bytes:
        made = hashlib.blake2b(key=self._keys[way], digest_size=MAC)
        made.update(self._counts[way].to_bytes(8, "little"))
        self._counts[way] += 1
        for piece in pieces:
            made.update(piece)
        return made.digest()

    def _send(self, kind: int, content: Octets) -> None:
        head = HEAD.pack(kind, len(content))
        self.sent += HEAD.size + 2 * MAC + len(content)  # before the other end can answer
        for octets in (head + self._mac(0, head), content, self._mac(0, content)):
            rest = memoryview(octets)
            while rest:
                rest = rest[self._socket.send(rest[:SENT]) :]

    def _receive(self, wanted: int, most: int) -> bytearray:
        head = bytes(_exactly(self._socket, HEAD.size))
        if not hmac.compare_digest(bytes(_exactly(self._socket, MAC)), self._mac(1, head)):
            raise WireError("the head of a message was damaged on the way")
        kind, length = HEAD.unpack(head)
        if kind != wanted or length > most:
            raise WireError(f"a message of kind {kind} and {length} bytes came, which is not the one to come now")
        content = _exactly(self._socket, length)
        if not hmac.compare_digest(bytes(_exactly(self._socket, MAC)), self._mac(1, content)):
            raise WireError("a message was damaged on the way")
        self.received += HEAD.size + 2 * MAC + length
        return content

    def say(self, message: dict[str, Any]) -> None:
        self._send(JSON, json.dumps(message, separators=(",", ":")).encode())

    def hear(self) -> dict[str, Any]:
        try:
            message = json.loads(self._receive(JSON, MAX_JSON))
        except ValueError as e:
            raise WireError(f"a message is no JSON: {e}") from None
        if not isinstance(message, dict):
            raise WireError("a message is no JSON object")
        return message

    def send_data(self, content: Octets) -> None:
        self._send(DATA, content)

    def receive_data(self, most: int) -> bytearray:
        """Receive at most `most` bytes."""
        return self._receive(DATA, most)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(address: Address, token: str, fingerprint: Optional[str] = None) -> Channel:
    """A server's connection to the trainer."""
    s = socket.create_connection((address.host, address.port), TIMEOUT)
    try:
        if address.scheme == "tls":
            s = _over_tls(s, address.host, fingerprint or "")
        return Channel(s, token, listens=False)
    except BaseException:
        s.close()
        raise
