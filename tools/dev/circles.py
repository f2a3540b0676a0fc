# SPDX-License-Identifier: BSD-3-Clause
"""Find circles in who needs whom, among units, inside units and among rooms.

A unit is all files of one folder with one stem: x.c, x.h, x.cu, x.cuh, x.inc, x.py. A header may have several source
files. x_more.c belongs to the unit of x.h if it includes x.h, has neither its own header nor main(), and x.c exists. Of
several such headers, the longest name wins. A room is a folder; a file with main() is a room of its own, since a
program stands above what it is made of.

There is an arrow from A to B if

    includes  a file of A includes a file of B, or imports it if both are Python modules
    uses      A uses a function or an object with external linkage that B defines: by a call, or by its address, for
              instance in a table of functions

and a circle is a set of units, or of rooms, in which each reaches all others along arrows of either kind. Inside a
unit, all files include its header, but uses between its files must not form a circle either. By
tools/dev/check-includes.

A small lexer for C and C++ reads the sources, not a compiler. All branches of #if count. It does not expand macros: the
file that defines a macro uses everything in its definition. Definitions are outside of all braces. Python's own parser
reads Python: all imports count, even inside functions and for type checkers only.
"""
import ast
import bisect
import collections
import pathlib
import re

FOLDERS = ["include", "lib", "formats", "tools", "tests", "fuzz", "bench", "examples", "python", "preload",
           "plugins"]
SUFFIXES = (".c", ".h", ".inc", ".cu", ".cuh", ".cc", ".py")
HEADERS = (".h", ".cuh")
SEARCH = ["include", "lib", "tools", "."]  # the compiler's search path, after the file's own folder

# The folders that are linked together. A name that several programs define is resolved only in one's own program.
LINKED = {
    "include": ["lib"],
    "lib": ["lib"],
    "formats": ["formats"],
    "tools": ["tools", "lib"],
    "bench": ["bench", "lib"],
    "examples": ["examples", "lib"],
    "fuzz": ["fuzz", "tools", "formats", "lib"],
    "tests": ["tests", "tools", "formats", "lib"],
    "python": ["python"],
    "preload": ["preload", "lib"],
    "plugins": ["plugins", "lib"],
}

