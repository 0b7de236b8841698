"""House rules that can be read from the source: who may import whom, no pickle, no print, self-contained kernels."""

from __future__ import annotations

import ast
import builtins
import tomllib
from pathlib import Path

import pytest

import longtail

SOURCE = Path(longtail.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in MODULES}

# Data flows one way; what is not listed may not be imported. Everyone may import errors, the command line anything.
MAY_IMPORT = {
    "serve": {"metrics", "models", "store", "training", "folder", "matrix", "__init__"},
    "tuning": {"methods", "data", "metrics", "matrix", "hybrid"},
    "report": {"metrics"},
    "methods": {
        *("calibration", "check", "matrix", "hybrid", "memory", "parallel", "runs", "models", "metrics", "store"),
        *("data", "topk", "compiled", "training", "growth", "words"),
    },
    "runs": {"folder", "file_lock", "sealed", "content", "hybrid", "__init__"},
    "calibration": {"models", "metrics", "matrix", "topk"},
    "store": {"models", "data", "folder", "content", "matrix", "check", "training", "growth"},
    "data": {"check", "matrix", "hybrid", "folder", "content", "compiled"},
    "models": {"topk", "parallel", "compiled", "matrix", "hybrid", "memory"},
    "metrics": {"topk", "check", "matrix", "compiled"},
    "topk": set(),
    "training": set(),
    "growth": {"hybrid"},
    "parallel": set(),
    "check": {"matrix", "hybrid"},
    "matrix": set(),
    "hybrid": {"matrix"},
    "memory": set(),
    "folder": {"sealed"},
    "sealed": set(),
    "content": {"matrix"},
    "compiled": {"file_lock"},
    "file_lock": set(),
    "errors": set(),
    "words": set(),
}
FREE = {"cli", "__init__", "__main__"}
DECORATORS = {"kernel", "reordering_kernel", "borrowing_kernel"}
EVERYWHERE = {"larger", "smaller", "as_element", "as_float"}  # intrinsics of compiled.py
EVERYWHERE |= {"fetch", "sparse_dot"}  # and of row_intrinsics.py
EVERYWHERE |= {
    "slack_of_lanes",
    "scores_of_lanes",
    "dense_scores",
    "count_trailing_zeros",
    "rank_key",
    "score_of",
}  # lane_intrinsics.py

