"""Move, merge and rename modules by a map: python tools/moves.py tools/moves.map [--check], with libcst installed.

Temporary: it goes away with the moves. Run in the root of a clean checkout; --check only reports. Rewrites source,
tests, documentation and settings: import statements by syntax tree, dotted names and paths in strings and text as text.
Names that collide in a merged module are reported, and nothing is written until the map renames one of them. Run
`ruff check --select I,F401,F811 --fix . && ruff format .` afterwards.

Lines of the map:
    old.module -> new.module        several olds with one new are merged in the order of their imports
    old.module -> -                 the module (a bare __init__) vanishes
    old.module:Name -> NewName      a top-level name is renamed before the move
    doc new.module: Text.           the docstring of a new or merged module
"""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import libcst as cst
from libcst.metadata import GlobalScope, MetadataWrapper, ParentNodeProvider, ScopeProvider

ROOTS = {"gpumon": "", "gpumon_tui": "tui/", "gpumon_web": "web/"}
DOCSTRING = re.compile(r'\A"""(?:.|\n)*?"""')
MARK = "NEW__"
REEXPORTED: set[str] = set()


def module_of(path: str) -> str | None:
    for package, base in ROOTS.items():
        if path.startswith(f"{base}{package}/") or path == f"{base}{package}.py":
            name = path.removeprefix(base).removesuffix(".py").replace("/", ".")
            return name.removesuffix(".__init__")
    return None


def path_of(module: str, packages: set[str]) -> str:
    base = ROOTS[module.split(".")[0]]
    stem = base + module.replace(".", "/")
    return f"{stem}/__init__.py" if module in packages else f"{stem}.py"


def read_map(file: Path):
    moves, renames, docs = {}, defaultdict(dict), {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        line = line.split("  #")[0].strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("doc "):
            name, _, text = line[4:].partition(": ")
            docs[name] = text
            continue
        old, arrow, new = (part.strip() for part in line.partition("->"))
        assert arrow, f"{file}:{number}: {line}"
        if ":" in old:
            module, _, name = old.partition(":")
            renames[module][name] = new
        else:
            assert old not in moves, f"twice: {old}"
            moves[old] = new
    return moves, renames, docs


def dotted(node) -> str:
    return node.value if isinstance(node, cst.Name) else f"{dotted(node.value)}.{node.attr.value}"


def undotted(name: str):
    head, *rest = name.split(".")
    node = cst.Name(head)
    for part in rest:
        node = cst.Attribute(node, cst.Name(part))
    return node


class Rewrite(cst.CSTTransformer):
    """Replaces nodes by identity."""

    def __init__(self, replace):
        self.replace = replace

    def on_leave(self, original, updated):
        if original in self.replace:
            new = self.replace[original]
            return new(updated) if callable(new) else new
        return super().on_leave(original, updated)


def import_only(statement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, cst.Import | cst.ImportFrom) for small in statement.body
    )


def one_file(job):
    path, _own, text = job
    TOOL.errors = []
    code = TOOL.rewrite(path, text).code
    return code, TOOL.errors


class Plain:
    def __init__(self, code):
        self.code = code


