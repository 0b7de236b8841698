"""A Ray cluster whose nodes differ: other versions are refused before any work, and no shared storage is needed."""

from __future__ import annotations

import os

import pytest

import longtail as lt
from longtail import runs, store
from longtail.errors import RunError
from longtail.parallel import cluster
from tests.runs.problems import KINDS, data

ray = pytest.importorskip("ray")
X, Y = data()


@pytest.fixture(scope="module")
def cluster_of_one():
    """A cluster of one node with two CPUs, and of a second one while `other_node` is used."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    small = {"num_cpus": 2, "object_store_memory": 80 * 1024**2, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args=small)
    try:
        yield found
    finally:
        ray.shutdown()
        found.shutdown()


@pytest.fixture
def other_node(cluster_of_one, tmp_path):
    """A node with another longtail: a folder that comes first in its path."""
    (tmp_path / "other" / "longtail").mkdir(parents=True)
    (tmp_path / "other" / "longtail" / "__init__.py").write_text('__version__ = "99.0"\n', encoding="utf-8")
    more = {"num_cpus": 1, "object_store_memory": 80 * 1024**2}
    node = cluster_of_one.add_node(**more, env_vars={"PYTHONPATH": str(tmp_path / "other")})
    cluster_of_one.wait_for_nodes()
    yield
    cluster_of_one.remove_node(node)


def test_a_node_with_another_version_is_refused_before_any_work(cluster_of_one, other_node, tmp_path):
    with pytest.raises(RunError, match=r"node .* cannot take part: longtail is 99\.0 there and .* here") as caught:
        lt.OneVsAll().fit(X, Y, run=tmp_path / "run", workers=f"ray:{cluster_of_one.address}")
    assert "longtail.runs.identity is not installed there" in str(caught.value)
    assert not list((tmp_path / "run" / "parts").iterdir())
    assert "solved" not in (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("what", [name for name, _ in cluster.VERSIONS])
def test_each_version_counts(what, monkeypatch, tmp_path):
    """Without a cluster: the answers of three nodes, one of which differs."""
    sound = {name: "1.0" for name, _ in cluster.VERSIONS}
    engine = cluster.Cluster(_Recipe(tmp_path), None, None)
    engine.ray = _FakeRay([(sound, True), (sound, False), ({**sound, what: "2.0"}, True)])
    engine.nodes = [{"NodeID": f"{number}" * 55 + "1", "NodeManagerAddress": f"10.0.0.{number}"} for number in range(3)]
    monkeypatch.setattr(cluster, "_make_look", lambda: lambda *_: (sound, True))
    with pytest.raises(RunError, match=rf"node 10\.0\.0\.2/22222222 .*: {what} is 2\.0 there and 1\.0 here"):
        engine._check_nodes()
    engine.ray = _FakeRay([(sound, True), (sound, False), (sound, True)])
    assert engine._check_nodes() is False  # one node does not see the run folder
    engine.ray = _FakeRay([(sound, True)] * 3)
    assert engine._check_nodes() is True
    engine.ray = _FakeRay([(sound, True), TimeoutError("it sleeps"), (sound, True)])
    with pytest.raises(RunError, match=r"node 10\.0\.0\.1/11111111 of the Ray cluster does not answer: it sleeps"):
        engine._check_nodes()


class _Recipe:
    mark = "mark"

    def __init__(self, root):
        self.root = root


class _FakeRay:
    """Just enough of Ray to ask every node one question."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def remote(self, *_, **__):
        return lambda look: self

    def options(self, scheduling_strategy):
        class Asked:
            remote = staticmethod(lambda *_: next(self.answers))

        return Asked

    def get(self, answer, timeout):
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_without_shared_storage_parts_come_back_through_a_bounded_window(cluster_of_one, monkeypatch, tmp_path):
    """Workers that do not see the run folder return their parts, and the driver writes them: at most one per slot."""
    plain = KINDS["one-vs-all"]().fit(X, Y)
    plain.save(tmp_path / "plain")
    look = cluster._make_look()
    monkeypatch.setattr(cluster, "_make_look", lambda: lambda *words: (look(*words)[0], False))
    written, under_way = [], []
    write, submit = runs.Parts.write, cluster.Cluster.submit

    def counted_write(parts, block, arrays, seconds):
        written.append((block, os.getpid()))
        return write(parts, block, arrays, seconds)

    def counted_submit(engine, key, block):
        submit(engine, key, block)
        under_way.append((len(engine.tasks), engine.slots))

    monkeypatch.setattr(runs.Parts, "write", counted_write)
    monkeypatch.setattr(cluster.Cluster, "submit", counted_submit)
    clf = lt.OneVsAll(block_size=4).fit(X, Y, run=tmp_path / "run", workers=f"ray:{cluster_of_one.address}")
    clf.save(tmp_path / "model")
    blocks = sorted(int(path.stem) for path in (tmp_path / "run" / "parts").glob("*.part"))
    assert len(blocks) > 4
    assert sorted(block for block, _ in written) == blocks  # this process wrote each part once
    assert max(count for count, _ in under_way) == 2
    assert {slots for _, slots in under_way} == {2}
    assert clf.predict_topk(X, 5) == plain.predict_topk(X, 5)
    assert store.model_size(tmp_path / "model") > 0


def test_the_threads_of_a_block_share_its_buckets(cluster_of_one, monkeypatch, tmp_path):
    """A model of one block uses both CPUs of the node, and has the same bytes."""
    KINDS["mach"]().set_params(n_jobs=1).fit(X, Y).save(tmp_path / "plain")
    asked, submit = [], cluster.Cluster.submit
    monkeypatch.setattr(
        cluster.Cluster, "submit", lambda engine, *words: (asked.append(engine.cpus), submit(engine, *words))[1]
    )
    KINDS["mach"]().fit(X, Y, workers=f"ray:{cluster_of_one.address}").save(tmp_path / "model")
    assert asked == [2]
    assert store.model_id(tmp_path / "model") == store.model_id(tmp_path / "plain")
