"""Certificates: what can be proved about a point, from the problem and the point alone."""

from viceversa.certificates.kkt import Certificate, certify

__all__ = ["Certificate", "certify"]
