# SPDX-License-Identifier: BSD-3-Clause
"""The declarations in pici._abi agree with the headers."""
import ctypes
import re
import unittest

from pici import _abi, _dtypes, errors
from vectors import TREE

WIDTHS = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "size_t": ctypes.c_size_t, "uint32_t": ctypes.c_uint32}
WIDTHS.update({"uint64_t": ctypes.c_uint64, "float": ctypes.c_float, "double": ctypes.c_double})
POINTERS = (ctypes.c_void_p, ctypes.c_char_p)
HEADERS = ("pici.h", "delta.h", "file.h", "delta_file.h", "delta_log.h", "topk.h", "coll.h", "socket.h")


def is_pointer(t):
    return t in POINTERS or hasattr(t, "contents")


def agrees(c, t):
    """Whether the ctypes type t is passed as the C type c is; c is without a parameter's name."""
    c = re.sub(r"\b(const|struct)\b", "", c).strip()
    if c == "void":
        return t is None
    if c.endswith("*") or c.endswith("_fn"):
        return is_pointer(t)
    if c.startswith("enum "):
        return t is ctypes.c_int
    return t is WIDTHS[c]


def parameter(c):
    """The type of a parameter; its name, if it has one, is removed."""
    words = c.replace("*", " * ").split()
    if words[-1] == "*" or len([w for w in words if w not in ("const", "struct", "enum")]) == 1:
        return " ".join(words)
    return " ".join(words[:-1])


