"""OvA-Primal++: a label starts at the unpruned solution of the most similar label.   [Fang et al. 2019], Algorithm 1

label_tree.py finds the parent of every label. Labels next to the root start at w*(-1), as for OvA-Primal. In
multi-class data, where no row has two labels, these are all labels.

The dual solver does not use the solution of the parent. There, the positives of the parent join the first working set.

Labels stop by `tol` and `max_tol`, as with every start. The stopping rule of this paper is tol = 1, max_tol = 1e-4,
which `OneVsAll.paper(start="tree")` sets.
"""

from __future__ import annotations

from longtail.methods.one_vs_all.starts.ova_primal import OvaPrimal


class Tree(OvaPrimal):
    begins_at_parent = True
