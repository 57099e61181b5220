"""Names that are imported when first asked for are the same names in whatever order they are asked for."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import viceversa as vv

ORDERS = {
    "the function first": "import viceversa as vv; assert callable(vv.{name}); import viceversa.{name}",
    "its package first": "import viceversa.{name}; import viceversa as vv",
    "a part of its package first": "import viceversa.{part}; import viceversa as vv",
    "by from": "from viceversa import {name} as found; import viceversa as vv; assert found is vv.{name}",
}
PARTS = {"audit": "audit.slater", "bounds": "bounds", "compare": "compare", "constants": "constants.pairs"}


@pytest.mark.parametrize("order", ORDERS)
def test_a_function_that_lives_in_a_package_of_its_name_stays_a_function(order):
    lines = [
        f"{ORDERS[order].format(name=name, part=part)}; assert vv.{name}.__module__.startswith('viceversa.{name}')"
        f"; assert callable(vv.{name})"
        for name, part in PARTS.items()
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_to_solve_a_problem_takes_neither_theory_nor_applications_nor_other_methods():
    code = """
import sys
import viceversa as vv
problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [9.0]), learning=vv.Known(2.0))
assert vv.solve(problem).success
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("viceversa.")}
print(loaded & {"audit", "bounds", "compare", "constants", "gallery", "game", "markets", "metrics", "portfolio"})
print(sorted(name for name in sys.modules if name.startswith("viceversa.methods.")))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    methods = ["viceversa.methods.adaptive_augmented_lagrangian", "viceversa.methods.base"]
    assert done.stdout.splitlines() == ["set()", str(methods)]


def test_every_method_is_found_where_it_is_said_to_live():
    for module, names in vv.methods.MODULES.items():
        for name in names:
            assert getattr(vv, name) is getattr(importlib.import_module(f"viceversa.methods.{module}"), name)
    files = {path.stem for path in Path(vv.methods.__file__).parent.glob("*.py")}
    assert files - {"__init__"} == set(vv.methods.MODULES)
    with pytest.raises(AttributeError, match="has no attribute 'Newton'"):
        _ = vv.methods.Newton
