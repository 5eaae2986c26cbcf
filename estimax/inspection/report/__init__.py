"""Reports: one HTML file about a trained model, with figures, that needs no network.

Read `write.py` first; `sections.py` has what is shown for each kind of task.
"""

from estimax.inspection.report.write import RunFacts, write_report

__all__ = ["RunFacts", "write_report"]