INCLUDE = re.compile(r'[ \t]*#\s*include\s*(?:"([^"]+)"|<(pici/[^>]+)>)')
TOKEN = re.compile(
    r"""(?P<skip>//(?:\\\n|[^\n])*|/\*.*?\*/|\s+)
      | (?P<text>R"(\w*)\(.*?\)\3"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<other>\d(?:[\w.]|'\d)*|->|::|\#\#|.)""",
    re.S | re.X,
)
DIRECTIVE = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*""",
    re.S | re.M,
)
# Words after which a name is used, not declared.
USING = {"return", "case", "else", "goto", "do", "sizeof", "throw", "delete", "new", "and", "or", "not"}
TYPES = {"struct", "union", "enum", "class"}


class Token(collections.namedtuple("Token", "text line column name")):
    """One token; name: it is an identifier or a keyword."""


class Source:
    """What one file includes, defines and uses."""

    def __init__(self, root, path):
        self.path = path
        self.includes = []  # (line, path)
        self.unknown = []  # (line, name): files that there are none of
        self.defined = {}  # name: line, with external linkage
        self.declared = set()  # functions
        self.alias = {}  # name: what a macro of this name stands for, if that is a name
        self.own = set()  # names with internal linkage
        self.used = []  # (name, line)
        text = (root / path).read_text(errors="replace")
        if path.endswith(".py"):
            self.imports(root, text)
        else:
            self.read(self.tokens(root, text))

    def imports(self, root, text):
        """Note the modules of ours that a Python file imports: of its package, of python/, or beside a program."""
        folder = (root / self.path).parent
        outer = [root / "python"] if (folder / "__init__.py").is_file() else [folder, root / "python"]
        for node in ast.walk(ast.parse(text, self.path)):
            if isinstance(node, ast.Import):
                bases, wanted = outer, [alias.name.split(".") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                bases = [folder.joinpath(*[".."] * (node.level - 1)).resolve()] if node.level else outer
                module = node.module.split(".") if node.module else []
                wanted = [[*module, alias.name] for alias in node.names]  # a module, or a name in one
            else:
                continue
            for names in wanted:
                stems = [base.joinpath(*part) for part in (names, names[:-1]) for base in bases]
                files = [stem.parent / (stem.name + end) for stem in stems for end in (".py", ".c", "/__init__.py")]
                target = next((file for file in files if file.is_file()), None)
                if target:
                    self.includes.append((node.lineno, target.relative_to(root).as_posix()))

    def include(self, root, line, name):
        target = resolve(root, self.path, name)
        if target:
            self.includes.append((line, target))
        else:
            self.unknown.append((line, name))

    def tokens(self, root, text):
        """The tokens outside of directives. Notes includes, and the names that macros use, at once."""
        starts = [0] + [m.end() for m in re.finditer("\n", text)]

        def tokens_of(begin, end):
            for m in TOKEN.finditer(text, begin, end):
                if m.lastgroup in ("skip", None):
                    continue
                line = bisect.bisect_right(starts, m.start())
                shown = '""' if m.lastgroup == "text" else m[0]
                yield Token(shown, line, m.start() - starts[line - 1], m.lastgroup == "name")

        found = []
        position = 0
        for m in DIRECTIVE.finditer(text):
            if not m[0].lstrip().startswith("#"):
                continue  # a comment or a string, matched lest its lines be taken for directives
            found += tokens_of(position, m.start())
            position = m.end()
            include = INCLUDE.match(m[0])
            if include:
                self.include(root, bisect.bisect_right(starts, m.start()), include[1] or include[2])
            macro = re.match(r"\s*#\s*define\s+\w+(\([^)]*\))?", m[0])
            if macro:
                parameters = set(re.findall(r"\w+", macro[1] or ""))
                body = [t for t in tokens_of(m.start() + macro.end(), m.end())]
                if len(body) == 1 and body[0].name:
                    self.alias[re.search(r"define\s+(\w+)", m[0])[1]] = body[0].text
                    if self.path.startswith("include/"):
                        continue  # an old name, which is used where a program uses it
                self.use([t for t in body if t.text not in parameters])
        found += tokens_of(position, len(text))
        return found

    def use(self, tokens):
        """Note the names that a function or an initialiser uses, but not those that it declares."""
        declared = set()
        uses = []
        for i, t in enumerate(tokens):
            if not t.name:
                continue
            before = tokens[i - 1] if i else None
            after = tokens[i + 1].text if i + 1 < len(tokens) else ""
            if before is not None and before.text in (".", "->", "goto", "struct", "union", "enum"):
                continue
            if after in ("=", ";", ",", ")", "[", ":") and self.declares(tokens[max(i - 2, 0) : i]):
                declared.add(t.text)
            else:
                uses.append((t.text, t.line))
        self.used += [(name, line) for name, line in uses if name not in declared]

    @staticmethod
    def declares(before):
        """Whether a name after these two tokens is a local variable or a parameter: a type stands before it."""
        if not before or before[-1].text != "&":
            return bool(before) and (before[-1].text == "*" or (before[-1].name and before[-1].text not in USING))
        return before[0].text == ">" or (before[0].name and before[0].text not in USING)  # a reference of C++

    def define(self, name, line, internal):
        if internal:
            self.own.add(name)
        else:
            self.defined.setdefault(name, line)

    def read(self, tokens):
        """Split a file into what stands outside of all braces."""
        head = []  # tokens of the present declaration, braces left out
        depth = 0  # of parentheses
        hidden = []  # for each open namespace or extern "C": whether it hides its names
        i = 0
        while i < len(tokens):
            t = tokens[i]
            depth += (t.text == "(") - (t.text == ")")
            if t.name and t.column == 0:
                depth = 0
                if head and head[-1].text == ")" and self.call(head) == 0:
                    self.use(head[1:])  # a macro that stands for a function, without a semicolon
                    head = []
            if t.text == "{" and depth == 0:
                words = {h.text for h in head if h.name}
                if (words & {"namespace"} and not words & {"using"}) or [h.text for h in head] == ["extern", '""']:
                    hidden.append([h.text for h in head] == ["namespace"])
                    head = []
                    i += 1
                    continue
                end = self.closing(tokens, i)
                body = tokens[i + 1 : end]
                i = end + 1
                if self.initialises(head):
                    head = head + [t._replace(text="{")] + body + [tokens[end - 1]._replace(text="}", name=False)]
                elif words & TYPES and "(" not in [h.text for h in head]:
                    head.append(t._replace(text="{}"))  # members; the declared names follow them
                else:
                    self.function(head, body, any(hidden))
                    head = []
            elif t.text == "}" and depth == 0:
                if hidden:
                    hidden.pop()
                head = []
                i += 1
            elif t.text == ";" and depth == 0:
                self.declaration(head, any(hidden))
                head = []
                i += 1
            else:
                head.append(t)
                i += 1

    @staticmethod
    def closing(tokens, i):
        """The brace that closes the one at i. One in the first column closes all, even if #if spoiled the count."""
        depth = 0
        for j in range(i, len(tokens)):
            text = tokens[j].text
            if text == "{":
                depth += 1
            elif text == "}":
                depth -= 1
                if depth == 0 or tokens[j].column == 0:
                    return j
        return len(tokens)

    @staticmethod
    def initialises(head):
        depth = 0
        for t in head:
            depth += (t.text == "(") - (t.text == ")")
            if t.text == "=" and depth == 0:
                return True
        return False

    @staticmethod
    def call(head):
        """The index of the name of what head declares as a function: the first one before a parenthesis, but for
        attributes. None without one."""
        i = 0
        while i < len(head) - 1:
            if head[i].name and head[i + 1].text == "(":
                if not re.fullmatch(
                    r"__\w+__|__attribute|_Alignas|alignas|_Atomic|decltype|__declspec", head[i].text
                ):
                    return i
                depth = 0
                i += 1
                while i < len(head):
                    depth += (head[i].text == "(") - (head[i].text == ")")
                    if depth == 0:
                        break
                    i += 1
            i += 1
        return None

    def function(self, head, body, hidden):
        at = self.call(head)
        if at is None or at == 0 or "operator" in [h.text for h in head]:
            self.use(head[1:] + body)  # the likes of Test(suite, name) { }
            return
        words = {h.text for h in head[:at]}
        if head[at - 1].text != "::":
            self.define(head[at].text, head[at].line, hidden or bool(words & {"static", "template", "constexpr"}))
        self.use(head[at + 1 :] + body)

    def declaration(self, head, hidden):
        words = [h.text for h in head]
        if not head or words[0] in ("typedef", "using", "static_assert", "_Static_assert", "friend"):
            return
        if not self.initialises(head):
            at = self.call(head)
            if at == 0:
                self.use(head[1:])  # the likes of TestSuite(name, .init = start);
            elif at:
                self.declared.add(words[at])
            elif "(" not in words and len(words) > 1:
                self.objects(head, hidden)
            return
        self.objects(head, hidden)

    def objects(self, head, hidden):
        """A definition of objects: int a, *b[3] = {...}."""
        words = {h.text for h in head}
        if "extern" in words and not self.initialises(head):
            return
        internal = hidden or bool({"static", "constexpr", "_Thread_local"} & words)
        depth, value, rest = 0, False, []
        for i, t in enumerate(head):
            if t.text in ("(", "[", "{"):
                depth += 1
            elif t.text in (")", "]", "}"):
                depth -= 1
            elif depth == 0 and t.text == "=":
                value = True
            elif depth == 0 and t.text == ",":
                value = False
            after = head[i + 1].text if i + 1 < len(head) else ";"
            if (
                not value
                and t.name
                and depth == 0
                and i
                and after in ("=", ",", ";", "[")
                and head[i - 1].text not in TYPES
            ):
                self.define(t.text, t.line, internal)
            elif value or depth:
                rest.append(t)
        self.use(rest)


