"""What a board shows of every entry: the name of each figure, its unit, and which way is better."""

import math
from dataclasses import dataclass
from typing import Literal

from onco_gym.foundation.intervals import Interval


@dataclass(frozen=True)
class Metric:
    """A figure of an entry.

    Attributes:
        title: head of its column.
        unit: of its values; empty for a plain number.
        better: which way is better; None if neither is.
        digits: after the decimal point.
        about: what it means, in one or two sentences.
        share: whether it is a share, shown in percent.
    """

    title: str
    unit: str
    better: Literal["higher", "lower"] | None
    digits: int
    about: str
    share: bool = False

    @property
    def head(self) -> str:
        """The title with the unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title

    def rounded(self, found: Interval) -> Interval:
        """A figure with the digits that are shown of it."""
        return Interval(*(round(one, self.digits + 2 * self.share) for one in found))

    def text(self, value: float) -> str:
        """A value with the digits of this figure; a dash if it is not known."""
        return f"{(100 if self.share else 1) * value:z,.{self.digits}f}" if math.isfinite(value) else "-"

    def shown(self, found: Interval) -> str:
        """A figure with its interval, such as ``82.1 (79.5 to 84.6)``."""
        return f"{self.text(found.value)} ({self.bounds(found)})" if self.bounds(found) else self.text(found.value)

    def bounds(self, found: Interval) -> str:
        """An interval, such as ``79.5 to 84.6``; empty if it is not known."""
        known = math.isfinite(found.low) and math.isfinite(found.high)
        return f"{self.text(found.low)} to {self.text(found.high)}" if known else ""


METRICS = {
    "score": Metric(
        "Score",
        "",
        "higher",
        1,
        "Mean return: 0 is random play, 100 is the planner, or the guideline where the planner cannot act. The guideline term of "
        "the reward gives the guideline agent some points for being itself.",
    ),
    "gain": Metric(
        "Gain over the guideline", "reward", "higher", 3, "Mean difference in return to the guideline, on the same patients."
    ),
    "qalys": Metric("Outcome", "QALYs", "higher", 2, "Quality-adjusted life years per patient within follow-up."),
    "median_survival": Metric("Median survival", "months", "higher", 1, "Median overall survival, by Kaplan-Meier."),
    "concordance": Metric(
        "Within guideline", "%", None, 0, "Share of decisions that at least one expert of the panel accepts.", share=True
    ),
    "grade3": Metric("Grade 3+", "%", "lower", 0, "Share of patients with a severe toxic event.", share=True),
    "fairness": Metric(
        "Unfairness",
        "millinats",
        "lower",
        1,
        "The largest Jensen-Shannon divergence between decisions for patients and for their twins, who differ in one protected "
        "attribute only as shown to the agent; less chance.",
    ),
    "carbon_kg": Metric("Carbon of care", "kg CO2e", "lower", 0, "Visits, scans, drugs, hospital days and travel, per patient."),
    "computing_ug": Metric(
        "Carbon of computing",
        "µg CO2e",
        "lower",
        2,
        "Estimated from the policy's arithmetic for all decisions on one patient. Training is not included.",
    ),
    "regret": Metric(
        "Regret",
        "weeks",
        "lower",
        1,
        "Quality-adjusted weeks that the best sequence of decisions gains over the agent's, by inverse verification of some of "
        "the patients. The best sequence knows the patient's biology, which no agent does.",
    ),
    "robustness": Metric(
        "Robustness",
        "",
        "higher",
        1,
        "The lowest score among shifted populations: older patients, poorer performance, rare biomarkers, another era, and other "
        "figures for the disease that fit the published trials as well.",
    ),
}
"""Every figure by its name in files of results."""
