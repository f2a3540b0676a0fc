# SPDX-License-Identifier: BSD-3-Clause
"""Logs of deltas at URLs: in memory, over HTTP with and without ranges, and in S3 by moto's server. Writers that are
killed at each of their requests, two at once, requests that fail, listings that are old."""
import functools
import http.server
import logging
import os
import tempfile
import threading
import unittest
import unittest.mock
import urllib.parse
from pathlib import Path

import numpy as np

import pici
from pici import _store

try:
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem
except ImportError:
    fsspec = None
    MemoryFileSystem = object

NO_FSSPEC = "logs at URLs: there is no fsspec (python3-fsspec)"


def state(i, length=60000):
    w = np.arange(length, dtype=np.float32) / 7
    for step in range(1, i + 1):
        w[np.random.default_rng(step).integers(0, length, length // 50)] += step / 64
    return {"w": w, "step": np.full(10, i, np.int64)}


STATES = [state(i) for i in range(6)]


class Killed(BaseException):
    """The writer's process ends here."""


class Faulty(MemoryFileSystem):
    """Requests of this can fail. `at`: how many succeed before; after the request itself has been done if `late`."""

    protocol = "faulty"
    store = {}
    pseudo_dirs = [""]
    at = None
    late = False
    error = Killed
    times = 1
    count = 0
    listing = None

    @classmethod
    def request(cls, call):
        cls.count += 1
        fails = cls.at is not None and cls.at < cls.count <= cls.at + cls.times
        if fails and not cls.late:
            raise cls.error("the request failed")
        result = call()
        if fails:
            raise cls.error("the answer was lost")
        return result

    def _strip(self, path):
        return self._strip_protocol(path)

    def cat_file(self, path, start=None, end=None, **kwargs):
        return self.request(lambda: MemoryFileSystem.cat_file(self, path, start=start, end=end))

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        def put():
            if mode == "create" and self.exists(path):
                raise FileExistsError(path)
            MemoryFileSystem.pipe_file(self, path, value)

        return self.request(put)

    def put_file(self, lpath, rpath, **kwargs):
        data = Path(lpath).read_bytes()
        return self.request(lambda: MemoryFileSystem.pipe_file(self, rpath, data))

    def rm_file(self, path):
        return self.request(lambda: MemoryFileSystem._rm(self, path))

    def ls(self, path, detail=True, **kwargs):
        if type(self).listing is not None:
            return type(self).listing
        return self.request(lambda: MemoryFileSystem.ls(self, path, detail=detail, **kwargs))

    @classmethod
    def reset(cls, **kwargs):
        cls.at, cls.late, cls.error, cls.times, cls.count, cls.listing = None, False, Killed, 1, 0, None
        for name, value in kwargs.items():
            setattr(cls, name, value)


def faulty_store(case):
    """Faulty's files are gone, and retries come at once, for a test; which is skipped without fsspec."""
    if fsspec is None:
        case.skipTest(NO_FSSPEC)
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    Faulty.reset()
    Faulty.store.clear()
    delay = unittest.mock.patch.object(_store, "DELAY", 0.001)
    delay.start()
    case.addCleanup(delay.stop)


class LogTest(unittest.TestCase):
    def setUp(self):
        faulty_store(self)
        if os.access("/dev/shm", os.W_OK):  # where to synchronize takes no time
            patch = unittest.mock.patch.object(tempfile, "tempdir", "/dev/shm")
            patch.start()
            self.addCleanup(patch.stop)
        fsspec.filesystem("memory").store.clear()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def patch(self, name, value):
        patch = unittest.mock.patch.object(_store, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def same(self, found, i):
        weights, number = found
        self.assertEqual(number, i)
        self.assertEqual(sorted(weights), ["step", "w"])
        for name, x in STATES[i].items():
            self.assertEqual(np.asarray(weights[name]).tobytes(), x.tobytes())

    def whole_story(self, url, **options):
        """What one does with a log."""
        for pack in ("none", "planes"):
            with self.subTest(url=url, pack=pack):
                where = f"{url}/{pack}/"
                log = pici.DeltaLog.create(where, STATES[0], pack=pack, **options)
                with self.assertRaisesRegex(FileExistsError, "is a log already"):
                    pici.DeltaLog.create(where, STATES[0], **options)
                self.same(log.load(), 0)
                reader = pici.DeltaLog(where, **options)
                self.assertEqual(log.append(STATES[0], STATES[1]), 1)
                other = pici.DeltaLog(where, **options)
                before = other._remote.store.read_bytes
                self.assertEqual(other.append(STATES[1], STATES[2]), 2)
                self.assertLess(other._remote.store.read_bytes - before, 30000)  # of a base, what it is of
                self.same(reader.load(), 2)
                for i in range(3):
                    self.same(reader.load(STATES[i], i), 2)
                    self.same(reader.load(STATES[i]), 2)
                with self.assertRaisesRegex(pici.ArgumentError, f"is not the newest state of {url}"):
                    log.append(STATES[0], STATES[3])
                with self.assertRaisesRegex(pici.ArgumentError, "is none of the states"):
                    reader.load(STATES[4])
                file = self.dir / "w.safetensors"
                self.assertEqual(reader.apply(file), 2)
                self.assertEqual(
                    [(s.number, s.bytes) for s in log.states()], [(i, file.stat().st_size) for i in range(3)]
                )
                log.append(STATES[2], STATES[3])
                before = reader._remote.store.read_bytes
                self.assertEqual(reader.apply(file), 3)
                self.assertLess(reader._remote.store.read_bytes - before, log.states()[3].delta_bytes + 1000)
                file.unlink()
                log.compact()
                self.assertEqual((reader.base, reader.newest), (3, 3))
                self.same(reader.load(), 3)
                self.same(reader.load(STATES[1], 1), 3)
                self.assertEqual(reader.append(STATES[3], STATES[4]), 4)
                self.same(log.load(), 4)
                names = {n for n in log._remote.store.names() if n.startswith("base-")}
                self.assertEqual(len(names), 1, names)  # the old one was removed
                self.assertGreater(log.stored_bytes, 0)
        with self.assertRaisesRegex(FileNotFoundError, f"{url}/none/such/manifest"):
            pici.DeltaLog(f"{url}/none/such", **options)


class TestUrlLogs(LogTest):
    def test_memory(self):
        self.whole_story("memory://log")

    def test_lock_object(self):
        """Where objects cannot be replaced on a condition, a lock is an object that one writer creates."""
        self.whole_story("faulty://log")
        self.assertFalse([name for name in Faulty.store if name.endswith("/lock")])

    def test_file_url(self):
        """file:// is the folder."""
        pici.DeltaLog.create(f"file://{self.dir}/a%20log", {"x": np.ones(3)})
        self.assertEqual(pici.DeltaLog(f"{self.dir}/a log").newest, 0)
        url = f"file://{self.dir}/log"
        pici.DeltaLog.create(url, STATES[0])
        log = pici.DeltaLog(self.dir / "log")
        log.append(STATES[0], STATES[1])
        self.same(pici.DeltaLog(url).load(), 1)
        self.same(next(pici.DeltaLog(url).follow(STATES[0], 0)), 1)
        self.assertEqual(log.stored_bytes, sum(f.stat().st_size for f in (self.dir / "log").iterdir()))
        for bad, words in (("file://log", "begins with /"), ("simplecache::memory://x", "in a row")):
            with self.assertRaisesRegex(ValueError, words):
                pici.DeltaLog(bad)
        with self.assertRaisesRegex(ValueError, "storage_options are for URLs"):
            pici.DeltaLog(url, storage_options={})

    def test_copied_there(self):
        """A log that was written to disk and copied to a store, with the names that it had."""
        log = pici.DeltaLog.create(self.dir / "log", STATES[0], pack="planes")
        for i in range(3):
            log.append(STATES[i], STATES[i + 1])
        memory = fsspec.filesystem("memory")
        for f in (self.dir / "log").iterdir():
            memory.pipe_file(f"/copied/{f.name}", f.read_bytes())
        there = pici.DeltaLog("memory://copied")
        self.same(there.load(), 3)
        self.assertEqual(there.append(STATES[3], STATES[4]), 4)
        self.same(pici.DeltaLog("memory://copied").load(), 4)
        self.same(pici.DeltaLog("memory://copied").load(STATES[2], 2), 4)
        there.compact()
        self.same(pici.DeltaLog("memory://copied").load(), 4)
        self.assertFalse([n for n in there._remote.store.names() if n.startswith("base-000000000")])

    def test_copied_back(self):
        """A log that was written to a store and copied to disk, with the names that it had there."""
        for pack in ("none", "planes"):
            log = pici.DeltaLog.create(f"memory://back-{pack}", STATES[0], pack=pack)
            for i in range(3):
                log.append(STATES[i], STATES[i + 1])
            memory, copy = fsspec.filesystem("memory"), self.dir / f"copy-{pack}"
            copy.mkdir()
            for name in log._remote.store.names():
                (copy / name).write_bytes(memory.cat_file(f"/back-{pack}/{name}"))
            self.assertEqual(len(list(copy.glob("delta-00000000?-????????????????.pici"))), 3)
            there = pici.DeltaLog(copy)
            self.same(there.load(), 3)
            self.same(there.load(STATES[1], 1), 3)
            self.assertEqual(there.append(STATES[3], STATES[4]), 4)
            self.same(pici.DeltaLog(copy).load(STATES[2], 2), 4)
            there.compact()
            self.same(pici.DeltaLog(copy).load(), 4)
            self.assertFalse(list(copy.glob("base-000000000*")))
            next(copy.glob("base-000000004*")).unlink()
            with self.assertRaisesRegex(pici.CorruptError, "copy the log again"):
                pici.DeltaLog(copy).load()

    def test_shorter_by_pieces(self):
        """An object that ends where a piece does, in a store that refuses ranges after the end: no further requests."""
        faulty_store(self)
        log = pici.DeltaLog.create("faulty://short", STATES[0])
        for i in range(2):
            log.append(STATES[i], STATES[i + 1])
        store = log._remote.store
        name = next(n for n in store.names() if n.startswith("delta-000000002"))
        whole = store.read(name)
        asked = []

        def cat_file(fs, path, start=None, end=None, **kwargs):
            data = MemoryFileSystem.cat_file(fs, path)
            if path.endswith(name):
                asked.append(start)
            if start and start >= len(data):
                raise OSError("InvalidRange")
            return data[start:end]

        piece = len(whole) // 4
        store._fs.pipe_file(store._path(name), whole[:piece])
        with unittest.mock.patch.object(_store, "PIECE", piece), unittest.mock.patch.object(
            Faulty, "cat_file", cat_file
        ):
            self.same(pici.DeltaLog("faulty://short").load(), 1)
        self.assertEqual(asked, [0, piece])

    def test_incomplete(self):
        """An object that is missing, cut off or damaged: the states before it are there."""
        log = pici.DeltaLog.create("memory://log", STATES[0])
        for i in range(4):
            log.append(STATES[i], STATES[i + 1])
        memory = fsspec.filesystem("memory")
        name = next(n for n in memory.store if "delta-000000003" in n)
        data = memory.cat_file(name)
        for bad in (None, data[:-1], data[:40] + b"x" + data[41:]):
            memory.store.pop(name, None)
            if bad is not None:
                memory.pipe_file(name, bad)
            self.same(pici.DeltaLog("memory://log").load(), 2)
            self.same(pici.DeltaLog("memory://log").load(STATES[1], 1), 2)
            with self.assertRaisesRegex(pici.CorruptError, "memory://log/delta-000000003.pici: is"):
                log.compact()
        memory.pipe_file(name, data)
        self.same(pici.DeltaLog("memory://log").load(), 4)
        memory.pipe_file("/log/manifest", memory.cat_file("/log/manifest")[:-3])
        with self.assertRaisesRegex(pici.CorruptError, "memory://log/manifest: .*incomplete or damaged"):
            pici.DeltaLog("memory://log")

    def test_follow(self):
        log = pici.DeltaLog.create("memory://log", STATES[0])
        reader = pici.DeltaLog("memory://log")
        follower = reader.follow(poll=0.001, timeout=5)
        self.same(next(follower), 0)
        for i in range(3):
            before = reader._remote.store.read_bytes
            log.append(STATES[i], STATES[i + 1])
            self.same(next(follower), i + 1)
            # the delta, and of the manifest what is new
            self.assertLess(reader._remote.store.read_bytes - before, log.states()[-1].delta_bytes + 500)
        log.append(STATES[3], STATES[4])
        with unittest.mock.patch.object(pici.logs, "time", unittest.mock.Mock(monotonic=lambda: 0, sleep=None)):
            pici.DeltaLog("memory://log").compact()
        log.append(STATES[4], STATES[5])
        self.same(next(follower), 5)
        self.assertEqual(list(reader.follow(STATES[5], 5, timeout=0.01, poll=0.001)), [])
        # one that was away for so long that its state is forgotten
        with unittest.mock.patch.object(pici.DeltaLog, "load", autospec=True, side_effect=pici.DeltaLog.load) as load:
            self.same(next(reader.follow(STATES[0], 99)), 5)
            self.assertIsNone(load.call_args[0][1])

    def test_two_writers(self):
        """One appends what the other has not seen: it is told so. Compactions do not come between."""
        for url in ("memory://log", "faulty://log"):
            with self.subTest(url=url):
                one = pici.DeltaLog.create(url, STATES[0])
                two = pici.DeltaLog(url)
                real = pici._remote.Remote.publish
                for action, words in (
                    (lambda: two.append(STATES[1], STATES[2]), "another writer has appended state 2 meanwhile"),
                    (two.compact, None),
                ):
                    one.append(STATES[one.newest], STATES[one.newest + 1])
                    last = one.newest
                    done = []

                    def publish(*args):
                        if not done:
                            done.append(1)
                            action()
                        return real(*args)

                    with unittest.mock.patch.object(pici._remote.Remote, "publish", publish):
                        if words is None:
                            self.assertEqual(one.append(STATES[last], STATES[last + 1]), last + 1)
                        else:
                            with self.assertRaisesRegex(pici.ArgumentError, words):
                                one.append(STATES[last], STATES[last + 2])
                    self.same(two.load(), one.newest)
                    self.same(one.load(STATES[0] if words else STATES[last], 0 if words else last), one.newest)

    def test_both_at_once(self):
        for url in ("memory://log", "faulty://log"):
            with self.subTest(url=url):
                pici.DeltaLog.create(url, STATES[0])
                results = []

                def append(i):
                    try:
                        results.append(pici.DeltaLog(url).append(STATES[0], STATES[i]))
                    except pici.ArgumentError as e:
                        results.append(str(e))

                threads = [threading.Thread(target=append, args=(i,)) for i in range(1, 5)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                self.assertEqual(results.count(1), 1, results)
                self.assertEqual(len(results), 4)
                weights, number = pici.DeltaLog(url).load()
                self.assertEqual(number, 1)
                self.same((weights, int(weights["step"][0])), int(weights["step"][0]))

    def killed_at_each(self, verb, after):
        """verb(log): what the writer does; after: the states that the log may have then."""
        self.patch("LEASE", 0)
        for late in (False, True):
            at = 0
            while True:
                Faulty.reset()
                Faulty.store.clear()
                log = pici.DeltaLog.create("faulty://log", STATES[0], pack="planes")
                for i in range(2):
                    log.append(STATES[i], STATES[i + 1])
                writer = pici.DeltaLog("faulty://log")
                Faulty.reset(at=at, late=late, times=10**9)
                try:
                    verb(writer)
                    break
                except Killed:
                    pass
                Faulty.reset()
                reader = pici.DeltaLog("faulty://log")
                newest = reader.load()[1]
                self.assertIn(newest, after, f"killed at request {at}")
                self.same(reader.load(), newest)
                self.same(reader.load(STATES[2], 2), newest)
                again = pici.DeltaLog("faulty://log")
                self.assertEqual(again.append(STATES[newest], STATES[newest + 1]), newest + 1)
                again.compact()
                self.same(reader.load(), newest + 1)
                named = {e.name for e in pici._remote.Entries.of(reader._remote.read_manifest()).all}
                left = {n.rsplit("/", 1)[1] for n in Faulty.store} - named - {"manifest"}
                self.assertLessEqual(left, set(), f"killed at request {at}")
                at += 1
            self.assertGreater(at, 5)

    def test_killed_append(self):
        self.killed_at_each(lambda log: log.append(STATES[2], STATES[3]), (2, 3))

    def test_killed_compact(self):
        self.killed_at_each(lambda log: log.compact(), (2,))

    def test_killed_create(self):
        self.patch("LEASE", 0)
        for late in (False, True):
            at = 0
            while True:
                Faulty.reset(at=at, late=late, times=10**9)
                Faulty.store.clear()
                try:
                    pici.DeltaLog.create("faulty://log", STATES[0])
                    break
                except Killed:
                    pass
                Faulty.reset()
                try:
                    pici.DeltaLog.create("faulty://log", STATES[0])
                except FileExistsError:
                    self.assertGreaterEqual(at, 3)  # it was killed after that
                self.same(pici.DeltaLog("faulty://log").load(), 0)
                at += 1
            self.assertGreaterEqual(at, 3)

    def test_failing_requests(self):
        """A request that fails now and then is made again; one that always fails is named."""
        pici.DeltaLog.create("faulty://log", STATES[0])
        for late in (False, True):
            at = 0
            while True:
                log = pici.DeltaLog("faulty://log")
                newest = log.newest
                Faulty.reset(at=at, late=late, error=OSError, times=2)
                if newest < 4:
                    self.assertEqual(log.append(STATES[newest], STATES[newest + 1]), newest + 1)
                    self.same(log.load(), newest + 1)
                    log.compact()
                    done = Faulty.count < at
                    at += 1
                    if done:
                        break
                else:
                    Faulty.reset()
                    Faulty.store.clear()
                    pici.DeltaLog.create("faulty://log", STATES[0])
        Faulty.reset(at=0, error=OSError, times=10**9)
        with self.assertRaisesRegex(OSError, "faulty://log/manifest: reading failed 5 times: the request failed"):
            log.load()

    def test_stale_listing(self):
        """Nothing is read by a listing; what it hides is removed later, and what is gone already is no error."""
        log = pici.DeltaLog.create("faulty://log", STATES[0])
        old = log._remote.store.names()
        for i in range(4):
            log.append(STATES[i], STATES[i + 1])
            Faulty.reset(listing=[f"/log/{name}" for name in [*old, "delta-000000001-0000000000000000.pici"]])
            log.compact()
            self.same(pici.DeltaLog("faulty://log").load(), i + 1)
        Faulty.reset()
        log.compact()
        self.assertEqual(len([n for n in Faulty.store if "/base-" in n]), 1)

    def test_a_store_without_conditions(self):
        def pipe_file(self, path, value, mode="overwrite", **kwargs):
            MemoryFileSystem.pipe_file(self, path, value)

        with unittest.mock.patch.object(Faulty, "pipe_file", pipe_file):
            with self.assertRaisesRegex(pici.UnsupportedError, "faulty://log: this store lets two writers create one"):
                pici.DeltaLog.create("faulty://log", STATES[0])

    def test_held_up(self):
        """A writer that has the lock for too long may have lost it: it changes nothing."""
        log = pici.DeltaLog.create("faulty://log", STATES[0])
        real = Faulty.pipe_file

        def pipe_file(self, path, value, mode="overwrite", **kwargs):
            real(self, path, value, mode, **kwargs)
            if path.endswith("/lock") and len(value) == 32:
                log._remote.store._lock_works = True
                now = _store.time.monotonic
                patch = unittest.mock.patch.object(_store.time, "monotonic", lambda: now() + next(held))
                patch.start()
                stop.append(patch.stop)

        stop = []
        held = iter([0, 16, 16, 16])
        with unittest.mock.patch.object(Faulty, "pipe_file", pipe_file):
            with self.assertRaisesRegex(OSError, "this writer was held up for 15 s; nothing was changed"):
                try:
                    log.append(STATES[0], STATES[1])
                finally:
                    stop[0]()
        self.assertEqual(log.newest, 0)

    def test_late_answer(self):
        """The time for which a writer has the lock begins when it asks for it, not when it is told that it has it."""
        log = pici.DeltaLog.create("faulty://log", STATES[0])
        real, now = Faulty.pipe_file, _store.time.monotonic
        late = [0]

        def pipe_file(self, path, value, mode="overwrite", **kwargs):
            real(self, path, value, mode, **kwargs)
            late[0] = 16

        with unittest.mock.patch.object(Faulty, "pipe_file", pipe_file):
            with unittest.mock.patch.object(_store.time, "monotonic", lambda: now() + late[0]):
                with self.assertRaisesRegex(OSError, "this writer was held up for 15 s; nothing was changed"):
                    log.append(STATES[0], STATES[1])
        self.assertEqual(log.newest, 0)

    def both_follow(self, before_hold):
        """Two writers find that the lock's owner is dead. One is held up before its request; the other one follows the
        owner meanwhile. What the first does then is in the events that are returned."""
        Faulty.reset()
        Faulty.store.clear()
        pici.DeltaLog.create("faulty://log", STATES[0])
        first, second = (_store.Store("faulty://log") for _ in range(2))
        self.patch("LEASE", 0.05)
        first._fs.pipe_file(first._path("lock"), b"0" * 32)
        reached, go, entered, left = (threading.Event() for _ in range(4))
        errors = []

        def lock():
            try:
                with first._locked():
                    entered.set()
            except BaseException as e:
                errors.append(e)
            left.set()

        thread = threading.Thread(target=lock, daemon=True)
        pipe, remove = Faulty.pipe_file, Faulty.rm_file

        def held_up(path):
            if threading.current_thread() is thread and "/lock" in path and not reached.is_set():
                reached.set()
                go.wait(20)

        def pipe_file(fs, path, value, mode="overwrite", **kwargs):
            if not path.endswith("/lock"):
                held_up(path)
            return pipe(fs, path, value, mode, **kwargs)

        def rm_file(fs, path):
            held_up(path)
            return remove(fs, path)

        with unittest.mock.patch.object(Faulty, "pipe_file", pipe_file):
            with unittest.mock.patch.object(Faulty, "rm_file", rm_file):
                thread.start()
                self.assertTrue(reached.wait(20))
                with second._locked():
                    _store.LEASE = 1000
                    if before_hold:
                        go.set()
                        self.assertFalse(entered.wait(0.2))
                go.set()
                self.assertTrue(left.wait(20))
        self.assertEqual(errors, [])
        self.assertEqual([name for name in Faulty.store if "/lock" in name], [])

    def test_two_follow_a_dead_owner(self):
        """One of them gets the lock, whichever asks first, also if the other has given it back by then."""
        for before_hold in (True, False):
            with self.subTest(before_hold=before_hold):
                self.both_follow(before_hold)

    def test_dead_owners_in_a_row(self):
        """Writers that were killed while they had the lock, one after the other."""
        log = pici.DeltaLog.create("faulty://log", STATES[0])
        self.patch("LEASE", 0.05)
        owners = [b"%032d" % i for i in range(3)]
        name = "lock"
        for owner in owners:
            log._remote.store._fs.pipe_file(log._remote.store._path(name), owner)
            name = _store._follower(owner)
        self.assertEqual(log.append(STATES[0], STATES[1]), 1)
        self.assertEqual([name for name in Faulty.store if "/lock" in name], [])

    def test_without_fsspec(self):
        with unittest.mock.patch.dict("sys.modules", {"fsspec": None, "fsspec.core": None}):
            with self.assertRaisesRegex(ImportError, "s3://bucket/run: a log at a URL needs fsspec"):
                pici.DeltaLog("s3://bucket/run")


class Handler(http.server.SimpleHTTPRequestHandler):
    ranges = True
    sent = 0

    def do_GET(self):
        path = self.translate_path(self.path)
        if not os.path.isfile(path):
            return self.send_error(404)
        data = Path(path).read_bytes()
        asked = self.headers.get("Range", "") if self.ranges else ""
        first, last = 0, len(data) - 1
        if asked:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end or last), last)
            if first >= len(data):
                return self.send_error(416)
        piece = data[first : last + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(piece)))
        self.end_headers()
        self.wfile.write(piece)
        type(self).sent += len(piece)

    def log_message(self, *args):
        pass


@unittest.skipIf(fsspec is None, NO_FSSPEC)
class TestHttpLogs(unittest.TestCase):
    def setUp(self):
        try:
            import aiohttp  # noqa: F401
        except ImportError:
            self.skipTest("logs over HTTP: there is no aiohttp")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        handler = functools.partial(Handler, directory=folder.name)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}/log"

    def test_http(self):
        """A folder that a web server shows."""
        log = pici.DeltaLog.create(self.dir / "log", STATES[0], pack="planes")
        for ranges in (True, False):
            with self.subTest(ranges=ranges), unittest.mock.patch.object(Handler, "ranges", ranges):
                with unittest.mock.patch.object(_store, "PIECE", 10000):  # so that there are ranges
                    weights, number = pici.DeltaLog(self.url).load()
                self.assertEqual(weights["w"].tobytes(), STATES[number]["w"].tobytes())
                reader = pici.DeltaLog(self.url)
                follower = reader.follow(STATES[number], number, poll=0.01, timeout=5)
                for i in range(number, number + 2):
                    log.append(STATES[i], STATES[i + 1])
                    Handler.sent = 0
                    weights, found = next(follower)
                    self.assertEqual(found, i + 1)
                    self.assertEqual(weights["w"].tobytes(), STATES[i + 1]["w"].tobytes())
                    if ranges:
                        self.assertLess(Handler.sent, log.states()[-1].delta_bytes + 1000)
                log.compact()
                self.assertEqual(pici.DeltaLog(self.url).load()[1], number + 2)
        last = max((self.dir / "log").glob("delta-*"))
        piece = last.stat().st_size // 4
        last.write_bytes(last.read_bytes()[:piece])
        with unittest.mock.patch.object(_store, "PIECE", piece):  # which the rest begins after: 416
            self.assertEqual(pici.DeltaLog(self.url).load(STATES[2], 2)[1], 3)
        with self.assertRaisesRegex(pici.UnsupportedError, "logs are read over HTTP, not written"):
            pici.DeltaLog(self.url).append(STATES[4], STATES[5])
        with self.assertRaisesRegex(FileNotFoundError, "/logx/manifest"):
            pici.DeltaLog(self.url + "x")