def resolve(root, includer, name):
    """The path, from root, of what includer means by name; None if it is none of ours."""
    for base in [pathlib.PurePath(includer).parent, *map(pathlib.PurePath, SEARCH)]:
        if (root / base / name).is_file():
            return (root / base / name).resolve().relative_to(root).as_posix()
    return None


def files_of(root):
    return sorted(
        f.relative_to(root).as_posix() for d in FOLDERS for f in (root / d).rglob("*") if f.suffix in SUFFIXES
    )


def stem_of(path):
    return path[: path.rindex(".")]


def units_of(sources):
    """The unit of each file."""
    headers = {stem_of(path) for path in sources if path.endswith(HEADERS)}
    bodies = {stem_of(path) for path in sources if not path.endswith(HEADERS)}
    units = {}
    for path, source in sources.items():
        stem = unit = stem_of(path)
        included = {stem_of(target) for _, target in source.includes}
        while stem not in headers and "main" not in source.defined and "_" in unit[unit.rindex("/") :]:
            unit = unit[: unit.rindex("_")]
            if unit in headers & bodies & included:
                stem = unit
        units[path] = stem
    return units


class Arrows:
    """Who needs whom, with the first reason for each."""

    def __init__(self):
        self.to = collections.defaultdict(dict)

    def add(self, a, b, reason):
        if a != b:
            self.to[a].setdefault(b, reason)

    def circles(self):
        """The sets, of two or more, whose members all reach each other (Tarjan), each with its arrows."""
        index, low, on, stack, found = {}, {}, set(), [], []
        for start in sorted(self.to):
            if start in index:
                continue
            index[start] = low[start] = len(index)
            stack.append(start)
            on.add(start)
            work = [(start, iter(sorted(self.to[start])))]
            while work:
                node, rest = work[-1]
                step = next(rest, None)
                if step is None:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == index[node]:
                        members = set()
                        while node not in members:
                            members.add(stack.pop())
                        on -= members
                        if len(members) > 1:
                            found.append(members)
                elif step not in index:
                    index[step] = low[step] = len(index)
                    stack.append(step)
                    on.add(step)
                    work.append((step, iter(sorted(self.to.get(step, ())))))
                elif step in on:
                    low[node] = min(low[node], index[step])
        return sorted(sorted(members) for members in found)


