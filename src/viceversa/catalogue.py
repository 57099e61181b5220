"""What every method is for: problem, constraints, learning, assumptions, oracle, rate, reference; schemes and learners too."""

from __future__ import annotations

from typing import NamedTuple

from viceversa import learners, methods, schemes
from viceversa.methods.base import Method, OracleCounts


class MethodRow(NamedTuple):
    """One method. `nonlinear` and `misspecified` say whether f may be nonlinear in x and may depend on θ."""

    name: str
    primary: str
    nonlinear: str
    misspecified: str
    secondary: str
    assumptions: str
    oracle: str
    rate: str
    reference: str


class _Entry(NamedTuple):
    primary: str
    constraints: tuple[str, str]
    assumptions: str
    rate: str
    secondary: str = "strongly monotone VI"
    oracle: str | None = None


_ANY, _AFFINE, _NONE = ("convex", "yes"), ("affine", "yes"), ("inside φ", "inside φ")
_LOCAL = ("convex, λ bounded", "yes")  # the Lagrangian's operator is Lipschitz only where λ is bounded

_ENTRIES: dict[str, _Entry] = {
    "AugmentedLagrangian": _Entry(
        "monotone VI", _ANY, "F Lipschitz; 1/γ ≥ ρC₁ + C₂ sup‖λ‖ + 2L", "O(1/K) average"
    ),
    "AdaptiveAugmentedLagrangian": _Entry(
        "monotone VI", _ANY, "F locally Lipschitz; no constants", "O(1/K) average"
    ),
    "AcceleratedAugmentedLagrangian": _Entry(
        "strongly monotone VI", _ANY, "μ, L, C₁ and a bound on λ known", "O(1/K²) average, O(1/K) last"
    ),
    "ExtragradientLagrangian": _Entry(
        "monotone VI", _LOCAL, "τL_F + τ√ω M_∇f < 1", "O(1/K) average; last converges"
    ),
    "TikhonovLagrangian": _Entry(
        "monotone VI", _LOCAL, "γ_k/ε_k → 0, Σγ_kε_k = ∞", "converges, no faster than K^−½"
    ),
    "ProjectionMethod": _Entry(
        "strongly monotone VI", ("no: diverges in λ", "no"), "τ < 2μ/L²", "linear; none if merely monotone"
    ),
    "MisspecifiedSubgradient": _Entry(
        "convex optimization", _LOCAL, "bounded subgradients; F a (sub)gradient", "O(log K/√K) average"
    ),
    "MirrorProx": _Entry("monotone VI on simplices", _LOCAL, "τL ≤ 1 in the ℓ₁/ℓ_∞ norms", "O(1/K) average"),
    "Popov": _Entry("monotone VI", _LOCAL, "τ < 1/(3L)", "O(1/K) average; last converges"),
    "TsengForwardBackwardForward": _Entry(
        "monotone VI", _LOCAL, "τ < 1/L; F, f defined around X", "O(1/K) average; last converges"
    ),
    "ForwardReflectedBackward": _Entry("monotone VI", _LOCAL, "τ < 1/(2L)", "O(1/K) average; last converges"),
    "GoldenRatio": _Entry("monotone VI", _LOCAL, "τ ≤ φ/(2L)", "O(1/K) average; last converges"),
    "AdaptiveGoldenRatio": _Entry(
        "monotone VI",
        _ANY,
        "G locally Lipschitz; no constants",
        "O(1/K) average; last converges",
        oracle="1 F, 1 f, 1 Jfᵀ (twice that while θ moves)",
    ),
    "SolodovProjection": _Entry(
        "monotone VI", _ANY, "G continuous; no constants", "converges", oracle="1 F, 1 f, 1 Jfᵀ per trial + 1"
    ),
    "AnchoredExtragradient": _Entry(
        "monotone VI", _LOCAL, "τ ≤ 1/(√3 L); Σ k‖θ_k − θ*‖ < ∞", "O(1/k) last iterate"
    ),
    "IPALM": _Entry(
        "convex optimization",
        _AFFINE,
        "F a Lipschitz gradient, X bounded",
        "O(log K/K); O(K^−¼) constant penalty",
        oracle="2 F, 2 f, 2 Jfᵀ per inner step",
    ),
    "LearningAwarePrimalDual": _Entry(
        "convex–concave saddle point",
        _NONE,
        "smooth φ; backtracking needs no constants",
        "O(log K/K) average",
        "strongly monotone VI or saddle point",
        oracle="2 partial gradients (naive: 3)",
    ),
    "StochasticApproximation": _Entry(
        "stochastic monotone VI",
        _LOCAL,
        "bounded variance; μ > 0, or ε_k → 0",
        "E‖x_k − x*‖² = O(1/k) if μ > 0",
        "stochastic strongly monotone VI",
        oracle="`batch` samples of F, 1 f, 1 Jfᵀ",
    ),
    "RandomizedLagrangian": _Entry(
        "stochastic monotone VI, large J",
        _ANY,
        "γ_k, ρ_k ~ 1/(√k log k)",
        "O(log K/√K) average, in mean",
        "strongly monotone VI, stochastic or not",
        oracle="1 F, 2 `block` of f, 1 Jfᵀ of it",
    ),
    "Averaged": _Entry(
        "the wrapped method's",
        ("its own", "its own"),
        "its own",
        "the average's",
        "its own",
        oracle="its own",
    ),
    "Restarted": _Entry(
        "the wrapped method's",
        ("its own", "its own"),
        "sharpness, for the rate",
        "linear if sharp",
        "its own",
        oracle="its own + 2 per check (3 while θ moves)",
    ),
}


