"""The command line: every failure is one sentence and an exit code; names resolve to BibTeX."""

from __future__ import annotations

import os
import runpy
import sys

import pytest

import viceversa as vv
from viceversa import cli
from viceversa.catalogue import rules_table


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


def test_a_log_hears_how_far_long_work_has_come(viceversa, monkeypatch, tmp_path):
    def work(settings, directory, report):
        for n, words in enumerate(["tuning", "a", "b", "done"]):
            report(words, n, 3)
        return [directory / "figure.png"]

    monkeypatch.setattr("viceversa.experiments.reproduce", work)
    code, out, err = viceversa("reproduce", "--output", tmp_path)
    assert (code, out) == (0, f"{tmp_path / 'figure.png'}\n")
    assert err.splitlines() == ["0/3 tuning (0 s)", "3/3 done (0 s)"]  # those between came within seconds


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
    for row in (*vv.methods_table(), *rules_table()):
        assert row.name in out
    assert "= Extragradient " in out.split("ExtragradientLagrangian")[1].splitlines()[1]
    assert "2 F, 2 f, 2 Jfᵀ" in out.split("IPALM")[1].splitlines()[0]
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
    assert "'nobody1900nothing' is no method, scheme, learner, instance or key" in err


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("SemismoothNewton", "qi2000new"),
        ("Extragradient", "korpelevich1976extragradient"),
        ("NewtonLearner", "facchinei2003finite"),
        ("Simultaneous", "dey2026misspecified"),
    ],
)
def test_the_default_solver_second_names_learners_and_schemes_can_be_cited(viceversa, name, key):
    code, out, _ = viceversa("cite", name)
    assert code == 0
    assert f"{{{key}," in out


def test_cite_says_that_a_scheme_names_no_source(viceversa):
    code, _, err = viceversa("cite", "Oracle")
    assert code == 1
    assert "Oracle has no entry in the bibliography; it names no source." in err


def test_version(viceversa):
    assert viceversa("--version") == (0, f"viceversa {vv.__version__}\n", "")


def test_the_package_runs_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(cli, "_use_compilation_cache", lambda: None)
    monkeypatch.setattr(sys, "argv", ["viceversa", "--version"])
    with pytest.raises(SystemExit):
        runpy.run_module("viceversa", run_name="__main__")
    assert capsys.readouterr().out.startswith("viceversa ")


def test_every_reference_resolves():
    known = cli._bibliography()
    for name, reference in cli._references().items():
        keys = [part.split(",")[0].strip() for part in reference.split(";")]
        assert set(keys) <= {*known, ""}, name
