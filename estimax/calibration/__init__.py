"""Calibration: probabilities that are the rates which are observed.

    isotonic = ex.calibration.Isotonic(eval_input_fn)
    model.export_saved_model("export", calibration=isotonic)

A calibration is fitted on rows that the model was not trained on, and is the last step
of a bundle: its predictions have `calibrated_probabilities` beside `probabilities`.
Fitting is NumPy in float64 (`fitting.py`), applying is JAX (`fitted.py`).
"""

from estimax.calibration.fitted import FittedCalibration
from estimax.calibration.methods import Isotonic, Platt, Temperature

__all__ = ["FittedCalibration", "Isotonic", "Platt", "Temperature"]
