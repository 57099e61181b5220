"""The table of methods: complete, resolvable, and the same in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import viceversa as vv
from viceversa import learners, schemes
from viceversa.catalogue import method_classes, methods_markdown, rules_table, second_names

ROOT = Path(vv.__file__).parents[2]
BIBLIOGRAPHY = (Path(vv.__file__).parent / "references.bib").read_text()
KEYS = set(re.findall(r"^@\w+\{([^,\s]+),", BIBLIOGRAPHY, flags=re.M))


def test_every_public_method_has_a_row():
    assert [row.name for row in vv.methods_table()] == list(
        dict.fromkeys(row.name for row in vv.methods_table())
    )
    assert {row.name for row in vv.methods_table()} == set(method_classes())


def test_every_public_scheme_and_learner_has_a_row():
    packages = {"scheme": (schemes, schemes.Scheme), "learner": (learners, learners.Learner)}
    for kind, (package, base) in packages.items():
        public = {name for name in package.__all__ if isinstance(getattr(package, name), type)}
        final = {name for name in public if issubclass(getattr(package, name), base)} - {base.__name__}
        assert {row.name for row in rules_table() if row.kind == kind} == final


def test_second_names_lead_to_methods():
    assert second_names()["Extragradient"] is vv.ExtragradientLagrangian
    assert set(second_names()) == {"Extragradient", "MisspecifiedExtragradient", "MisspecifiedTikhonov"}


def test_every_reference_resolves_in_the_bibliography():
    learners = [vv.ProjectedGradient, vv.ExtragradientLearner, vv.StochasticGradient, vv.PrimalDualLearner]
    for kind in [*method_classes().values(), *learners]:
        for reference in kind.reference.split(";"):
            assert reference.split(",")[0].strip() in KEYS, kind


def test_the_bibliography_names_each_key_once_and_closes_its_braces():
    assert len(KEYS) == len(re.findall(r"^@", BIBLIOGRAPHY, flags=re.M))
    assert BIBLIOGRAPHY.count("{") == BIBLIOGRAPHY.count("}")


def test_the_documentation_shows_this_table_and_a_discriminating_problem_for_every_method():
    page = (ROOT / "docs" / "methods.md").read_text()
    assert methods_markdown() in page
    problems = page.split("## Problems that discriminate")[1]
    for name in method_classes():
        assert f"| `{name}` |" in problems, name


def test_every_equation_numbered_in_a_docstring_is_numbered_in_the_code():
    for name, kind in method_classes().items():
        source = Path(ROOT / "src" / (kind.__module__.replace(".", "/") + ".py")).read_text()
        docstring = kind.__doc__ or ""
        code = source.replace(docstring, "")
        numbers = set(re.findall(r"\((\d)[a-z']?(?:,[^)]*)?\)\s*$", docstring, flags=re.M))
        in_code = set(re.findall(r"#.*?\((\d)", code)) | set(re.findall(r"\), \((\d)", code))
        missing = {n for n in numbers if n not in in_code}
        learners_own = {n for n in numbers if re.search(rf"\({n}, the learner", docstring)}
        assert missing <= learners_own, (name, missing)