class Abi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = "\n".join((TREE / "include" / "pici" / h).read_text() for h in HEADERS)
        cls.text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)

    def constants(self, name):
        body = re.search(rf"enum {name} {{(.*?)}};", self.text, re.S)[1]
        value, found = -1, {}
        for item in filter(None, (x.strip() for x in body.split(","))):
            key, _, number = item.partition("=")
            value = int(number) if number.strip() else value + 1
            found[key.strip()] = value
        return found

    def defined(self, name):
        return re.search(rf"#define {name} (\S+)", self.text)[1]

    def test_functions(self):
        prototypes = dict()
        for m in re.finditer(r"PICI_API\s+([^;(]*?)(\w+)\(([^;]*?)\);", self.text, re.S):
            prototypes[m[2]] = (m[1].strip(), [parameter(a) for a in m[3].split(",") if a.strip() != "void"])
        for name, (result, arguments) in {**_abi.FUNCTIONS, **_abi.COLL_FUNCTIONS}.items():
            with self.subTest(name):
                c_result, c_arguments = prototypes[name]
                self.assertTrue(agrees(c_result, result), (c_result, result))
                self.assertEqual(len(arguments), len(c_arguments), c_arguments)
                for c, t in zip(c_arguments, arguments):
                    self.assertTrue(agrees(c, t), (c, t))

    def test_structs(self):
        for name, struct in _abi.STRUCTS.items():
            with self.subTest(name):
                fields = []
                body = re.search(rf"struct {name} {{(.*?)}};", self.text, re.S)[1]
                for line in filter(None, (x.strip() for x in body.split(";"))):
                    kind, rest = re.fullmatch(r"((?:const |struct |enum )*\w+)\s+(.*)", line, re.S).groups()
                    for one in rest.split(","):
                        star, field, array = re.fullmatch(r"\s*(\**)(\w+)(?:\[(\w+)\])?", one).groups()
                        fields.append((field, kind + star, array))
                self.assertEqual([f[0] for f in fields], [f[0] for f in struct._fields_])
                for (field, c, array), (_, t) in zip(fields, struct._fields_):
                    if array:
                        self.assertEqual(t._length_, int(self.defined(array).rstrip("u")))
                        t = t._type_
                    self.assertTrue(agrees(c, t), (field, c, t))

    def test_initializers(self):
        """Members that are not given have the values of the C initializers."""
        constants = {**self.constants("pici_algorithm"), **self.constants("pici_format"), "NULL": None}
        constants.update(self.constants("pici_zeros"))
        for name, struct in (("pici_coll_opts", _abi.CollOpts), ("pici_tune", _abi.Tune)):
            body = re.search(rf"#define {name.upper()}_INIT[\s\\]*\{{(.*?)\}}", self.text, re.S)[1].replace("\\", "")
            values = [x.strip() for x in body.split(",")]
            self.assertEqual(values.pop(0), f"sizeof(struct {name})")
            made = struct()
            self.assertEqual(made.size, ctypes.sizeof(struct))
            expected = [constants[x] if x in constants else float(x) for x in values]
            self.assertEqual([getattr(made, field) for field, _ in struct._fields_[1:]], expected, name)

    def test_statuses(self):
        statuses = {value for key, value in self.constants("pici_status").items() if key != "PICI_OK"}
        self.assertEqual(set(errors.CLASSES), statuses)
        for status, cls in errors.CLASSES.items():
            error = errors.make(status, "why")
            self.assertIs(type(error), cls)
            self.assertEqual((error.status, str(error)), (status, "why"))

    def test_enums(self):
        self.assertEqual(
            {key[5:].lower(): value for key, value in self.constants("pici_dtype").items()},
            {d.name: d.code for d in _dtypes.ALL},
        )
        self.assertEqual({key[5:].lower(): value for key, value in self.constants("pici_format").items()}, _abi.FORMATS)
        self.assertEqual(self.constants("pici_zeros"), {"PICI_ZEROS_EXACT": 0, "PICI_ZEROS_BY_VALUE": 1})
        self.assertEqual(_abi.ZEROS, {"exact": 0, "value": 1})
        self.assertEqual({key[5:].lower(): value for key, value in self.constants("pici_op").items()}, _abi.OPS)
        kinds = {"PICI_ALL_GATHER": _abi.ALL_GATHER, "PICI_REDUCE_SCATTER": _abi.REDUCE_SCATTER}
        kinds |= {"PICI_ALL_REDUCE": _abi.ALL_REDUCE, "PICI_BROADCAST": _abi.BROADCAST}
        self.assertEqual(self.constants("pici_collective"), {**kinds, "PICI_ALL_GATHERV": _abi.ALL_GATHERV})
        algorithms = {key[10:].lower(): value for key, value in self.constants("pici_algorithm").items()}
        self.assertEqual({name.replace("-", "_"): value for name, value in _abi.ALGORITHMS.items()}, algorithms)
        selections = {key[12:].lower(): value for key, value in self.constants("pici_select").items()}
        self.assertEqual(selections, _abi.SELECT)

    def test_constants(self):
        self.assertEqual(self.defined("PICI_VERSION").strip('"').rsplit(".", 1)[0], _abi.VERSION)
        self.assertEqual(int(self.defined("PICI_CHUNK_MAX").rstrip("u")), _abi.CHUNK_MAX)
        self.assertEqual(int(self.defined("PICI_RANK_MAX").rstrip("u")), _abi.RANK_MAX)
        self.assertEqual(int(self.defined("PICI_KEY_MAX").rstrip("u")), _abi.KEY_MAX)
        self.assertEqual(self.defined("PICI_FILE"), "UINT64_MAX")

    def test_versions(self):
        project = (TREE / "python" / "pyproject.toml").read_text()
        self.assertIn(f'version = {self.defined("PICI_VERSION")}\n', project)
        soversion = re.search(r"^SOVERSION = (.*)$", (TREE / "Makefile").read_text(), re.M)[1]
        self.assertEqual(_abi.SONAME, f"libpici.so.{soversion}")

    def test_integers(self):
        self.assertEqual(_abi.u31(2**31 - 1, "x"), 2**31 - 1)
        self.assertEqual(_abi.u64(2**64 - 1, "x"), 2**64 - 1)
        for check, value in ((_abi.u31, -1), (_abi.u31, 2**31), (_abi.u64, -1), (_abi.u64, 2**64)):
            self.assertRaises(ValueError, check, value, "x")
        self.assertRaises(TypeError, _abi.u64, 1.0, "x")
