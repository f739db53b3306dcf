"""Backends with one defect each: a kit that none of them fails would prove nothing."""

from tests.testing.defects import cancellation, lifecycle, names, reads, writes
from tests.testing.defects.registry import DEFECTS

__all__ = ["DEFECTS", "cancellation", "lifecycle", "names", "reads", "writes"]
