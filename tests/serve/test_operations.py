"""What operators do to a service: replace models, kill workers, stop it, overload it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from longtail import store
from tests.serve.service import Running, post, save, text_model

SWAPS = 50


def metric(service: Running, name: str) -> float:
    lines = service.ask("/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def workers(service: Running) -> list[int]:
    """The processes of the workers."""
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text(encoding="ascii")
    return [int(pid) for pid in children.split()]


def until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Load:
    """Clients that ask without pause, and note what they are told."""

    def __init__(self, service: Running, clients: int, expected: dict[str, float]) -> None:
        self.service, self.expected = service, expected
        self.stopped = threading.Event()
        self.faults: list[str] = []
        self.versions: dict[str, int] = {}
        self.threads = [threading.Thread(target=self._run) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        connection = None
        while not self.stopped.is_set():
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=20)
                connection.request(
                    "POST",
                    "/v1/models/model/predict",
                    b'{"texts": ["cough", "cough"], "top_k": 1}',
                    {"Content-Type": "application/json"},
                )
                answer = connection.getresponse()
                body = json.loads(answer.read())
                if answer.status != 200:
                    self.faults.append(f"{answer.status} {body}")
                    continue
                scores = [each["scores"][0] for each in body["predictions"]]
                if scores != [self.expected[body["version"]]] * 2:
                    self.faults.append(f"{body['version']} answered {scores}")
                self.versions[body["version"]] = self.versions.get(body["version"], 0) + 1
                if answer.will_close:
                    connection.close()
                    connection = None
            except Exception as error:
                self.faults.append(repr(error))
                connection = None
            time.sleep(0.005)
        if connection is not None:
            connection.close()

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def test_models_are_replaced_under_load_without_a_failed_request(tmp_path):
    """Fifty models one after another, every fifth damaged: no request fails, and each answer is of one model."""
    folder = save(tmp_path / "model", text_model(1.0))
    expected = {store.model_id(folder): 0.5}
    prepared = []
    for i in range(5):
        made = save(tmp_path / f"model{i}", text_model(2.0 + i))
        expected[store.model_id(made)] = 1.0 + 0.5 * i
        prepared.append(text_model(2.0 + i))
    service = Running(str(folder), "--workers", "2", "--no-access-log")
    load = Load(service, 4, expected)
    try:
        for swap in range(SWAPS):
            if swap % 5 == 4:
                damage(folder)
                assert until(lambda: "checksum is wrong" in str(service.ask("/ready").json["reload_error"]), 30)
            else:
                save(folder, prepared[swap % 5])
                version = store.model_id(folder)
                assert until(lambda: service.ask("/ready").json["models"]["model"] == version, 30)  # noqa: B023
                assert until(lambda: service.ask("/ready").json["reload_error"] is None, 30)
    finally:
        load.stop()
        log = list(service.lines)
        code = service.stop()
    assert load.faults == []
    assert len(load.versions) >= 5
    assert sum(load.versions.values()) > 100
    assert code == 0
    assert sum("is refused, the old one stays in use" in line for line in log) >= SWAPS // 5


def damage(folder: Path) -> None:
    """Change a byte of the weights, and make the manifest look new."""
    path = next(folder.glob("W_data-*.npy"))
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    os.utime(folder / "model.json")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = save(tmp_path_factory.mktemp("running") / "model", text_model())
    service = Running(str(folder), "--workers", "2")
    yield service
    service.stop()


def test_a_killed_worker_is_seen_at_once_and_comes_back(running):
    assert running.ask("/ready").status == 200
    before, restarts = workers(running), metric(running, "longtail_worker_restarts_total")
    assert len(before) == 2
    os.kill(before[0], signal.SIGSTOP)  # hangs: its heart stops beating
    try:
        assert until(lambda: any_ready(running) == 503, 2.5)
    finally:
        os.kill(before[0], signal.SIGKILL)
    begin = time.monotonic()
    assert until(lambda: any_ready(running) == 200, 10)
    assert time.monotonic() - begin < 5
    after = workers(running)
    assert len(after) == 2
    assert set(after) != set(before)
    assert metric(running, "longtail_worker_restarts_total") == restarts + 1
    assert running.ask("/v1/models/model/predict", {"texts": "cough"}).status == 200
    running.wait_for(f"worker {before[0]} died \\(signal 9\\); starting another")


def any_ready(service: Running) -> int:
    """The status of /ready; a request that reached the stopped worker counts for nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=0.3)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_others_go_on_while_a_worker_dies(running):
    wrong = []
    for i in range(60):
        if i == 20:
            os.kill(workers(running)[1], signal.SIGKILL)
        try:
            if running.ask("/v1/models/model/predict", {"texts": "cough"}).status != 200:
                wrong.append(i)
        except (OSError, http.client.HTTPException):
            wrong.append(i)
    assert len(wrong) <= 1  # what the killed worker was answering
    assert until(lambda: any_ready(running) == 200)


def test_sighup_reads_the_models_again(running):
    before, reloads = workers(running), metric(running, 'longtail_reloads_total{result="done"}')
    running.process.send_signal(signal.SIGHUP)
    assert until(lambda: metric(running, 'longtail_reloads_total{result="done"}') == reloads + 1, 30)
    assert until(lambda: not set(workers(running)) & set(before), 20)
    assert running.ask("/ready").status == 200


def test_a_folder_that_disappears_changes_nothing(tmp_path):
    folder = save(tmp_path / "model", text_model())
    service = Running(str(folder), "--workers", "1")
    folder.rename(tmp_path / "elsewhere")
    time.sleep(0.6)
    assert service.ask("/v1/models/model/predict", {"texts": "cough"}).status == 200
    save(folder, text_model(3.0))
    version = store.model_id(folder)
    assert until(lambda: service.ask("/ready").json["models"]["model"] == version, 30)
    assert service.stop() == 0


