"""`constants`: every constant of the analysis for one problem, each with where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from viceversa.constants import pairs
from viceversa.constants.derivatives import Argument, Derivative, Domain, Word, derivative
from viceversa.constants.interval import NotCertified
from viceversa.constants.suprema import (
    largest_row,
    largest_slice,
    monotonicity_modulus,
    spectral,
    supremum,
    supremum_of_positive_part,
)
from viceversa.constants.table import Constant, Constants, derived
from viceversa.errors import InputError
from viceversa.problem import MisspecifiedVI
from viceversa.sets import Ball, Box
from viceversa.sets.base import ConvexSet

DECLARABLE = (*pairs.MEANINGS, "mu_F", "D_f")
_NO_CONSTRAINTS = Constant(0.0, "exact", "there are no constraints")
_ONE_POINT = Constant(0.0, "exact", "Θ is one point")


def constants(
    problem: MisspecifiedVI,
    declared: Mapping[str, float | Constant] | None = None,
    *,
    penalty: float | None = None,
    multiplier_norm: float = 0.0,
) -> Constants:
    """The constants of Assumption 1 and of the analysis over X × Θ, each with its provenance.

    Affine and quadratic parts are exact; the rest is certified by interval arithmetic on the programs of the
    derivatives (up to a relative 1e-12 for rounding), and what has no interval rule is estimated and marked so.
    `declared={"L_F_x": 3.0}` gives values you can prove; sampling tries to refute them first. `penalty` and
    `multiplier_norm` say at which ρ (default: the paper's 1/L^Φ_λθ) and ‖λ‖ L^Φ_xθ is taken.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: t * x - 1.0, set=vv.Box([0.0, 0.0], [2.0, 2.0]),
        ...     learning=vv.SecondaryVI(lambda t: t - 2.0, set=vv.Box([1.0], [3.0])))
        >>> found = vv.constants(problem)
        >>> round(found.L_F_x.value, 9), found.L_F_x.provenance, round(found.mu_F.value, 9)
        (3.0, 'exact', 1.0)
    """
    domain = Domain.of(problem)
    given = _declarations(problem, domain, declared or {})
    return _with_derived(problem, _primary(problem, domain, given), penalty, multiplier_norm)


def _primary(problem: MisspecifiedVI, domain: Domain, given: dict[str, Constant]) -> dict[str, Constant]:
    """The constants of F, f, H and the sets, declared ones as declared."""
    F, f = problem.operator, problem.constraints
    found: dict[str, Constant] = dict(given)

    def ask(name: str, make: Callable[[], Constant]) -> None:
        if name not in found:
            found[name] = make()

    def by_program(name: str, function, word: Word, what: str, norm) -> Callable[[], Constant]:
        def run() -> Constant:
            try:
                program = derivative(function, problem, word)
            except NotCertified as reason:
                return _from_pairs(problem, domain, name, str(reason))
            constant = supremum(what, lambda: program, domain, norm)
            if word[-1:] == "t" and domain.t.is_point and not constant.is_bound:
                return _ONE_POINT
            return constant

        return run

    ask("L_F_x", by_program("L_F_x", F, "x", "∂F/∂x", spectral))
    ask("L_F_theta", by_program("L_F_theta", F, "t", "∂F/∂θ", spectral))
    ask("mu_F", lambda: _modulus(problem, domain))
    if problem.n_constraints == 0:
        for name in ("L_f_x", "L_f_theta", "ell", "M_grad_f", "L_grad_f_x", "L_grad_f_theta", "D_f"):
            found[name] = _NO_CONSTRAINTS
    else:
        ask("L_f_x", by_program("L_f_x", f, "x", "the rows of Jf", largest_row))
        ask("M_grad_f", by_program("M_grad_f", f, "x", "Jf", spectral))
        ask("L_f_theta", by_program("L_f_theta", f, "t", "the rows of ∂f/∂θ", largest_row))
        ask("ell", by_program("ell", f, "t", "∂f/∂θ", spectral))
        ask("L_grad_f_x", lambda: _gradient_constant(problem, domain, "L_grad_f_x", "x", by_program))
        ask("L_grad_f_theta", lambda: _gradient_constant(problem, domain, "L_grad_f_theta", "t", by_program))
        ask("D_f", lambda: _largest_violation(problem, domain))
    modulus = problem.learning.modulus()
    side = (
        "nothing is learned"
        if problem.learning.is_known
        else f"μ_H and L_H as the learning side has them ({modulus.provenance})"
    )
    found["L_H"] = Constant(modulus.lipschitz, modulus.provenance, side)
    found["mu_H"] = Constant(modulus.mu, modulus.provenance, side)
    found["D_X"] = _diameter(problem.set, "X")
    found["D_Theta"] = _diameter(problem.learning.set, "Θ")
    return found


def _gradient_constant(
    problem: MisspecifiedVI, domain: Domain, name: str, letter: Argument, by_program: Callable
) -> Constant:
    try:
        gradient = derivative(problem.constraints, problem, "x")
        if not gradient.reads(letter):
            return Constant(0.0, "exact", f"Jf does not depend on {'x' if letter == 'x' else 'θ'}")
    except NotCertified as reason:
        return _from_pairs(problem, domain, name, str(reason))
    what = "the second derivatives of f" if letter == "x" else "∂²f/∂x∂θ"
    return by_program(name, problem.constraints, "xx" if letter == "x" else "xt", what, largest_slice)()


def _modulus(problem: MisspecifiedVI, domain: Domain) -> Constant:
    try:
        program = derivative(problem.operator, problem, "x")
    except NotCertified as reason:
        found = pairs.least_monotone_pair(problem, domain)
        value = float("nan") if found is None else found.ratio
        return Constant(value, "estimated", _sampled_how(str(reason)), pairs.N_PAIRS)
    return monotonicity_modulus(lambda: program, domain)


def _largest_violation(problem: MisspecifiedVI, domain: Domain) -> Constant:
    try:
        program: Derivative = derivative(problem.constraints, problem, "")
    except NotCertified as reason:
        found = pairs.largest_infeasibility(problem, domain)
        value = float("nan") if found is None else found.ratio
        return Constant(value, "estimated", _sampled_how(str(reason)), pairs.N_PAIRS)
    return supremum_of_positive_part(lambda: program, domain)


def _from_pairs(problem: MisspecifiedVI, domain: Domain, name: str, why: str) -> Constant:
    found = pairs.steepest_pair(problem, domain, name)
    if found is None:
        return _ONE_POINT
    return Constant(found.ratio, "estimated", _sampled_how(why), pairs.N_PAIRS)


def _sampled_how(why: str) -> str:
    return f"{pairs.N_PAIRS} pairs of points (not certified: {why})"


def _diameter(convex_set: ConvexSet, name: str) -> Constant:
    sure = "exact" if isinstance(convex_set, (Box, Ball)) else "certified"
    use = "" if name == "X" else ", at least sup ‖θ − θ*‖"
    return Constant(float(convex_set.diameter()), sure, f"the diameter of {name}{use}")


def _with_derived(
    problem: MisspecifiedVI, c: dict[str, Constant], penalty: float | None, multiplier_norm: float
) -> Constants:
    """C1..C4 and the constants of Φ from those of f (THEORY.md B.2)."""
    root_J = float(np.sqrt(problem.n_constraints))
    v = {name: constant.value for name, constant in c.items()}
    if root_J * v["L_f_theta"] < v["ell"]:
        c["ell"] = derived(root_J * v["L_f_theta"], "√J L_f,θ, smaller than the norm's bound", c["L_f_theta"])
    if root_J * v["L_f_x"] < v["M_grad_f"]:
        c["M_grad_f"] = derived(root_J * v["L_f_x"], "√J L_f,x, smaller than the norm's bound", c["L_f_x"])
    M = c["M_grad_f"].value
    curved = root_J * v["L_grad_f_x"] * v["D_f"] if v["L_grad_f_x"] > 0 else 0.0
    turned = root_J * v["L_grad_f_theta"] * v["D_f"] if v["L_grad_f_theta"] > 0 else 0.0
    sources = [c[name] for name in ("L_grad_f_x", "M_grad_f")] + ([c["D_f"]] if curved else [])
    c["C1"] = derived(curved + M**2, "√J L_∇f,x D_f + M_∇f²", *sources)
    c["C1_paper"] = derived(
        curved + root_J * v["L_f_x"] * M, "√J (L_∇f,x D_f + L_f,x M_∇f), as printed", *sources, c["L_f_x"]
    )
    c["C2"] = derived(root_J * v["L_grad_f_x"], "√J L_∇f,x", c["L_grad_f_x"])
    sources = [c[name] for name in ("L_grad_f_theta", "L_f_theta", "M_grad_f")] + (
        [c["D_f"]] if turned else []
    )
    c["C3"] = derived(turned + root_J * v["L_f_theta"] * M, "√J (L_∇f,θ D_f + L_f,θ M_∇f)", *sources)
    c["C4"] = derived(root_J * v["L_grad_f_theta"], "√J L_∇f,θ", c["L_grad_f_theta"])
    c["L_Phi_lambda_theta"] = derived(root_J * v["L_f_theta"], "√J L_f,θ", c["L_f_theta"])
    rho = penalty if penalty is not None else _paper_penalty(c["L_Phi_lambda_theta"].value)
    c["L_Phi_x_theta"] = derived(
        rho * c["C3"].value + multiplier_norm * c["C4"].value,
        f"ρ C3 + ‖λ‖ C4 at ρ = {rho:.4g}, ‖λ‖ = {multiplier_norm:.4g}",
        c["C3"],
        c["C4"],
    )
    return Constants(**c)


def _paper_penalty(limit: float) -> float:
    return 1.0 / limit if limit > 0 else 1.0


def _declarations(problem: MisspecifiedVI, domain: Domain, declared: Mapping) -> dict[str, Constant]:
    unknown = [name for name in declared if name not in DECLARABLE]
    if unknown:
        raise InputError(
            f"declared: {', '.join(map(str, unknown))} cannot be declared here. It takes {', '.join(DECLARABLE)}; μ_H and "
            "L_H are declared to the learning side, and the rest follows."
        )
    found = {}
    for name, value in declared.items():
        number = value.value if isinstance(value, Constant) else value
        if not (np.ndim(number) == 0 and np.isfinite(number) and (number >= 0 or name == "mu_F")):
            raise InputError(f"declared: {name} is {number}; one finite number >= 0 is needed.")
        pairs.refute(problem, domain, name, float(number))
        how = value.how if isinstance(value, Constant) else "declared; sampling did not refute it"
        found[name] = Constant(float(number), "declared", how)
    return found
