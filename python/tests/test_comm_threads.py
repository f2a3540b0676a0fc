# SPDX-License-Identifier: BSD-3-Clause
"""A communicator that two threads use, and signals during its calls."""
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import pici

LONG = 60.0  # seconds: a test that takes so long has failed


class Threads(unittest.TestCase):
    """Two threads, one communicator."""

    def waiting(self, comm):
        """A thread in a call that waits for a peer. Its result, or exception, is in the list."""
        result = []
        began = threading.Event()

        def run():
            began.set()
            try:
                result.append(comm.all_reduce(np.ones(5), timeout=LONG))
            except Exception as e:
                result.append(e)

        thread = threading.Thread(target=run)
        thread.start()
        began.wait()
        time.sleep(0.2)
        return thread, result

    def test_busy(self):
        a, b = pici.Comm.threads(2)
        thread, result = self.waiting(a)
        for call in (lambda: a.all_reduce(np.ones(5)), lambda: a.tune(window=2), lambda: a.error):
            self.assertRaisesRegex(pici.BusyError, "another thread", call)
        self.assertRaises(pici.BusyError, a.all_reduce_start, np.ones(5))
        self.assertIn("rank 0 of 2", repr(a))
        b.all_reduce(np.ones(5))  # the call of the thread goes on
        thread.join()
        self.assertEqual(result[0].tolist(), [2] * 5)
        self.assertEqual(a.error, "")

    def test_close_by_another(self):
        a, b = pici.Comm.threads(2)
        thread, result = self.waiting(a)
        begin = time.monotonic()
        a.close()
        thread.join()
        self.assertLess(time.monotonic() - begin, 5)
        self.assertIsInstance(result[0], pici.BrokenError)
        self.assertRegex(str(result[0]), "closed")
        self.assertRaises(pici.PeerError, b.all_reduce, np.ones(5), timeout=LONG)


class Interrupted(Exception):
    pass


class Signals(unittest.TestCase):
    def setUp(self):
        self.calls = []
        old = signal.signal(signal.SIGALRM, self.handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        self.raising = True

    def handler(self, *_):
        self.calls.append(1)
        if self.raising:
            raise Interrupted

    def soon(self, seconds=0.3):
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def test_blocking_call(self):
        a, b = pici.Comm.threads(2)
        early = a.all_gather_start(np.ones(2))
        begin = time.monotonic()
        self.soon()
        self.assertRaises(Interrupted, a.all_reduce, np.ones(100000), timeout=LONG)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertTrue(a.closed)
        for call in (lambda: a.all_reduce(np.ones(5)), early.wait):
            self.assertRaisesRegex(pici.BrokenError, "interrupted|closed", call)
        self.assertRaises(pici.PeerError, b.all_gather, np.ones(2), timeout=LONG)

    def test_request_goes_on(self):
        a, b = pici.Comm.threads(2)
        request = a.all_reduce_start(np.ones(100000), timeout=LONG)
        self.soon()
        self.assertRaises(Interrupted, request.wait)
        self.assertFalse(request.done or a.closed)
        helper = threading.Thread(target=b.all_reduce, args=(np.ones(100000),))
        helper.start()
        self.assertTrue((request.wait() == 2).all())
        helper.join()

    def test_handler_that_returns(self):
        self.raising = False
        a, b = pici.Comm.threads(2)
        helper = threading.Timer(0.8, b.all_reduce, (np.ones(5),))
        helper.start()
        self.soon()
        self.assertEqual(a.all_reduce(np.ones(5), timeout=LONG).tolist(), [2] * 5)
        helper.join()
        self.assertEqual(self.calls, [1])

    def test_end_of_the_program(self):
        """With communicators open, one of them in a call of a daemon thread, and a request in flight."""
        program = (
            "import numpy, pici, threading, time\n"
            "comms = pici.Comm.threads(3)\n"
            "threading.Thread(target=comms[0].all_reduce, args=(numpy.ones(9),), daemon=True).start()\n"
            "request = comms[1].all_reduce_start(numpy.ones(9))\n"
            "time.sleep(0.2)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