class Tool:
    def __init__(self, moves, renames, docs):
        self.moves, self.renames, self.docs = moves, renames, docs
        tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
        self.files = [f for f in tracked if f and Path(f).is_file() and not f.startswith("tools/")]
        self.modules = {module_of(f): f for f in self.files if f.endswith(".py") and module_of(f)}
        unknown = [old for old in moves if old not in self.modules]
        assert not unknown, f"no such modules: {unknown}"
        self.target = {m: moves.get(m, m) for m in self.modules}
        self.groups = defaultdict(list)
        for old, new in self.target.items():
            if new != "-":
                self.groups[new].append(old)
        news = set(self.groups)
        self.packages = {n for n in news if any(o.startswith(n + ".") for o in news)}
        self.made_packages = {".".join(n.split(".")[:i]) for n in news for i in range(1, n.count(".") + 1)}
        self.packages |= self.made_packages
        self.errors: list[str] = []

    # --- one file
    def rewrite(self, path: str, text: str):
        own = module_of(path) if path.endswith(".py") else None
        group = self.target.get(own) if own else None
        wrapper = MetadataWrapper(cst.parse_module(text))
        scopes = wrapper.resolve(ScopeProvider)
        parents = wrapper.resolve(ParentNodeProvider)
        module = wrapper.module
        replace = {}
        all_scopes = {s for s in scopes.values() if s is not None}

        def rename_refs(assignment, new):
            for access in assignment.references:
                node = access.node
                if isinstance(node, cst.Name):
                    replace[node] = cst.Name(new, lpar=node.lpar, rpar=node.rpar)
                else:
                    self.errors.append(f"{path}: odd reference to {assignment.name}")

        def attr_refs(assignment, module_name, local, inline):
            """References to a module object: `local.attr`, maybe merged into this very module."""
            for access in assignment.references:
                node = access.node
                while isinstance(node, cst.Attribute):
                    node = node.value
                parent = parents.get(node)
                if not (isinstance(parent, cst.Attribute) and parent.value is node):
                    if inline:
                        self.errors.append(f"{path}: {module_name} used as an object within its own merge")
                    elif local != node.value:
                        replace[node] = cst.Name(local, lpar=node.lpar, rpar=node.rpar)
                    continue
                attr = self.renames.get(module_name, {}).get(parent.attr.value, parent.attr.value)
                if inline:
                    replace[parent] = cst.Name(attr, lpar=parent.lpar, rpar=parent.rpar)
                else:
                    if attr != parent.attr.value:
                        replace[parent.attr] = cst.Name(attr)
                    if local != node.value:
                        replace[node] = cst.Name(local)

        # own definitions
        for name, new in self.renames.get(own or "", {}).items():
            done = False
            for scope in all_scopes:
                if not isinstance(scope, GlobalScope):
                    continue
                for assignment in scope[name]:
                    node = getattr(assignment, "node", None)
                    if isinstance(node, cst.FunctionDef | cst.ClassDef):
                        replace[node.name] = cst.Name(new)
                    elif isinstance(node, cst.Name):
                        replace[node] = cst.Name(new)
                    else:
                        self.errors.append(f"{path}: cannot rename {name}: {type(node)}")
                    rename_refs(assignment, new)
                    done = True
            if not done:
                self.errors.append(f"{path}: no {name} to rename")

        # imports
        for scope in all_scopes:
            for assignment in scope.assignments:
                node = getattr(assignment, "node", None)
                if (
                    not isinstance(node, cst.ImportFrom)
                    or node.module is None
                    or isinstance(node.names, cst.ImportStar)
                ):
                    continue
                source = dotted(node.module)
                for alias in node.names:
                    local = alias.asname.name.value if alias.asname else alias.name.value
                    if local != assignment.name:
                        continue
                    full = f"{source}.{alias.name.value}"
                    if full in self.modules:
                        new = self.target[full]
                        inline = group is not None and new == group and own != full
                        base = local if alias.asname else new.rpartition(".")[2]
                        attr_refs(assignment, full, base, inline)
                    elif source in self.modules:
                        name = alias.name.value
                        new = self.renames.get(source, {}).get(name, name)
                        inline = group is not None and self.target[source] == group and own != source
                        if inline:
                            if local != new:
                                rename_refs(assignment, new)
                        elif not alias.asname and new != name:
                            rename_refs(assignment, new)

        def new_from(node):
            if node.module is None or isinstance(node.names, cst.ImportStar):
                return None
            source = dotted(node.module)
            if source.split(".")[0] not in ROOTS:
                return None
            lines = []
            for alias in node.names:
                full = f"{source}.{alias.name.value}"
                asname = alias.asname.name.value if alias.asname else None
                if full in self.modules:
                    new = self.target[full]
                    if group is not None and new == group and own != full:
                        continue
                    package, _, base = new.rpartition(".")
                    said = asname if asname and asname != base else None
                    lines.append((package, base, said))
                elif source in self.modules:
                    if group is not None and self.target[source] == group and own != source:
                        continue
                    name = self.renames.get(source, {}).get(alias.name.value, alias.name.value)
                    said = asname if asname and asname != name else None
                    lines.append((self.target[source], name, said))
                else:
                    lines.append((source, alias.name.value, asname))
            return lines

        class Imports(cst.CSTTransformer):
            def leave_SimpleStatementLine(self, original, updated):
                if len(original.body) == 1 and isinstance(original.body[0], cst.ImportFrom):
                    lines = new_from(original.body[0])
                    if lines is None:
                        return updated
                    if not lines:
                        return cst.RemoveFromParent()
                    by = defaultdict(list)
                    for package, name, asname in lines:
                        by[package].append((name, asname))
                    out = []
                    for package, names in by.items():
                        aliases = [
                            cst.ImportAlias(cst.Name(n), asname=cst.AsName(cst.Name(a)) if a else None)
                            for n, a in names
                        ]
                        out.append(cst.SimpleStatementLine([cst.ImportFrom(undotted(MARK + package), aliases)]))
                    out[0] = out[0].with_changes(leading_lines=updated.leading_lines)
                    out[-1] = out[-1].with_changes(trailing_whitespace=updated.trailing_whitespace)
                    return cst.FlattenSentinel(out)
                return updated

            def leave_If(self, original, updated):
                if not updated.body.body:
                    return cst.RemoveFromParent()
                return updated

        module = module.visit(Rewrite(replace))
        return module.visit(Imports())

    def finish(self, text: str) -> str:
        """Dotted names and paths in strings, comments and plain text."""

        def sub_dotted(match):
            old = match[0]
            new = self.target[old]
            return old if new == "-" else new

        text = self.dotted_pattern.sub(sub_dotted, text) if self.dotted_pattern else text
        text = self.path_pattern.sub(lambda m: self.path_map[m[0]], text) if self.path_pattern else text
        return text.replace(MARK, "")

    def run(self, check: bool):
        moved = {o: n for o, n in self.target.items() if n not in (o, "-")}
        names = sorted(moved, key=len, reverse=True)
        # longest match first over *all* modules, so that gpumon.history.x which stays is not caught by gpumon.history
        every = sorted(self.modules, key=len, reverse=True)
        self.dotted_pattern = (
            re.compile(r"(?<![\w/.])(?:{})(?![\w])".format("|".join(map(re.escape, every)))) if names else None
        )
        self.path_map = {}
        for old, new in moved.items():
            self.path_map[self.modules[old]] = path_of(new, self.packages)
            if self.modules[old].endswith("/__init__.py"):
                directory = self.modules[old].removesuffix("/__init__.py")
                to = ROOTS[new.split(".")[0]] + new.replace(".", "/")
                self.path_map[directory] = to if new in self.packages else to + ".py"
        keys = sorted(self.path_map, key=len, reverse=True)
        self.path_pattern = (
            re.compile(r"(?<![\w/.])(?:{})(?![\w])".format("|".join(map(re.escape, keys)))) if keys else None
        )

        touched = set(moved) | set(self.renames)
        out: dict[str, str | None] = {}
        trees = {}
        jobs = []
        for path in self.files:
            if path.endswith(".py"):
                text = Path(path).read_text()
                own = module_of(path)
                needs = (
                    own in touched
                    or (own and len(self.groups.get(self.target[own], [])) > 1)
                    or any(root in text for root in ROOTS)
                )
                if not needs:
                    continue
                if own and self.target[own] == "-":
                    out[path] = None
                    continue
                if not self.needs_tree(own, text):
                    code = self.finish(text)
                    if own and self.target[own] != own:
                        trees[own] = Plain(text)
                    elif code != text:
                        out[path] = code
                    continue
                jobs.append((path, own, text))
            elif re.search(r"\.(md|toml|sh|ya?ml|cfg|js|json|1)$|Makefile$|/run$", path) and not path.startswith(
                "tests/tui/golden"
            ):
                text = Path(path).read_text()
                code = self.finish(text)
                if code != text:
                    out[path] = code
        global TOOL
        TOOL = self
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for (path, own, text), (code, errors) in zip(jobs, pool.imap(one_file, jobs, chunksize=8), strict=False):
                self.errors += errors
                if own:
                    trees[own] = Plain(code)
                elif (finished := self.finish(code)) != text:
                    out[path] = finished
        print(len(jobs), "files were parsed")
        for new, olds in self.groups.items():
            path = path_of(new, self.packages)
            olds = [o for o in olds if o in trees] or []
            if not olds:
                continue
            code = trees[olds[0]].code if len(olds) == 1 else self.merge(new, olds, trees)
            code = self.finish(code)
            if new in self.docs:
                code = f'"""{self.docs[new]}"""' + DOCSTRING.sub("", code, count=1)
            for old in olds:
                if self.modules[old] != path:
                    out[self.modules[old]] = None
            out[path] = code
        for package in self.made_packages:
            path = path_of(package, self.packages)
            if (
                package not in self.groups
                and path not in out
                and not Path(path).exists()
                and any(n.startswith(package + ".") for n in moved.values())
            ):
                out[path] = f'"""{self.docs.get(package, package)}"""\n'
                if package not in self.docs:
                    self.errors.append(f"no doc for the new package {package}")
        print(f"{len(out)} files change, {len(moved)} modules move; {len(self.modules)} -> {len(self.groups)}")
        for error in self.errors:
            print("!!", error)
        if check or self.errors:
            return 1
        order = sorted(out, key=lambda p: out[p] is not None)
        for path in order:
            if out[path] is None:
                subprocess.run(["git", "rm", "-q", "--cached", path], check=True)
                Path(path).unlink()
        for path, code in out.items():
            if code is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_text(code)
        return 0

    def needs_tree(self, own, text) -> bool:
        """Whether dotted names replaced as text are not enough."""
        if own and (own in self.renames or len(self.groups.get(self.target[own], [])) > 1):
            return True
        for parent, name in self.module_imports(text):
            full = f"{parent}.{name}"
            if full in self.modules:
                if self.target[full] != full:
                    return True
            elif parent in self.renames and name in self.renames[parent]:
                return True
        return False

    IMPORT = re.compile(r"^[ \t]*from ((?:gpumon|gpumon_tui|gpumon_web)[\w.]*) import (\([^)]*\)|[^\n]*)", re.M)

    def module_imports(self, text):
        for parent, names in self.IMPORT.findall(text):
            for name in re.findall(r"\w+", re.sub(r"#.*|\bas \w+", "", names)):
                yield parent, name

    # --- merging
    def merge(self, new: str, olds: list[str], trees):
        inside = set(olds)
        needs = {}
        for old in olds:
            text = Path(self.modules[old]).read_text()
            tree = cst.parse_module(text)
            needs[old] = set()
            for statement in tree.body:
                if import_only(statement):
                    for small in statement.body:
                        if isinstance(small, cst.ImportFrom) and small.module is not None:
                            source = dotted(small.module)
                            if source in inside:
                                needs[old].add(source)
                            if not isinstance(small.names, cst.ImportStar):
                                needs[old] |= {f"{source}.{a.name.value}" for a in small.names} & inside
        order = []
        rest = list(olds)
        while rest:
            ready = next((o for o in rest if not (needs[o] - set(order) - {o})), None)
            if ready is None:
                self.errors.append(f"{new}: cycle among {rest}")
                ready = rest[0]
            order.append(ready)
            rest.remove(ready)
        future, imports, typing_only, bodies = False, [], [], []
        docstring = None
        defined: dict[str, str] = {}
        texts: dict[str, str] = {}
        imported: dict[str, tuple[str, str]] = {}
        for old in order:
            tree = cst.parse_module(trees[old].code)
            body = []
            statements = list(tree.body)
            for index, statement in enumerate(statements):
                if (
                    index == 0
                    and isinstance(statement, cst.SimpleStatementLine)
                    and isinstance(statement.body[0], cst.Expr)
                    and isinstance(statement.body[0].value, cst.SimpleString | cst.ConcatenatedString)
                ):
                    text = tree.code_for_node(statement).strip()
                    if old == olds[0]:
                        docstring = text
                    continue
                if import_only(statement):
                    code = tree.code_for_node(statement).strip("\n")
                    if "__future__" in code:
                        future = True
                        continue
                    imports.append(code)
                    continue
                if (
                    isinstance(statement, cst.If)
                    and tree.code_for_node(statement.test) == "TYPE_CHECKING"
                    and all(import_only(s) for s in statement.body.body)
                ):
                    typing_only += [tree.code_for_node(s).strip() for s in statement.body.body]
                    continue
                body.append(tree.code_for_node(statement))
                same = True
                for name in self.bound(statement):
                    if defined.get(name, old) != old and texts.get(name) == body[-1].strip():
                        continue
                    same = False
                    texts[name] = body[-1].strip()
                    if defined.get(name, old) != old:
                        self.errors.append(f"{new}: {name} in {defined[name]} and {old}")
                    defined[name] = old
                if same and list(self.bound(statement)):
                    body.pop()
            bodies.append("".join(body))
        for code in imports:
            tree = cst.parse_module(code + "\n")
            for statement in tree.body:
                for small in statement.body:
                    if isinstance(small.names, cst.ImportStar):
                        continue
                    for alias in small.names:
                        local = alias.asname.name.value if alias.asname else dotted(alias.name).split(".")[0]
                        source = (dotted(small.module) if isinstance(small, cst.ImportFrom) else "", dotted(alias.name))
                        if isinstance(small, cst.Import):
                            source = ("", local if not alias.asname else dotted(alias.name))
                        if (
                            imported.get(local, source) != source
                            and source[1] == imported[local][1]
                            and local in REEXPORTED
                        ):
                            continue
                        if imported.get(local, source) != source:
                            self.errors.append(f"{new}: {local} imported as {imported[local]} and {source}")
                        imported[local] = source
                        if local in defined:
                            self.errors.append(f"{new}: {local} imported from {source} and defined in {defined[local]}")
        typing_only = list(dict.fromkeys(typing_only))
        parts = [docstring or '""""""', ""]
        if future:
            parts += ["from __future__ import annotations", ""]
        parts += list(dict.fromkeys(imports))
        if typing_only:
            parts += ["", "if TYPE_CHECKING:"] + ["    " + line for t in typing_only for line in t.split("\n")]
        return "\n".join(parts) + "\n\n" + "\n\n".join(bodies)

    def bound(self, statement):
        if isinstance(statement, cst.FunctionDef | cst.ClassDef):
            yield statement.name.value
        elif isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, cst.Assign):
                    for target in small.targets:
                        if isinstance(target.target, cst.Name):
                            yield target.target.value
                        elif isinstance(target.target, cst.Tuple):
                            for element in target.target.elements:
                                if isinstance(element.value, cst.Name):
                                    yield element.value.value
                elif isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                    yield small.target.value


if __name__ == "__main__":
    moves, renames, docs = read_map(Path(sys.argv[1]))
    sys.exit(Tool(moves, renames, docs).run("--check" in sys.argv))
