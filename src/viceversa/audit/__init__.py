"""May the theory be used here, and what is proved about this point? Answers for one problem, with the numbers."""

from viceversa.audit.assumptions import audit
from viceversa.audit.explain import Explanation, explain
from viceversa.audit.report import Audit, Item

__all__ = ["Audit", "Explanation", "Item", "audit", "explain"]
