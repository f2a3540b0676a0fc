# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the Python package as Markdown, from its sources: nothing is imported, so nothing must be built."""
import ast
import pathlib

import prose


def public(tree):
    """The names of __all__, or None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            if isinstance(node.value, (ast.List, ast.Tuple)):
                return [e.value for e in node.value.elts if isinstance(e, ast.Constant)]
    return None


def signature(node):
    """As it is written, in one line if that is not long. Of overloads, the definition is shown."""
    args = ast.unparse(node.args)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{node.name}({args}){returns}"
    if len(line) > 100:
        line = f"{node.name}(\n    " + args.replace(", ", ",\n    ") + f"\n){returns}"
    return line


def is_overload(node):
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)


def members(node, path):
    """The methods of a class, after the methods of its bases in the package."""
    found = {}
    tree = parse(path)
    own, others = definitions(tree), imported(tree, path.parent)
    for base in node.bases:
        name = base.id if isinstance(base, ast.Name) else None
        where = path if name in own else others.get(name)
        if where and where.is_file() and name in definitions(parse(where)):
            found.update(members(definitions(parse(where))[name], where))
    found.update({m.name: m for m in node.body if isinstance(m, ast.FunctionDef) and not is_overload(m)})
    return found


def described(node, path, level=2, prefix=""):
    text = ast.get_docstring(node)
    name = prefix + node.name
    out = [f"{'#' * level} {name} {{ #{name} }}", ""]
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(b) for b in node.bases)
        out += ["```py", f"class {node.name}({bases})" if bases else f"class {node.name}", "```", ""]
    else:
        out += ["```py", signature(node), "```", ""]
    if text:
        out += [prose.markdown(text)]
    if isinstance(node, ast.ClassDef):
        for member in members(node, path).values():
            if not member.name.startswith("_") and ast.get_docstring(member):
                out += described(member, path, level + 1, node.name + ".")
    return out


def definitions(tree):
    found = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not is_overload(node):
            found[node.name] = node
    return found


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree, package):
    """name: the file that a module of a package imports it from."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = package / (node.module.replace(".", "/") + ".py")
    return found


def page(path, package, names):
    """Markdown of one module: its docstring, and `names` that it has itself or imports from its own folder."""
    tree = parse(path)
    relative = path.relative_to(package.parent).with_suffix("")
    module = ".".join(p for p in relative.parts if p != "__init__")
    own, others = definitions(tree), imported(tree, path.parent)
    out = [f"# {module}", "", prose.markdown(ast.get_docstring(tree) or "")]
    for name in names:
        where = path if name in own else others.get(name)
        node = definitions(parse(where)).get(name) if where and where.is_file() else None
        if node is not None:
            out += described(node, where)
    return "\n".join(out)


def pages(package: pathlib.Path):
    """{name of the page: Markdown} for the public modules."""
    init = parse(package / "__init__.py")
    from_where, exported = imported(init, package), public(init) or []
    found = {"pici": page(package / "__init__.py", package, [])}
    for path in sorted([*package.glob("[a-z]*.py"), *package.glob("[a-z]*/__init__.py")]):
        tree = parse(path)
        names = public(tree)
        if names is None:
            names = [n for n in exported if from_where.get(n) == path]
            names += [n for n in definitions(tree) if path.stem in ("errors", "rl") and not n.startswith("_")]
        key = path.parent.name if path.stem == "__init__" else path.stem
        found[f"pici.{key}"] = page(path, package, list(dict.fromkeys(names)))
    # what the package exports from modules that have no page
    rest = [n for n in exported if from_where.get(n, package).stem.startswith("_")]
    found["pici"] = page(package / "__init__.py", package, rest)
    return found
