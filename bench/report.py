"""What a benchmark reports: ratios of medians over interleaved pairs, into one file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROUNDS = 5
"""Fewest pairs of a ratio that is written down."""

FILE = Path(__file__).resolve().parent.parent / "build" / "bench.json"


@dataclass(frozen=True)
class Target:
    """What a ratio must reach: at least, or at most, a number."""

    number: float
    at_most: bool = False

    def is_met(self, ratio: float) -> bool:
        return ratio <= self.number if self.at_most else ratio >= self.number

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.number:g}"


@dataclass(frozen=True)
class Pairs:
    """Measurements of ours and of the baseline, taken in turn."""

    ours: Sequence[float]
    baseline: Sequence[float]

    @property
    def ratio(self) -> float:
        """The median of the ratios of each pair: what disturbed a pair disturbs both of its sides."""
        return median(ours / base for ours, base in zip(self.ours, self.baseline, strict=True))


def interleaved(
    ours: Callable[[], float], baseline: Callable[[], float], *, rounds: int = ROUNDS
) -> Pairs:
    """Measures both in turn, the first of a pair being the second of the next one."""
    found: list[tuple[float, float]] = []
    for number in range(rounds):
        if number % 2:
            base, own = baseline(), ours()
        else:
            own, base = ours(), baseline()
        found.append((own, base))
    return Pairs([own for own, _ in found], [base for _, base in found])


class Report:
    """Collects the entries of one program and puts them into the file, in place of its earlier ones.

    Args:
        group: Begins the id of each entry.
    """

    def __init__(self, group: str, file: Path = FILE) -> None:
        self._group = group
        self._file = file
        self._entries: list[dict[str, object]] = []
        self.missed = 0

    def add(self, name: str, title: str, pairs: Pairs, unit: str, target: Target | None) -> None:
        """Adds a ratio and prints it.

        Args:
            name: Its id within the group.
            title: What is compared with what.
            pairs: What was measured.
            unit: Unit of the absolute numbers.
            target: What the ratio must reach; None for a number that is only shown.
        """
        met = None if target is None else target.is_met(pairs.ratio)
        self.missed += met is False
        self._entries.append(
            {
                "id": f"{self._group}.{name}",
                "name": title,
                "ratio": round(pairs.ratio, 4),
                "target": str(target) if target else None,
                "met": met,
                "absolute": {"median": round(median(pairs.ours), 4), "unit": unit},
                "baseline_absolute": {"median": round(median(pairs.baseline), 4), "unit": unit},
            }
        )
        verdict = "" if target is None else f", target {target}: {'met' if met else 'NOT MET'}"
        print(
            f"{self._group}.{name}: {title}: {pairs.ratio:.3g} times{verdict} "
            f"({median(pairs.ours):.4g} against {median(pairs.baseline):.4g} {unit})",
            flush=True,
        )

    def write(self) -> None:
        """Writes the file."""
        known = json.loads(self._file.read_text()) if self._file.exists() else []
        prefix = f"{self._group}."
        kept = [entry for entry in known if not entry["id"].startswith(prefix)]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(
            json.dumps([*kept, *self._entries], indent=2, ensure_ascii=False) + "\n"
        )
