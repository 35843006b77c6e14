"""Policies: thresholds files to verdicts. A policy is rules, waivers and budgets; judging is pure."""

from __future__ import annotations

from .budgets import Budgets, Coverage, Extent, suites_of
from .load import MetricFacts, load_policy, parse_policy
from .policy import Policy, PolicyFile, Replacement
from .rules import (
    NO_LEVEL,
    Bound,
    JudgedBy,
    JudgedTest,
    Mode,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Rule,
    Scope,
    Tier,
    Treatment,
    Waiver,
)
from .usage import (
    Missed,
    Misspelling,
    UnmetRule,
    WaiverState,
    WaiverUse,
    idle_summaries,
    idle_summaries_shortfall,
    misspellings,
    ungated_data,
    unmatched_rules,
    unmet_rules,
    waiver_report,
)

__all__ = [
    "NO_LEVEL",
    "Bound",
    "Budgets",
    "Coverage",
    "Extent",
    "JudgedBy",
    "JudgedTest",
    "MetricFacts",
    "Missed",
    "Misspelling",
    "Mode",
    "Multiplicity",
    "OnInconclusive",
    "OnNotApplicable",
    "Policy",
    "PolicyFile",
    "Replacement",
    "Rule",
    "Scope",
    "Tier",
    "Treatment",
    "UnmetRule",
    "Waiver",
    "WaiverState",
    "WaiverUse",
    "idle_summaries",
    "idle_summaries_shortfall",
    "load_policy",
    "misspellings",
    "parse_policy",
    "suites_of",
    "ungated_data",
    "unmatched_rules",
    "unmet_rules",
    "waiver_report",
]
