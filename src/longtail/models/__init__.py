"""Fitted models: what prediction, saving and explaining need. They know nothing of how they were trained."""

from longtail.models.linear import Explanation, LinearModel, row_squares, unit_rows

__all__ = ["Explanation", "LinearModel", "row_squares", "unit_rows"]
