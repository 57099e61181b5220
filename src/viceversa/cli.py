"""The command line: `viceversa reproduce | list | cite`, also as `python -m viceversa`."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table
except ImportError as error:
    sys.exit(f"viceversa: the command line needs {error.name}. Run: pip install 'viceversa[cli]'")

from viceversa.errors import InputError, MissingExtra

app = typer.Typer(
    name="viceversa",
    help="Equilibria you do not fully know: variational inequalities solved while their parameters are learned.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Typer carries its own copy of click in newer versions, so the base of its usage errors is found through one of them.
_UsageProblem: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
_SECONDS_BETWEEN_LINES = 10.0


class Learn(StrEnum):
    """What of the demand curve is learned."""

    slope = "slope"
    both = "both"


def main() -> None:
    """The entry point: every expected failure is one sentence on stderr and an exit code, never a traceback."""
    _use_compilation_cache()
    try:
        code = app(standalone_mode=False)
    except _UsageProblem as problem:
        _fail(problem.format_message(), problem.exit_code)  # type: ignore[attr-defined]
    except (InputError, MissingExtra) as problem:
        _fail(str(problem), 1)
    except OSError as problem:
        where = f" ({problem.filename})" if problem.filename else ""
        _fail(f"{problem.strerror or problem}{where}.", 1)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; nothing more was written.", 130)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> NoReturn:
    sentence = " ".join(sentence.split())
    if sentence:  # without one the help has been printed already
        hint = " See `viceversa --help`." if code == 2 else ""
        print(f"viceversa: {sentence.rstrip('.')}.{hint}", file=sys.stderr)
    sys.exit(code)


def _use_compilation_cache() -> None:
    """Compiled programs are kept between runs of the command line; the library itself sets nothing."""
    import jax

    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    jax.config.update("jax_compilation_cache_dir", str(Path(base) / "viceversa" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _show_version(asked: bool) -> bool:
    if asked:
        import viceversa

        print(f"viceversa {viceversa.__version__}")
        raise typer.Exit
    return False


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def reproduce(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="The same sizes and methods with fewer seeds and iterations: under a minute."
        ),
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for the results; made if it is not there.")
    ] = Path("results/reproduce"),
    learn: Annotated[
        Learn,
        typer.Option(help="Learn the slope of demand (the paper) or slope and intercept (slow learning)."),
    ] = Learn.slope,
) -> None:
    """Repeat the paper's experiment and judge its claims.

    Constrained Cournot markets with (50, 5), (50, 10) and (100, 10) firms
    and products; three methods; step sizes by the paper's theory, by the
    corrected theory, and tuned; several seeds.

    Writes into the output directory: results.parquet (one long table),
    figure.png and figure.pdf (laid out as in the paper), more figures, and
    summary.md with fitted rates and the claims table: each claim of the
    paper, what was measured, and whether it holds.
    """
    from dataclasses import replace

    from viceversa.experiments import QUICK, Settings
    from viceversa.experiments import reproduce as run
    from viceversa.experiments.reproduce import check_writable

    check_writable(output)  # said before minutes of work, not after
    settings = replace(QUICK if quick else Settings(), learn=learn.value)
    with _progress() as report:
        written = run(settings, output, report)
    for path in written:
        print(path)


@app.command("list")
def list_everything() -> None:
    """The methods, schemes, learners and the gallery's instances, each with what it needs and where it comes from."""
    from viceversa import gallery
    from viceversa.catalogue import methods_table, rules_table, second_names

    names = {row.name: [row.name] for row in methods_table()}
    for name, kind in second_names().items():
        names[kind.__name__].append(name)
    methods = [
        ("\n= ".join(names[row.name]), row.primary, row.assumptions, row.rate, row.oracle, row.reference)
        for row in methods_table()
    ]
    instances = [(entry.name, entry.size, entry.properties, entry.source) for entry in gallery.instances()]
    columns = ("name", "solves", "assumes", "rate", "per iteration", "reference")
    _print_table("Methods: vv.solve(problem, vv.NAME(...))", columns, methods)
    _print_table(
        "Schemes and learners",
        ("name", "kind", "what it is", "reference"),
        [tuple(row) for row in rules_table()],
    )
    _print_table("Gallery (vv.gallery.NAME())", ("name", "size", "properties", "source"), instances)


@app.command()
def cite(
    name: Annotated[
        str,
        typer.Argument(
            help="A method, scheme or learner, a gallery instance, or a key such as dey2026misspecified."
        ),
    ],
) -> None:
    """Print BibTeX for a method, a scheme, a learner, an instance or a key (`viceversa list` shows the names)."""
    from viceversa import gallery

    entries = _bibliography()
    references = {
        **_references(),
        **{entry.name: entry.source for entry in gallery.instances()},
        **{key: key for key in entries},
    }
    match = {known.lower(): known for known in references}.get(name.lower())
    if match is None:
        raise InputError(
            f"cite: {name!r} is no method, scheme, learner, instance or key. `viceversa list` shows the names."
        )
    keys = [key for key in entries if re.search(rf"\b{re.escape(key)}\b", references[match])]
    if not keys:
        source = f"its source is {references[match]!r}" if references[match] else "it names no source"
        raise InputError(f"cite: {match} has no entry in the bibliography; {source}.")
    print("\n\n".join(entries[key] for key in keys))


def _references() -> dict[str, str]:
    """What every method, scheme and learner cites, by each of its names."""
    from viceversa.catalogue import methods_table, rules_table, second_names

    own = {row.name: row.reference for row in (*methods_table(), *rules_table())}
    return {**own, **{name: kind.reference for name, kind in second_names().items()}}


def _bibliography() -> dict[str, str]:
    """BibTeX entries by key."""
    text = resources.files("viceversa").joinpath("references.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{(?P<key>[^,]+),.*?^\}", text, flags=re.MULTILINE | re.DOTALL)
    whole = re.findall(r"^@\w+\{.*?^\}", text, flags=re.MULTILINE | re.DOTALL)
    return dict(zip(entries, whole, strict=True))


def _print_table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """What long work tells how far it has come: a bar on a terminal; elsewhere, as in a log, a line now and then."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("starting", total=None)
            yield lambda words, n, total: bar.update(task, description=words, completed=n, total=total)
        return
    began, told = time.monotonic(), -_SECONDS_BETWEEN_LINES

    def report(words: str, n: int, total: int) -> None:
        nonlocal told
        seconds = time.monotonic() - began
        if seconds - told >= _SECONDS_BETWEEN_LINES or n == total:
            told = seconds
            print(f"{n}/{total} {words} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    yield report
