"""The house is built in layers: imports go down only, and heavy libraries stay where they belong."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import batchrun

PACKAGE = Path(batchrun.__file__).parent

LAYERS = (
    {"__main__"},
    {"cli", "integrations"},
    {"api"},
    {
        "runner",
        "submission",
        "job",
        "preparation",
        "publication",
        "progress",
        "preview",
        "forecast",
        "snapshot",
        "split",
        "verification",
        "diagnosis",
        "selection",
        "insight",
        "holding",
        "collection",
        "succession",
        "usage",
        "meter",
        "random_prompts",
        "subject",
        "calibration",
        "estimate",
        "prediction",
        "fit",
        "watch",
        "watchdog",
        "room",
        "defaults",
        "orphans",
    },
    {"corpus", "planning", "worker", "store", "telemetry"},
    {"engines", "prompts"},
    {
        "spec",
        "model",
        "records",
        "run_record",
        "run_options",
        "shard",
        "documents",
        "atomic_file",
        "workspace",
        "database",
        "storage",
        "scratch",
        "seal",
        "keys",
        "machine",
        "memory",
        "profile",
        "clock",
        "closing",
        "reporter",
        "signals",
        "window",
    },
    {"errors"},
    {""},  # the package itself: its version
)
"""From top to bottom; a unit is a module or folder of `batchrun/`. A new one takes its place here."""

NEIGHBOURLY = (3, 6)
"""Layers whose units may import each other: the wiring, and the modules at the bottom."""

LIBRARIES = {
    # library: where it may be imported at all, and whether only inside functions
    "duckdb": (("database", "store.checkpoints"), False),
    "click": (("cli",), False),
    "tqdm": (("cli",), False),
    "selectolax": (("corpus.html",), False),
    "vllm": (("engines",), True),
    "torch": (("engines",), True),
    "transformers": (("engines",), True),
    "huggingface_hub": (("model",), True),
    "airflow": (("integrations.airflow",), False),
    "prometheus_client": (("telemetry.metrics_file",), False),
    "pynvml": (("telemetry.gpus",), True),
    "matplotlib": (("insight.pictures",), False),
}

HEAVY = {
    "pyarrow",
    "duckdb",
    "numpy",
    "vllm",
    "torch",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "matplotlib",
}
"""What `--help` and `status` must not wait for."""


@dataclass(frozen=True, kw_only=True)
class Import:
    """An import statement: what `module` imports, and whether a function must run before it does."""

    module: str
    imported: str
    inside_function: bool
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.imported}"


@cache
def modules() -> dict[str, Path]:
    """Every module below `batchrun/` by its dotted name inside the package; `""` is the package itself."""
    named = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports_of(module: str, source: str) -> Iterator[Import]:
    """The imports of a module, at its top and inside its functions."""
    tree = ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        for name in _imported(node):
            yield Import(
                module=module,
                imported=name,
                inside_function=id(node) in inside,
                line=getattr(node, "lineno", 0),
            )


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute in this house"
        submodules = [f"{node.module}.{alias.name}" for alias in node.names]
        return submodules if node.module == "batchrun" else [str(node.module)]
    return []


def all_imports() -> list[Import]:
    return [
        found
        for module, path in modules().items()
        for found in imports_of(module, path.read_text(encoding="utf-8"))
    ]


def breach(found: Import) -> str | None:
    """What is wrong with an import, or None."""
    library = found.imported.partition(".")[0]
    if library == "batchrun":
        return _breach_of_layers(found)
    if library in LIBRARIES:
        homes, lazily = LIBRARIES[library]
        if not any(f"{found.module}.".startswith(f"{home}.") for home in homes):
            return f"{found}, which is for {' and '.join(homes)}"
        if lazily and not found.inside_function:
            return f"{found} outside a function"
    return None


def _breach_of_layers(found: Import) -> str | None:
    importer, imported = _unit(found.module), _unit(found.imported.removeprefix("batchrun").strip("."))
    above, below = _layer(importer), _layer(imported)
    if importer == "" and imported == "api":  # the package has its functions by name, imported when asked for
        return None
    if above < below or importer == imported or (above == below and above in NEIGHBOURLY):
        return None
    return f"{found}, which is {'beside' if above == below else 'above'} it"


def _unit(module: str) -> str:
    name = module.partition(".")[0]
    return name if name in modules() else ""


def _layer(unit: str) -> int:
    return next(number for number, units in enumerate(LAYERS) if unit in units)


def test_every_module_has_its_layer() -> None:
    """A module that is in no layer would be held to nothing."""
    units = {name.partition(".")[0] for name in modules()}
    assert set() == units.difference(*LAYERS)


def test_imports_go_down_only() -> None:
    """No module imports from above or from beside, nor a library that is not for it; functions count too."""
    assert [problem for found in all_imports() if (problem := breach(found))] == []


def test_there_are_no_circles() -> None:
    """Among imports that run at start, no module waits for itself."""
    known = modules()
    graph: dict[str, set[str]] = {module: set() for module in known}
    for found in all_imports():
        target = found.imported.removeprefix("batchrun.")
        if found.imported.startswith("batchrun.") and target in known and not found.inside_function:
            graph[found.module].add(target)
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("records", "from batchrun.submission import submit", "records:1 imports batchrun.submission, which is above it"),
        ("corpus.text", "from batchrun import planning", "corpus.text:1 imports batchrun.planning, which is beside it"),
        ("worker.tasks", "import batchrun.store", "worker.tasks:1 imports batchrun.store, which is beside it"),
        ("spec", "def f():\n    import batchrun.job", "spec:2 imports batchrun.job, which is above it"),
        ("errors", "import batchrun.records", "errors:1 imports batchrun.records, which is above it"),
        ("planning.work", "import duckdb", "planning.work:1 imports duckdb, which is for database and store.checkpoints"),
        ("runner", "from click import echo", "runner:1 imports click, which is for cli"),
        ("engines.vllm", "import vllm.sampling_params", "engines.vllm:1 imports vllm.sampling_params outside a function"),
        ("worker.worker", "def f():\n    import torch", "worker.worker:2 imports torch, which is for engines"),
        ("engines.vllm", "def f():\n    import vllm", None),
        ("runner", "from batchrun.job import Job", None),
        ("planning.work", "from batchrun.database import Database", None),
        ("cli.submit", "import click\nimport batchrun", None),
    ],
)  # fmt: skip
def test_a_breach_is_found(module: str, source: str, expected: str | None) -> None:
    """The check itself: what breaks the rules is named with its place, what keeps them passes."""
    assert [expected] == list(dict.fromkeys(breach(found) for found in imports_of(module, source)))


def test_errors_stand_at_the_bottom() -> None:
    """`errors.py` imports nothing of ours, so that everything can raise them."""
    assert [
        str(found)
        for found in all_imports()
        if found.module == "errors" and found.imported.startswith("batchrun")
    ] == []


def test_help_and_status_load_nothing_heavy(tmp_path: Path) -> None:
    """A look at the help or at the jobs does not wait for Arrow, a database or an engine."""
    program = (
        "import json, sys\n"
        "from batchrun.cli.main import main\n"
        "main.main(['--help'], prog_name='batchrun', standalone_mode=False)\n"
        f"main.main(['status', '--home', {str(tmp_path)!r}], prog_name='batchrun', standalone_mode=False)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "no runs in" in done.stdout
    assert set() == HEAVY.intersection(loaded)
