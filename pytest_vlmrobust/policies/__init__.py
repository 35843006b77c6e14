"""Policies: thresholds files to verdicts. A policy is rules, waivers and budgets; judging is pure."""

from __future__ import annotations

from .budgets import Budgets, Coverage, Extent, suites_of
from .load import Slip, load_policy, parse_policy, slips
from .policy import Policy, PolicyFile
from .replacement import Replacement
from .rules import (
    NO_LEVEL,
    Bound,
    Judge,
    JudgedTest,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Rule,
    Scope,
    Tier,
    Treatment,
    Waiver,
)
from .schema import MetricFacts
from .usage import (
    Missed,
    Unmet,
    WaiverState,
    WaiverUse,
    idle_summaries,
    idle_summaries_shortfall,
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
    "Judge",
    "JudgedTest",
    "MetricFacts",
    "Missed",
    "Multiplicity",
    "OnInconclusive",
    "OnNotApplicable",
    "Policy",
    "PolicyFile",
    "Replacement",
    "Rule",
    "Scope",
    "Slip",
    "Tier",
    "Treatment",
    "Unmet",
    "Waiver",
    "WaiverState",
    "WaiverUse",
    "idle_summaries",
    "idle_summaries_shortfall",
    "load_policy",
    "parse_policy",
    "slips",
    "suites_of",
    "ungated_data",
    "unmatched_rules",
    "unmet_rules",
    "waiver_report",
]
