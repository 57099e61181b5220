"""How a solve ended. Each member's value is the sentence the user reads."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """A status is a theorem or a plain fact; `solved` is only ever issued by the certificate.

    It equals its own word: `solution.status == "solved"`.
    """

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
    diverged = (
        "Stopped because the iterates grow without bound. The problem may have no solution, where F pushes x to infinity: "
        "bound the set. If you named a step size, reduce it."
    )
    nonfinite = (
        "Stopped because operator or constraints, or a derivative of them, became infinite or NaN on the way. Pass x0= "
        "inside the set where both are finite and differentiable, and bound the set to where they are. "
        "If you named a step size, reduce it."
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
        return self is Status.solved or self is Status.solved_estimated_learning

    @property
    def broke_down(self) -> bool:
        """Whether the run came to an end where nothing can be gone on from."""
        return self is Status.stalled or self is Status.nonfinite or self is Status.diverged

    def __str__(self) -> str:
        return self.name

    # An enum of words would have them as values, where the sentences are.
    def __eq__(self, other: object) -> bool:
        return self.name == other if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.name)