class Graph:
    """All arrows of a tree."""

    def __init__(self, root):
        self.sources = {path: Source(root, path) for path in files_of(root)}
        self.units = units_of(self.sources)
        self.between, self.inside, self.rooms = Arrows(), Arrows(), Arrows()
        self.shared = set()  # (file, name): what other files use of a file
        self.mains = {p for p, s in self.sources.items() if "main" in s.defined}
        self.add_includes()
        self.add_calls()

    def room_of(self, path):
        return path if path in self.mains else path.rpartition("/")[0]

    def add(self, path, line, target, what):
        reason = f"{path}:{line} {what}"
        self.between.add(self.units[path], self.units[target], reason)
        self.rooms.add(self.room_of(path), self.room_of(target), reason)
        return reason

    def add_includes(self):
        for path, source in self.sources.items():
            for line, target in source.includes:
                if target in self.sources:
                    self.add(path, line, target, f"{'imports' if path.endswith('.py') else 'includes'} {target}")

    def private(self, path, seen):
        """The names with internal linkage of a file and of all that it includes."""
        if path in seen or path not in self.sources:
            return set()
        seen.add(path)
        source = self.sources[path]
        return source.own.union(*(self.private(target, seen) for _, target in source.includes))

    def add_calls(self):
        definers = collections.defaultdict(list)
        for path, source in self.sources.items():
            for _, template in source.includes:  # a macro may rename a template's definitions
                if template.endswith(".inc") and template in self.sources:
                    for name in set(self.sources[template].defined) & set(source.alias):
                        definers[source.alias[name]].append(path)
            if path.endswith(HEADERS):
                continue  # who uses what a header defines includes it
            for name, line in source.defined.items():
                if name != "main":
                    definers[name].append(path)
        for path, source in self.sources.items():
            private = self.private(path, set())
            for name, line in source.used:
                if name in definers and name not in private:
                    target = self.definer(path, definers[name])
                    if target and target != path:
                        self.shared.add((target, name))
                        reason = self.add(path, line, target, f"uses {name} of {target}")
                        if self.units[path] == self.units[target]:
                            self.inside.add(stem_of(path), stem_of(target), reason)

    def definer(self, path, candidates):
        """Which of the definitions of a name a file means: its own, its folder's, the first one linked with it."""

        def distance(target):
            if stem_of(target) == stem_of(path):
                return -2
            if target.rpartition("/")[0] == path.rpartition("/")[0]:
                return -1
            linked = LINKED[path.split("/")[0]]
            return linked.index(target.split("/")[0]) if target.split("/")[0] in linked else len(FOLDERS)

        best = min(candidates, key=distance)
        return best if distance(best) < len(FOLDERS) else None

    def unshared(self):
        """(file, line, name, header): functions that a header declares and nobody outside of their file uses. Without
        functions of public headers, of tests and of fuzzers, whose headers may be foreign.
        """
        headers = {}
        for path, source in self.sources.items():
            if path.endswith(HEADERS) and not path.startswith(("include/", "tests/", "fuzz/")):
                headers.update((name, path) for name in source.declared)
        for path, source in self.sources.items():
            for name, line in source.defined.items():
                if name in headers and (path, name) not in self.shared and not path.endswith(HEADERS):
                    yield path, line, name, headers[name]

    def circles(self):
        """A paragraph for each circle: its members, and an example of each arrow between them."""
        texts = []
        for what, arrows in [("of units", self.between), ("inside a unit", self.inside), ("of rooms", self.rooms)]:
            for members in arrows.circles():
                lines = [f"circle {what}: {', '.join(members)}"]
                for a in members:
                    lines += [f"    {a} -> {b}: {arrows.to[a][b]}" for b in members if b in arrows.to[a]]
                texts.append("\n".join(lines))
        return texts
