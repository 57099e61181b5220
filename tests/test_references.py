"""Every reference a method or learner names is an entry of the bibliography."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from importlib import resources

import pytest

import viceversa
from viceversa.learners import Learner
from viceversa.methods import Method

BIBLIOGRAPHY = (resources.files(viceversa) / "references.bib").read_text(encoding="utf-8")
KEYS = re.findall(r"^@\w+\{([^,\s]+),", BIBLIOGRAPHY, flags=re.MULTILINE)


def cited():
    for package in ("methods", "learners", "schemes"):
        folder = importlib.import_module(f"viceversa.{package}")
        for module in pkgutil.iter_modules(folder.__path__):
            members = vars(importlib.import_module(f"{folder.__name__}.{module.name}"))
            for name, member in members.items():
                if inspect.isclass(member) and member.__module__.endswith(f".{module.name}"):
                    reference = getattr(member, "reference", None)
                    if isinstance(reference, str):
                        yield name, reference


CITED = dict(cited())


def test_keys_are_unique():
    assert len(KEYS) == len(set(KEYS)) > 0


@pytest.mark.parametrize("name", CITED)
def test_reference_resolves(name):
    keys = re.findall(r"[a-z]+\d{4}[a-z]*", CITED[name])
    assert keys, f"{name} cites nothing"
    assert set(keys) <= set(KEYS)


def test_every_method_and_learner_cites():
    final = {
        c
        for c in (*Method.__subclasses__(), *Learner.__subclasses__())
        if c.__module__.startswith("viceversa")
    }
    assert {c.__name__ for c in final if not c.__abstractmethods__} <= set(CITED)


def test_entries_are_complete():
    for entry in re.split(r"\n(?=@)", BIBLIOGRAPHY.strip()):
        for field in ("author", "title", "year"):
            assert re.search(rf"\b{field}\s*=", entry), f"{field} is missing in {entry.splitlines()[0]}"
        assert entry.count("{") == entry.count("}")
