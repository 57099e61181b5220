"""Every Python example in the documents runs, and every file they link to exists."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "NOTATION.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
EXAMPLES = [
    pytest.param(code, id=f"{document.name}-{n}")
    for document in DOCUMENTS
    for n, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.M | re.S)
    )
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code, monkeypatch):
    # Classes defined in an example look their module up by name.
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    exec(compile(code, "example", "exec"), vars(module))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    # A call on a subscript, names[0](x, theta), is not a link: look outside the code.
    prose = re.sub(r"^```.*?^```|`[^`\n]+`", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_readme_begins_with_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index("make reproduce") < text.index("make test") < text.index("```python")
    assert "docs/images/figure.png" in text