class S3Server:
    """A server of S3 for one test."""

    def start_s3(self):
        try:
            import s3fs  # noqa: F401
            from moto.server import ThreadedMotoServer
        except ImportError as e:
            self.skipTest(f"logs in S3: there is no {e.name} (pip install s3fs moto[server])")
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(port=0, verbose=False)
        server.start()
        self.addCleanup(server.stop)
        host, port = server.get_host_and_port()
        self.options = dict(key="k", secret="s", endpoint_url=f"http://{host}:{port}")
        fsspec.filesystem("s3", **self.options).call_s3("create_bucket", Bucket="bucket")
        self.url = f"s3://bucket/{self.id()}"  # the servers of one process share what they have


class TestS3Logs(LogTest, S3Server):
    """In S3, where the manifest is replaced if its ETag is the one that was read."""

    def setUp(self):
        super().setUp()
        self.start_s3()

    def test_s3(self):
        self.whole_story(self.url, storage_options=self.options)

    def test_range_after_the_end(self):
        store = _store.Store(self.url, self.options)
        store.replace("short", store.found("short"), b"0123")
        with unittest.mock.patch.object(_store, "TRIES", 1):
            self.assertEqual(store.read_range("short", 2, 8), b"23")
            self.assertEqual(store.read_range("short", 4, 8), b"")

    def test_two_writers(self):
        url = self.url
        log = pici.DeltaLog.create(url, STATES[0], storage_options=self.options)
        real = pici._remote.Remote.publish
        other = pici.DeltaLog(url, storage_options=self.options)
        done = []

        def publish(*args):
            if not done:
                done.append(1)
                other.append(STATES[0], STATES[2])
            return real(*args)

        with unittest.mock.patch.object(pici._remote.Remote, "publish", publish):
            with self.assertRaisesRegex(pici.ArgumentError, f"{url}: another writer has appended state 1 meanwhile"):
                log.append(STATES[0], STATES[1])
        weights, number = log.load()
        self.assertEqual((number, weights["step"][0]), (1, 2))

    def test_lost_answer(self):
        """A manifest that was replaced, but whose answer was lost: the writer finds its own."""
        log = pici.DeltaLog.create(self.url, STATES[0], storage_options=self.options)
        fs = log._remote.store._fs
        real, calls = fs.pipe_file, []

        def pipe_file(*args, **kwargs):
            real(*args, **kwargs)
            calls.append(kwargs)
            if len(calls) == 1:
                raise OSError("the answer was lost")

        with unittest.mock.patch.object(fs, "pipe_file", pipe_file):
            self.assertEqual(log.append(STATES[0], STATES[1]), 1)
        self.assertEqual([list(k) for k in calls], [["IfMatch"]])
        self.same(pici.DeltaLog(self.url, storage_options=self.options).load(), 1)


if __name__ == "__main__":
    unittest.main()