def method_classes() -> dict[str, type[Method]]:
    """Every public method by its own name (a second name such as `Extragradient` is not listed twice)."""
    found = (getattr(methods, name) for name in methods.__all__)
    classes = [
        kind for kind in found if isinstance(kind, type) and issubclass(kind, Method) and kind is not Method
    ]
    return {kind.__name__: kind for kind in classes}


def second_names() -> dict[str, type[Method]]:
    """Methods by the names they have beside their own."""
    own = method_classes()
    found = {name: getattr(methods, name) for name in methods.__all__ if name not in own}
    return {name: kind for name, kind in found.items() if kind in own.values()}


def methods_table() -> list[MethodRow]:
    """The table of methods, one row each, in the order of a reader: the paper's first.

    Example:
        >>> import viceversa as vv
        >>> vv.methods_table()[0].name
        'AugmentedLagrangian'
    """
    classes = method_classes()
    return [
        MethodRow(
            name=name,
            primary=entry.primary,
            nonlinear=entry.constraints[0],
            misspecified=entry.constraints[1],
            secondary=entry.secondary,
            assumptions=entry.assumptions,
            oracle=entry.oracle or _oracle(classes[name].step_counts),
            rate=entry.rate,
            reference=classes[name].reference,
        )
        for name, entry in _ENTRIES.items()
    ]


class RuleRow(NamedTuple):
    """A scheme (how x, λ and θ move together) or a learner (how θ moves)."""

    name: str
    kind: str
    words: str
    reference: str


_SCHEMES = {
    "SemismoothNewton": "the default: first order until close, Newton until done",
    "Simultaneous": "one step of a method at θ_k, then one step of a learner",
    "Sequential": "learn θ to `learn_tol`, then run a method at that θ",
    "Oracle": "a method at the true θ from the first step on, for comparisons",
}
_LEARNERS = {
    "ProjectedGradient": "one projected step along −H(θ)",
    "ExtragradientLearner": "a projected step to look ahead and one from there; for H nearly skew",
    "NewtonLearner": "a Newton step on the natural map of H, or a projected step where that does not help",
    "PrimalDualLearner": "one primal–dual step on a saddle point, for `vv.SaddleLearning`",
    "StochasticGradient": "one projected step along samples of −H(θ), for `vv.SampledLearning`",
}
# A scheme of any method; the order of its steps is the paper's.
_OWN_SOURCE = {"Simultaneous": "dey2026misspecified, Alg. 1"}


def rules_table() -> list[RuleRow]:
    """The schemes and the learners, the default scheme first."""
    rows = [(name, "scheme", words, getattr(schemes, name)) for name, words in _SCHEMES.items()]
    rows += [(name, "learner", words, getattr(learners, name)) for name, words in _LEARNERS.items()]
    return [
        RuleRow(name, kind, words, getattr(rule, "reference", _OWN_SOURCE.get(name, "")))
        for name, kind, words, rule in rows
    ]


def methods_markdown() -> str:
    """The table as Markdown, for the documentation."""
    head = (
        "method",
        "primary problem",
        "nonlinear constraints",
        "misspecified constraints",
        "secondary problem",
        "assumptions",
        "oracle per iteration",
        "rate",
        "reference",
    )
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join((f"`{row.name}`", *row[1:])) + " |" for row in methods_table()]
    return "\n".join(lines)


def _oracle(counts: OracleCounts) -> str:
    words = ((counts.F, "F"), (counts.f, "f"), (counts.pullback, "Jfᵀ"))
    return ", ".join(f"{n} {word}" for n, word in words if n)
