"""The benchmarks' loops do what viceversa does, and their tables can be written; nothing here looks at a time."""

import pytest
from benchmarks import __main__ as command
from benchmarks import iteration_speed, machine, plain_loops
from benchmarks.market import market


def test_every_loop_is_the_same_iteration_as_solve():
    problem, at = market(20, 3)
    contenders = {
        "viceversa": iteration_speed._solver(problem, at),
        "numpy": iteration_speed._bound(plain_loops.numpy_loop, at),
    }
    contenders |= {name: iteration_speed._bound(loop, at) for name, loop in plain_loops.c_loops().items()}
    iteration_speed._check_agreement(contenders, n_steps=60)
    x, lam, b, _ = plain_loops.numpy_loop(at, 60)
    # The cap binds, a capacity does not everywhere, and the slope is being learned: every formula matters.
    assert (x > 0).any()
    assert (x < at.capacity).any()
    assert (lam > 0).all()
    assert b < at.b0


def test_a_loop_that_differs_is_refused():
    problem, at = market(20, 3)
    wrong = {
        "viceversa": iteration_speed._solver(problem, at),
        "wrong": lambda n: plain_loops.numpy_loop(at, n + 1),
    }
    with pytest.raises(AssertionError, match="wrong"):
        iteration_speed._check_agreement(wrong, n_steps=60)


def test_a_table_has_its_machine_and_its_numbers(tmp_path):
    machine.write(tmp_path, "speed", "A title", ["n", "time"], [[250, 1.25]], "A note.")
    text = (tmp_path / "speed.md").read_text()
    assert all(part in text for part in ("Measured on", "| 250 | 1.25 |", "A note."))
    assert (tmp_path / "speed.csv").read_text().split() == ["n,time", "250,1.25"]


def test_the_command_lists_and_refuses(capsys):
    command.main(["--list"])
    listed = capsys.readouterr().out
    assert all(name in listed for name in command.BENCHMARKS)
    with pytest.raises(SystemExit):
        command.main(["no_such_benchmark"])


def test_data_is_stored_where_jax_reads_it_in_place():
    _, at = market(20, 3)
    assert at.r.ctypes.data % 64 == at.g.ctypes.data % 64 == 0
    assert at.r.flags.c_contiguous
