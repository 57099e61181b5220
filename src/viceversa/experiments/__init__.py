"""Experiments: instances × methods × seeds × metrics, one long table, and what is drawn and claimed from it."""

from viceversa.experiments.claims import claims_table
from viceversa.experiments.cournot_experiment import QUICK, Settings, run_experiment
from viceversa.experiments.reproduce import reproduce
from viceversa.experiments.tables import read_table, write_table

__all__ = ["QUICK", "Settings", "claims_table", "read_table", "reproduce", "run_experiment", "write_table"]
