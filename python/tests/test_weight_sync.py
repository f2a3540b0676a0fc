# SPDX-License-Identifier: BSD-3-Clause
"""Whom examples/weight_sync.py lets in."""
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

PATH = Path(__file__).resolve().parents[2] / "examples/weight_sync.py"


def example():
    spec = importlib.util.spec_from_file_location("weight_sync", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Token(unittest.TestCase):
    def test_is_needed_beyond_this_host(self):
        sync = example()
        for option in ("--listen=0.0.0.0:0", "--listen=:0", "--connect=192.0.2.1:9", "--connect=elsewhere.invalid:9"):
            for token in ("", "12", "g" * 32):
                with mock.patch.object(sys, "argv", ["", "--weights=10", option]):
                    with mock.patch.dict(os.environ, {"WEIGHT_SYNC_TOKEN": token}):
                        with self.assertRaisesRegex(SystemExit, "WEIGHT_SYNC_TOKEN is not 32 hexadecimal digits"):
                            sync.main()
        self.assertEqual(sync.token_of(None, ("127.0.0.1", 9)), bytes(16))

    def test_is_no_argument(self):
        sync = example()
        with mock.patch.object(sync.subprocess, "Popen", wraps=subprocess.Popen) as started:
            with mock.patch.object(sys, "argv", ["", "--weights=1000", "--steps=1", "--servers=1"]):
                self.assertEqual(sync.main(), 0)
        (command,), options = started.call_args
        token = options["env"]["WEIGHT_SYNC_TOKEN"]
        self.assertEqual(len(token), 32)
        self.assertNotIn(token, " ".join(command))

    def test_impostors(self):
        """One says something else, one the right token but too slowly; the server comes after them."""
        sync, token = example(), bytes(range(16))
        sync.GREETING = 0.5
        connections = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            other, slow, server = (socket.create_connection(listener.getsockname()) for _ in range(3))
            other.sendall(b"GET / HTTP/1.0\r\n")
            server.sendall(token)

            def trickle():
                try:
                    for byte in token:
                        slow.sendall(bytes([byte]))
                        time.sleep(0.25)
                except OSError:  # refused
                    pass

            thread = threading.Thread(target=trickle)
            thread.start()
            sync.accept(listener, token, 1, connections)
            self.assertEqual(connections[0].getpeername(), server.getsockname())
            self.assertEqual(connections[0].gettimeout(), sync.TIMEOUT)
            thread.join()
        for x in (other, slow, server, *connections):
            x.close()

    def test_servers_that_do_not_come(self):
        sync = example()
        sync.TIMEOUT = 0.1
        with socket.create_server(("127.0.0.1", 0)) as listener:
            with self.assertRaisesRegex(TimeoutError, "0 of 2 servers came"):
                sync.accept(listener, bytes(16), 2, [])


if __name__ == "__main__":
    unittest.main()
