"""The command line: every failure is one sentence and an exit code; names resolve to BibTeX."""

from __future__ import annotations

import os
import sys

import pytest

import viceversa as vv
from viceversa import cli


@pytest.fixture
def viceversa(monkeypatch, capsys):
    """Runs the entry point; returns (exit code, stdout, stderr)."""
    monkeypatch.setattr(cli, "_use_compilation_cache", lambda: None)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["viceversa", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        return (exit.value.code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "--fast"], "No such option: --fast"),
        (["reproduce", "--learn", "nothing"], "'nothing' is not one of 'slope', 'both'"),
        (["solve-it"], "No such command 'solve-it'"),
        (["cite"], "Missing argument 'name'"),
    ],
)
def test_misuse_is_one_sentence_and_code_2(viceversa, arguments, words):
    code, out, err = viceversa(*arguments)
    assert code == 2
    assert out == ""
    (sentence,) = err.splitlines()
    assert words in sentence
    assert "Traceback" not in err


def test_output_that_is_a_file_is_refused_before_any_work(viceversa, tmp_path):
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        code, out, err = viceversa("reproduce", "--quick", "--output", target)
        assert (code, out) == (1, "")
        (sentence,) = err.splitlines()
        assert str(target) in sentence
        assert "Choose another directory" in sentence


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_directory_without_permission_is_refused(viceversa, tmp_path):
    tmp_path.chmod(0o500)
    code, _, err = viceversa("reproduce", "--quick", "--output", tmp_path)
    tmp_path.chmod(0o700)
    assert code == 1
    assert "cannot be written to" in err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ["reproduce", "list", "cite"]),
        (["reproduce"], ["--quick", "--output", "--learn", "results.parquet", "summary.md", "claims"]),
        (["list"], ["methods", "gallery"]),
        (["cite"], ["BibTeX", "dey2026misspecified"]),
    ],
)
def test_help_is_enough(viceversa, command, words):
    code, out, _ = viceversa(*command, "--help")
    assert code == 0
    assert all(word in out for word in words)


def test_list_names_every_public_method_and_instance(viceversa):
    code, out, _ = viceversa("list")
    assert code == 0
    for name in ("AugmentedLagrangian", "TikhonovLagrangian", "ExtragradientLagrangian"):
        assert name in out
    for entry in vv.gallery.instances():
        assert entry.name in out


@pytest.mark.parametrize(
    "name", ["AugmentedLagrangian", "augmentedlagrangian", "cournot", "dey2026misspecified"]
)
def test_cite_prints_bibtex(viceversa, name):
    code, out, _ = viceversa("cite", name)
    assert code == 0
    assert out.startswith("@misc{dey2026misspecified,")
    assert out.rstrip().endswith("}")


def test_cite_prints_every_reference_of_a_method(viceversa):
    _, out, _ = viceversa("cite", "ExtragradientLagrangian")
    assert "{ahmadi2020resolution," in out
    assert "{korpelevich1976extragradient," in out


def test_cite_of_an_unknown_name_is_one_sentence(viceversa):
    code, _, err = viceversa("cite", "nobody1900nothing")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "'nobody1900nothing' is no method, instance or key" in err


def test_every_reference_resolves():
    known = cli._bibliography()
    for name, method in cli._methods().items():
        keys = [part.split(",")[0].strip() for part in method.reference.split(";")]
        assert set(keys) <= set(known), name
