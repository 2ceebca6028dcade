"""Import cycles and sizes that a map of moves leads to: python tools/graph.py tools/moves.map [gpumon] [-v].

Temporary, like moves.py.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from moves import Tool, read_map

moves, renames, docs = read_map(Path(sys.argv[1]))
tool = Tool(moves, renames, docs)
lines, edges, lazy = defaultdict(int), defaultdict(lambda: defaultdict(list)), defaultdict(lambda: defaultdict(list))


def walk(node, top):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, top
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        else:
            yield from walk(child, top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


for module, path in tool.modules.items():
    new = tool.target[module]
    if new == "-":
        continue
    text = Path(path).read_text()
    lines[new] += len(text.splitlines())
    for node, top in walk(ast.parse(text), True):
        targets = []
        if isinstance(node, ast.ImportFrom) and node.module:
            for a in node.names:
                full = f"{node.module}.{a.name}"
                targets.append(full if full in tool.modules else node.module)
        elif isinstance(node, ast.Import):
            targets = [a.name for a in node.names]
        for t in targets:
            if t in tool.target and tool.target[t] not in (new, "-"):
                (edges if top else lazy)[new][tool.target[t]].append(f"{module}->{t}")


def sccs(graph):
    index, low, stack, on, out, n = {}, {}, [], set(), [], [0]
    sys.setrecursionlimit(5000)

    def go(v):
        index[v] = low[v] = n[0]
        n[0] += 1
        stack.append(v)
        on.add(v)
        for w in graph.get(v, ()):
            if w not in index:
                go(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            c = []
            while True:
                w = stack.pop()
                on.discard(w)
                c.append(w)
                if w == v:
                    break
            if len(c) > 1:
                out.append(c)

    for v in list(graph):
        if v not in index:
            go(v)
    return out


print("== module cycles (import time)")
for c in sccs({k: list(v) for k, v in edges.items()}):
    s = set(c)
    print(sorted(s))
    for a in c:
        for b, why in edges[a].items():
            if b in s:
                print("    ", a, "->", b, why[:3])


def pack(m, depth=2):
    return ".".join(m.split(".")[:depth])


root = sys.argv[2] if len(sys.argv) > 2 else "gpumon"
pe = defaultdict(lambda: defaultdict(list))
for g in (edges, lazy):
    for a, bs in g.items():
        if not a.startswith(root + ".") and a != root:
            continue
        for b, why in bs.items():
            if not b.startswith(root + "."):
                continue
            if pack(a) != pack(b):
                pe[pack(a)][pack(b)] += why
print("== package cycles (all imports)")
for c in sccs({k: list(v) for k, v in pe.items()}):
    s = set(c)
    print(sorted(s))
    for a in sorted(c):
        for b, why in pe[a].items():
            if b in s:
                print("    ", a, "->", b, len(why), why[:4])
print("== sizes")
for m in sorted(lines):
    if m.startswith(root) and "-v" in sys.argv:
        print(f"{lines[m]:5} {m}")
print(
    len(lines),
    "modules in all;",
    sum(1 for m in lines if m.startswith(root)),
    "below",
    root,
    "; under 60:",
    sum(1 for m in lines if m.startswith(root) and lines[m] < 60),
    "; over 500:",
    [m for m in lines if lines[m] > 500 and m.startswith(root)],
)
