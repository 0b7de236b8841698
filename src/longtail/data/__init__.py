"""Reading data files of every known format, the Dataset class, and features of texts."""

from longtail.data.dataset import Dataset, Summary
from longtail.data.read import read
from longtail.data.text_features import TextFeatures

__all__ = ["Dataset", "Summary", "TextFeatures", "read"]