def test_sigterm_finishes_what_is_under_way(tmp_path):
    folder = save(tmp_path / "model", text_model())
    service = Running(str(folder), "--workers", "1")
    body = b'{"texts": "cough", "top_k": 1}'
    with service.wire() as busy, service.wire() as idle:
        idle.send(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.answer().status == 200
        busy.send(post("/v1/models/model/predict", body[:9], length=str(len(body))))
        time.sleep(0.3)
        begin = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        assert idle.closed(5)
        busy.send(body[9:])
        answer = busy.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert service.process.wait(30) == 0
    assert time.monotonic() - begin < 30
    with pytest.raises(ConnectionRefusedError):
        service.ask("/live")
    service.stop()


def test_a_token_is_demanded(folders, tmp_path):
    token = "0123456789abcdef0123456789abcdef"
    (tmp_path / "tokens").write_text(f"{token}\nanother-token-of-sixteen\n")
    service = Running(str(folders / "texts"), "--workers", "1", "--token-file", str(tmp_path / "tokens"))
    try:
        body = {"texts": "cough"}
        for given in (None, "", "Bearer", f"Bearer {token[:-1]}", f"Bearer {token}x", f"Basic {token}", token):
            headers = {} if given is None else {"Authorization": given}
            answer = service.ask("/v1/models/texts/predict", body, headers=headers)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        for path in ("/v1/models", "/v1/models/nobody", "/metrics", "/openapi.json", "/nothing", "/v2/models/texts"):
            assert service.ask(path).status == 401, path
        for path in ("/live", "/ready", "/v2/health/live", "/", "/docs", "/static/app.js"):
            assert service.ask(path).status == 200, path
        for good in (token, "another-token-of-sixteen"):
            headers = {"Authorization": f"Bearer {good}"}
            assert service.ask("/v1/models/texts/predict", body, headers=headers).status == 200
    finally:
        service.stop()
    assert not any(token in line for line in service.lines)


def test_the_log_has_no_bodies(running):
    running.ask("/v1/models/model/predict?key=secretquery", {"texts": "secretbody"})
    running.wait_for(r"^\d{4}-\d\d-\d\dT[\d:]+Z 127\.0\.0\.1 POST /v1/models/model/predict 200 \d+ [\d.]+ms$")
    assert not any("secret" in line for line in running.lines)


def test_overload_is_refused_at_once(tmp_path):
    """Far more clients than places in the queue: some are answered, the others are told to come later, quickly."""
    folder = save(tmp_path / "model", text_model())
    service = Running(str(folder), "--workers", "1", "--max-queue", "4", "--no-access-log")
    slow = {"texts": ["cough " * 2000] * 100, "top_k": 4}
    raw = post("/v1/models/model/predict", json.dumps(slow).encode())
    counts: dict[int, int] = {}
    lock = threading.Lock()
    refusals: list[float] = []
    stop = time.monotonic() + 4

    def client() -> None:
        while time.monotonic() < stop:
            with service.wire() as wire:
                begin = time.monotonic()
                wire.send(raw)
                answer = wire.answer()
                with lock:
                    counts[answer.status] = counts.get(answer.status, 0) + 1
                    if answer.status == 503:
                        assert answer.headers["retry-after"] == "1"
                        refusals.append(time.monotonic() - begin)

    threads = [threading.Thread(target=client) for _ in range(24)]
    for thread in threads:
        thread.start()
    lives = []
    while time.monotonic() < stop:
        begin = time.monotonic()
        assert service.ask("/live").status == 200
        lives.append(time.monotonic() - begin)
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert set(counts) == {200, 503}
    assert counts[200] >= 4
    assert sorted(lives)[len(lives) // 2] < 0.5
    begin = time.monotonic()
    assert service.ask("/v1/models/model/predict", {"texts": "cough"}).status == 200
    assert time.monotonic() - begin < 5
    assert metric(service, "longtail_rejected_total") >= counts[503]
    assert service.stop() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: does not exist; a model is a folder with a model.json"),
        (["a b=x"], "'a b' cannot be the name of a model"),
        (["x", "y/x"], "two models are called 'x'"),
        (["x", "--max-rows", "0"], "the limit max_rows must be a number above 0; got 0"),
        (["x", "--token-file", "missing"], "missing: No such file or directory"),
    ],
)
def test_bad_commands(words, message, tmp_path, monkeypatch, capsys):
    from longtail.cli import app

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        app(["serve", *words, "--port", "0"], prog_name="longtail")
    assert end.value.code == 1
    assert f"Error: {message}" in capsys.readouterr().err


def test_short_tokens_are_refused(tmp_path, monkeypatch, capsys):
    from longtail.cli import app

    monkeypatch.setenv("LONGTAIL_TOKEN", "short")
    with pytest.raises(SystemExit):
        app(["serve", "x"], prog_name="longtail")
    assert "a token must have 16 to 512" in capsys.readouterr().err


def test_workers_end_when_the_master_is_killed(tmp_path):
    """SIGKILL of the master: nobody would restart the workers, so they end, and a new service can take the port."""
    folder = save(tmp_path / "model", text_model())
    service = Running(str(folder), "--workers", "2")
    left = workers(service)
    service.stop(signal.SIGKILL)
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), 20)
    begin = time.monotonic()
    again = Running(str(folder), "--workers", "1")
    assert again.ask("/v1/models/model/predict", {"texts": "cough"}).status == 200
    assert time.monotonic() - begin < 60
    assert again.stop() == 0
