"""OvA-Primal++: a label begins at the unpruned solution of the label most like it.   [Fang et al. 2019], Algorithm 1

label_tree.py finds the parent of every label. Labels next to the root begin at w*(-1), as for OvA-Primal. So does every
label where no row has two labels (multi-class data).

The dual solver has no solution of the parent: there the positives of the parent join the first working set.

Differs from the paper: labels stop by (12), (13), as with every start, not by a rule of their own.
"""

from __future__ import annotations

from longtail.methods.one_vs_all.starts.ova_primal import OvaPrimal


class Tree(OvaPrimal):
    begins_at_parent = True