UNSAFE = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle", "torch"}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("longtail", *(part for part in parts if part != "__init__")))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, str | None, str]]:
    """(module, name or None, name it is bound to) of every import, wherever it stands."""
    found: list[tuple[str, str | None, str]] = []
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            found += [(alias.name, None, alias.asname or alias.name.partition(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which room is meant"
            found += [(str(node.module), alias.name, alias.asname or alias.name) for alias in node.names]
    return found


def rooms_imported(path: Path) -> set[str]:
    rooms = set()
    for module, name, _ in imports(path):
        head, _, rest = module.partition(".")
        if head == "longtail":
            rooms.add((rest or name or "__init__").partition(".")[0])
    return rooms


def calls(path: Path, name: str) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def marked(path: Path, *marks: str) -> dict[str, ast.FunctionDef]:
    """The functions of a module with one of these decorators."""
    return {
        node.name: node
        for node in TREES[path].body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(mark, ast.Name) and mark.id in marks for mark in node.decorator_list)
    }


def kernels(path: Path) -> dict[str, ast.FunctionDef]:
    return marked(path, *DECORATORS)


KERNELS = {module_name(path): set(kernels(path)) for path in MODULES}
WITH_KERNELS = [path for path in MODULES if kernels(path)]


def names_used(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def taken_from_longtail(path: Path) -> set[str]:
    """Full names that a test uses: `from longtail.x import name`, or `x.name` where x is a module of longtail."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "longtail":
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    attributes = {
        f"{bound[node.value.id]}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound
    }
    return set(bound.values()) | attributes


def reached(bodies: dict[str, ast.FunctionDef], names: set[str]) -> set[str]:
    """These kernels of a file and all that they call, directly or through others."""
    seen: set[str] = set()
    waiting = sorted(names)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += sorted(names_used(bodies[name]) & set(bodies))
    return seen


# Kernels that tests compare with a slow twin through the Python function or class that calls them: full name -> full
# name of that function or class, which tests must use. A kernel that only kernels of its file call needs no entry.
PD_SPARSE = "longtail.methods.pd_sparse."
MEMOIR = "longtail.methods.memoir."
COMPARED_THROUGH = {
    PD_SPARSE + "batch_kernels.score_rows": PD_SPARSE + "frank_wolfe.FrankWolfe",
    PD_SPARSE + "batch_kernels.transpose": PD_SPARSE + "batch.Columns",
    PD_SPARSE + "frank_wolfe_kernels.solve_rows": PD_SPARSE + "frank_wolfe.FrankWolfe",
    "longtail.methods.one_vs_all.newton_span_kernels.best_in_span": "longtail.methods.one_vs_all.newton.move_in_span",
    "longtail.metrics.hits_kernel.mark_hits": "longtail.metrics.hits.find_hits",
    "longtail.models.compact_kernels.rows_above": "longtail.models.CompactModel",
    "longtail.models.compact_kernels.score_pairs": "longtail.models.CompactModel",
    "longtail.models.compact_kernels.score_rows": "longtail.models.CompactModel",
    "longtail.models.compact_kernels.top_rows": "longtail.models.CompactModel",
    "longtail.models.compact_kernels.weights_of": "longtail.models.CompactModel",
    "longtail.models.index_kernels.fill_columns": "longtail.models.index.InvertedIndex",
    "longtail.models.index_kernels.find_peaks": "longtail.models.index.InvertedIndex",
    "longtail.methods.one_vs_all.dual_kernels.find_more_rows": "longtail.methods.one_vs_all.best_labels.BestLabels",
    "longtail.methods.one_vs_all.dual_kernels.hold_out": "longtail.methods.one_vs_all.best_labels.BestLabels",
    "longtail.methods.one_vs_all.settle_kernels.release": "longtail.methods.one_vs_all.best_labels.BestLabels",
    "longtail.methods.one_vs_all.first_rows_kernels.likely_rows": "longtail.methods.one_vs_all.first_rows.first_rows",
    "longtail.methods.mach.softmax_kernels.train_hybrid": "longtail.methods.mach.descent.RepetitionGroup",
    "longtail.methods.one_vs_all.starts.msi_kernels.mean_separating": "longtail.methods.one_vs_all.starts",
    "longtail.data.xmc_kernel.line_start": "longtail.data.xmc.read_xmc",
    "longtail.data.xmc_kernel.merge": "longtail.data.xmc.read_xmc",
    "longtail.data.xmc_kernel.parse": "longtail.data.xmc.read_xmc",
    MEMOIR + "weights_kernels.step_rows": MEMOIR + "weights.ClassVectors",
    MEMOIR + "weights_kernels.truncate_classes": MEMOIR + "weights.ClassVectors",
    MEMOIR + "reading_kernels.fill_csr": MEMOIR + "weights.ClassVectors",
    MEMOIR + "weights_kernels.score_pairs": MEMOIR + "weights.ClassVectors",
    MEMOIR + "oracles.candidates_kernels.add_recent": MEMOIR + "oracles.candidates.RecentRivals",
    MEMOIR + "weights_kernels.best_of": MEMOIR + "oracles.ORACLES",
    MEMOIR + "weights_kernels.add_rows": MEMOIR + "weights.ClassVectors",
    MEMOIR + "weights_kernels.load_rows": MEMOIR + "weights.ClassVectors",
    MEMOIR + "weights_kernels.add_vectors": MEMOIR + "weights.ClassVectors",
    MEMOIR + "reading_kernels.lost_squares": MEMOIR + "weights.ClassVectors",
    MEMOIR + "oracles.exact_kernels.best_of_all": MEMOIR + "oracles.ORACLES",
    MEMOIR + "oracles.key_tables_kernels.nearest_in_tables": MEMOIR + "oracles.ORACLES",
    MEMOIR + "oracles.key_tables_kernels.put_classes": MEMOIR + "oracles.ORACLES",
    MEMOIR + "oracles.exact_kernels.best_in_group": MEMOIR + "oracles.ORACLES",
    MEMOIR + "oracles.candidates_kernels.candidates_of_features": MEMOIR + "oracles.ORACLES",
    MEMOIR + "oracles.simple_lsh_kernels.encode": MEMOIR + "oracles.ORACLES",
    MEMOIR + "oracles.simple_lsh_kernels.move_projections": MEMOIR + "oracles.ORACLES",
    MEMOIR + "oracles.simple_lsh_kernels.project_classes": MEMOIR + "oracles.ORACLES",
}


@pytest.mark.parametrize("path", [path for path in MODULES if room(path) not in FREE], ids=module_name)
def test_no_room_imports_what_it_may_not(path):
    assert room(path) in MAY_IMPORT, f"{room(path)} is a new room: say in MAY_IMPORT what it may import"
    strangers = rooms_imported(path) - MAY_IMPORT[room(path)] - {room(path), "errors"}
    assert not strangers, f"{module_name(path)} may not import {sorted(strangers)}"


def test_every_room_of_the_map_is_there():
    assert set(MAY_IMPORT) == {room(path) for path in MODULES} - FREE


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_module_can_run_strange_code(path):
    assert not {module.partition(".")[0] for module, _, _ in imports(path)} & UNSAFE
    assert not calls(path, "eval")
    assert not calls(path, "exec")
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


@pytest.mark.parametrize("path", [path for path in MODULES if room(path) != "cli"], ids=module_name)
def test_only_the_command_line_and_verbose_print(path):
    assert not calls(path, "print") or module_name(path) == "longtail.methods.verbosity"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_error_is_swallowed_unseen(path):
    bare = [node.lineno for node in ast.walk(TREES[path]) if isinstance(node, ast.ExceptHandler) and node.type is None]
    assert not bare


@pytest.mark.parametrize("path", WITH_KERNELS, ids=module_name)
def test_a_kernel_uses_nothing_of_another_file(path):
    """Numba's disk cache does not see edits in other files: code and constants of a kernel stand beside it.

    The intrinsics of compiled.py are excepted, because what they mean does not change.
    """
    compiled = set(marked(path, *DECORATORS, "intrinsic"))
    foreign = {bound for module, _, bound in imports(path) if module.partition(".")[0] == "longtail"}
    foreign -= DECORATORS | EVERYWHERE
    for module, name, _ in imports(path):
        assert name not in KERNELS.get(module, set()), f"{name} is a kernel of {module}"
    for name, function in kernels(path).items():
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} - DECORATORS
        assert not used & foreign, f"{name} uses {sorted(used & foreign)} of another file"
        called = {
            node.func.id
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not hasattr(builtins, node.func.id)
        }
        strange = called - compiled - EVERYWHERE
        assert not strange, f"{name} calls {sorted(strange)}, which is no kernel of this file"


def test_every_kernel_has_a_twin():
    """Tests compare every kernel with slow, obvious code: by its name, through a kernel that calls it, or as listed."""
    tests = [path for path in Path(__file__).parent.rglob("*.py") if path != Path(__file__)]
    taken = set().union(*(taken_from_longtail(path) for path in tests))
    unused = {wrapper for wrapper in COMPARED_THROUGH.values() if wrapper not in taken}
    assert not unused, f"COMPARED_THROUGH names what no test uses: {sorted(unused)}"
    alone: set[str] = set()
    needless = set(COMPARED_THROUGH)
    for path in WITH_KERNELS:
        module, bodies = module_name(path), kernels(path)
        named = {name for name in bodies if f"{module}.{name}" in taken}
        listed = {name for name in bodies if f"{module}.{name}" in COMPARED_THROUGH}
        needless -= {f"{module}.{name}" for name in listed - reached(bodies, named)}
        alone |= {f"{module}.{name}" for name in set(bodies) - reached(bodies, named | listed)}
    assert not needless, f"COMPARED_THROUGH names what is no kernel or has a test of its own: {sorted(needless)}"
    assert not alone, f"no test compares these kernels with a twin: {sorted(alone)}"


def test_only_modules_with_kernels_are_spared_by_mypy():
    """mypy cannot match `*_kernels`, so pyproject.toml lists the modules."""
    settings = tomllib.loads((SOURCE.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    spared = [module for override in settings["overrides"] for module in override["module"]]
    assert sorted(spared) == sorted(module_name(path) for path in WITH_KERNELS)


def test_there_are_kernels_to_look_at():
    assert {"top_rows", "rows_above"} <= KERNELS["longtail.models.index_kernels"]
    assert len(WITH_KERNELS) >= 3


def test_all_public_names_are_there_and_no_others():
    assert len(set(longtail.__all__)) == len(longtail.__all__)
    for name in longtail.__all__:
        assert getattr(longtail, name) is not None
    assert set(longtail.__all__) <= set(dir(longtail))
    with pytest.raises(AttributeError, match="module 'longtail' has no attribute 'nothing'"):
        _ = longtail.nothing


def test_type_checkers_see_the_same_names():
    """The imports under TYPE_CHECKING are for tools that cannot follow __getattr__."""
    seen = {bound for module, _, bound in imports(SOURCE / "__init__.py") if module.startswith("longtail")}
    assert seen | {"errors"} == set(longtail.__all__)  # a plain module needs no help


def test_no_two_classes_share_a_name():
    homes: dict[str, list[str]] = {}
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module_name(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
