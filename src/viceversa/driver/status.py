"""How a solve ended. Each member's value is the sentence the user reads."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """A status is a theorem or a plain fact; `solved` is only ever issued by the certificate."""

    solved = "Solved: at the returned point every inequality of the core certificate holds to the tolerance asked for."
    solved_estimated_learning = (
        "Solved at the returned θ; the bound on ‖θ − θ*‖ rests on estimated constants of H. "
        "Declare mu and lipschitz of the learning problem to make it a proof."
    )
    max_iterations = (
        "Stopped at the iteration limit before the tolerance was reached. Raise max_iter or relax tol."
    )
    time_limit = "Stopped at the time limit before the tolerance was reached. Raise time_limit or relax tol."
    stalled = "Stopped because the residual no longer decreases, although the tolerance is not reached."
    diverged = "Stopped because the iterates grow without bound. Reduce the step size, or use a method that finds it."
    nonfinite = (
        "Stopped because a value became infinite or NaN. Check that operator and constraints are finite on the whole set, "
        "and reduce the step size."
    )
    infeasible = (
        "Infeasible (proved): no point of the set satisfies the constraints at the learned parameter."
    )
    infeasible_suspected = (
        "Probably infeasible: multipliers grow while the violation does not vanish; not proved."
    )
    interrupted = "Interrupted by the callback or the user; the returned point is the last one reached."

    @property
    def success(self) -> bool:
        """Whether the returned point solves the problem."""
        return self in (Status.solved, Status.solved_estimated_learning)

    def __str__(self) -> str:
        return self.name
