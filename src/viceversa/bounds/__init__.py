"""The theorem, evaluated for one problem: what is proved about K iterations, in advance or for one run."""

from viceversa.bounds.evaluate import bounds
from viceversa.bounds.runtime import RuntimeCertificate, runtime_certificate
from viceversa.bounds.theorem import Bounds

__all__ = ["Bounds", "RuntimeCertificate", "bounds", "runtime_certificate"]
