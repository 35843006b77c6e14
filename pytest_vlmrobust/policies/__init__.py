"""Policies: thresholds files to verdicts. A policy is rules, waivers and budgets; judging is pure."""

from __future__ import annotations

from .budgets import BlindModels, Budgets, Condition, Coverage, Extent, suites_of
from .load import MetricFacts, load_policy, parse_policy
from .policy import BUDGET_CELLS, BUDGET_DATASETS, Policy, PolicyFile, Replacement
from .rules import (
    NO_LEVEL,
    Bound,
    JudgedBy,
    MetricKey,
    Mode,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Purpose,
    Rule,
    Scope,
    Tier,
    Treatment,
    Waiver,
    intended_name,
    misspellings,
)

__all__ = [
    "BUDGET_CELLS",
    "BUDGET_DATASETS",
    "NO_LEVEL",
    "BlindModels",
    "Bound",
    "Budgets",
    "Condition",
    "Coverage",
    "Extent",
    "JudgedBy",
    "MetricFacts",
    "MetricKey",
    "Mode",
    "Multiplicity",
    "OnInconclusive",
    "OnNotApplicable",
    "Policy",
    "PolicyFile",
    "Purpose",
    "Replacement",
    "Rule",
    "Scope",
    "Tier",
    "Treatment",
    "Waiver",
    "intended_name",
    "load_policy",
    "misspellings",
    "parse_policy",
    "suites_of",
]
