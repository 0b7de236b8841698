"""Fits calibrators and chooses thresholds on held-out rows. `longtail.models` applies them."""

from longtail.calibration.fitting import calibrated, fit_calibrator, rising
from longtail.calibration.held_out import HeldOut
from longtail.calibration.mixing import Joint, fit_mixture
from longtail.calibration.scale import N_WRONG, Scale, wrong_margins
from longtail.calibration.targets import TARGETS, choose

__all__ = [
    "N_WRONG",
    "TARGETS",
    "HeldOut",
    "Joint",
    "Scale",
    "calibrated",
    "choose",
    "fit_calibrator",
    "fit_mixture",
    "rising",
    "wrong_margins",
]
