"""Who is the rival? The search for the class that violates a row's margin most, kept up to date while weights move."""

from longtail.methods.memoir.oracles.base import Oracle
from longtail.methods.memoir.oracles.exact import Exact
from longtail.methods.memoir.oracles.simple_lsh import SimpleLSH
from longtail.methods.memoir.oracles.sw_graph import SWGraph

__all__ = ["Exact", "Oracle", "SWGraph", "SimpleLSH"]
