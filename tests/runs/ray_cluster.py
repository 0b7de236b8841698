"""A Ray cluster of three nodes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def three_nodes() -> Iterator[Any]:
    """Three nodes with one CPU each, and no driver yet."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 * 1024**2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=80 * 1024**2)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
