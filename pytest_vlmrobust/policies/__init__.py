"""Policies: thresholds files to verdicts. A policy is rules, waivers and budgets; judging is pure."""

from __future__ import annotations

from .bound import Bound
from .budgets import Budgets
from .loader import load_policy
from .policy import Policy, PolicyFile
from .rules import Judge, JudgedTest, Multiplicity, OnInconclusive, OnNotApplicable, Rule, Scope, Tier, Treatment, Waiver
from .schema import MetricFacts
from .usage import WaiverState, WaiverUse, unmatched_rules, waiver_report

__all__ = [
    "Bound",
    "Budgets",
    "Judge",
    "JudgedTest",
    "MetricFacts",
    "Multiplicity",
    "OnInconclusive",
    "OnNotApplicable",
    "Policy",
    "PolicyFile",
    "Rule",
    "Scope",
    "Tier",
    "Treatment",
    "Waiver",
    "WaiverState",
    "WaiverUse",
    "load_policy",
    "unmatched_rules",
    "waiver_report",
]
