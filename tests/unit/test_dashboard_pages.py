"""The dashboard's addresses, asked without a browser."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.published import Server
from support.shown_server import ShownServer, attack_report

from silosynth.common.publication import verify_release
from silosynth.common.publication.names import ReleaseName
from silosynth.deploy.server_folder import write_toml
from silosynth.server.attacks.report import AttackReport
from silosynth.server.dashboard.app import create_app
from silosynth.server.dashboard.sources import Sources
from silosynth.server.recipes import RECIPES
from silosynth.server.releases.tokens import DASHBOARD_TOKENS_FOLDER, Tokens
from silosynth.server.witness import Witness

PAGES = ("federation", "budget", "runs", "releases", "evaluation", "evidence", "audit")
DEEPER = ("runs/1", "runs/3", "releases/biopsies/1", "compare", "evaluation?release=biopsies/1")
HTML = {"Accept": "text/html"}


def client_of(folder: Path, tokens: Tokens | None = None) -> TestClient:
    scheme = "http" if tokens is None else "https"
    return TestClient(create_app(Sources(folder), tokens), base_url=f"{scheme}://127.0.0.1", follow_redirects=False)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> ShownServer:
    shown = ShownServer(tmp_path_factory.mktemp("shown") / "server")
    shown.run("ldpdc", 0.8)
    shown.run("sps", 0.9)
    shown.failed()
    shown.unfinished()
    shown.server.store.withdraw(ReleaseName("biopsies", 2), "mislabelled <records>")
    shown.evidence("ldpdc/attacks.json", attack_report())
    return shown


@pytest.fixture
def client(shown: ShownServer) -> Iterator[TestClient]:
    with client_of(shown.folder) as client:
        yield client


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    server = Server(tmp_path / "server")
    write_toml(server.folder / "server.toml", server.config())
    return server.folder


@pytest.mark.parametrize("page", [*PAGES, *DEEPER])
def test_every_page_and_its_twin(client: TestClient, page: str) -> None:
    answer = client.get(f"/{page}", headers=HTML)
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "style=" not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    path, _, query = page.partition("?")
    twin = client.get(f"/{path}.json?{query}").json()
    assert twin["tags"]
    assert set(twin["tags"].values()) <= {"dp", "public", "post-processing"}


@pytest.mark.parametrize("page", PAGES)
def test_a_server_without_a_history_is_shown_too(empty: Path, page: str) -> None:
    with client_of(empty) as client:
        assert client.get(f"/{page}", headers=HTML).status_code == 200
        assert client.get(f"/{page}.json").status_code == 200


def test_the_federation_page_tells_who_what_and_when(client: TestClient) -> None:
    data = client.get("/federation.json").json()["data"]
    assert [silo["name"] for silo in data["silos"]] == ["charite", "mayo", "st-mary"]
    assert data["silos"][0]["entries"] == 2
    assert data["silos"][1]["waits_for"] == "ab" * 32
    assert [run["number"] for run in data["live"]] == [4]
    assert data["headline"]["release"] == "biopsies/1"  # the newer one was withdrawn
    assert "Round 1" in " ".join(line["words"] for line in data["feed"])


def test_budgets_are_what_silos_declare_and_receipts_prove(client: TestClient) -> None:
    while any(silo["proven"] is None for silo in client.get("/budget.json").json()["data"]["silos"]):
        pass  # being computed: each asking waits a moment
    data = client.get("/budget.json").json()["data"]
    first, second, third = data["silos"]
    assert first["spent"] == pytest.approx(first["proven"] + 2.0)  # the run under way has paid 2 of its 4
    assert (first["reserved"], second["reserved"]) == (pytest.approx(2.0), 4.0)
    assert third["proven"] == pytest.approx(third["spent"], rel=1e-6)
    assert third["remaining"] == pytest.approx(third["total"] - third["spent"])
    assert data["burn_down"]["x_names"] == ["before", "biopsies/1", "biopsies/2"]
    left = data["burn_down"]["series"][0]["y"]
    assert left[0] == 20.0
    assert left == sorted(left, reverse=True)


def test_a_plan_is_made_on_the_page_and_garbage_is_told(client: TestClient) -> None:
    form = {"recipe": "prototypes", "epsilon": "2", "delta": "1e-5", "silos": "3", "records": "1000", "classes": "10"}
    plan = client.get("/budget.json", params={**form, "shape": "8x8x1"}).json()["data"]["plan"]
    assert plan["epsilon"] == pytest.approx(2.0, abs=0.01)
    assert plan["verdict"] == "enough data"
    for change in ({"epsilon": "nan"}, {"shape": "8x"}, {"recipe": "witchcraft"}, {"silos": "-3"}, {"shape": "9" * 9}):
        answer = client.get("/budget", params={**form, "shape": "8x8x1", **change}, headers=HTML)
        assert answer.status_code == 200
        assert 'role="alert"' in answer.text
    assert client.get("/budget.json").json()["data"]["form"]["recipes"] == sorted(RECIPES)


def test_a_run_is_told_in_phases_parts_and_a_curve(client: TestClient) -> None:
    data = client.get("/runs/1.json").json()["data"]
    names = [phase["name"] for phase in data["phases"]]
    assert names == [
        "Gathering silos",
        "Planning",
        "Round 1: mixtures",
        "Synthesizing",
        "Evaluating",
        "Writing and signing",
    ]
    assert data["silos"][0]["bytes"] == 1_066_000
    assert data["silos"][2]["within_seconds"] == 16  # 15 s, rounded up to a power of two
    assert len(data["loss"]["series"][0]["y"]) == 12
    failed = client.get("/runs/3.json").json()["data"]["run"]
    assert (failed["state"], "remaining" in failed["message"]) == ("failed", True)
    assert client.get("/runs/4/forming.png").headers["content-type"] == "image/png"
    assert client.get("/runs/1/forming.png").status_code == 404


def test_a_release_is_downloaded_whole_and_verifies(client: TestClient, shown: ShownServer, tmp_path: Path) -> None:
    answer = client.get("/releases/biopsies/1/download")
    assert "biopsies-1.zip" in answer.headers["content-disposition"]
    zipfile.ZipFile(io.BytesIO(answer.content)).extractall(tmp_path)
    verify_release(tmp_path / "biopsies-1", shown.server.publisher_key)
    assert client.get("/releases/biopsies/1/picture.png").content.startswith(b"\x89PNG")


def test_a_withdrawn_release_is_shown_with_the_reason_and_not_handed_out(client: TestClient) -> None:
    answer = client.get("/releases/biopsies/2/download")
    assert answer.status_code == 410
    assert "mislabelled" in answer.json()["error"]
    page = client.get("/releases/biopsies/2", headers=HTML).text
    assert "mislabelled &lt;records&gt;" in page
    assert "/download" not in page


def test_a_forged_manifest_is_told(shown: ShownServer, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    shutil.copytree(shown.folder, folder)
    manifest = folder / "store/releases/biopsies/1/manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"seed": 0', b'"seed": 1'))
    with client_of(folder) as client:
        data = client.get("/releases/biopsies/1.json").json()["data"]
    assert not data["card"]["genuine"]
    assert "was changed" in data["card"]["signature"]
    assert [check["holds"] for check in data["checks"]] == [False, True, True]


def test_a_damaged_store_is_told(shown: ShownServer, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    shutil.copytree(shown.folder, folder)
    shutil.rmtree(folder / "store/objects")
    with client_of(folder) as client:
        answer = client.get("/releases/biopsies/1", headers=HTML)
        assert client.get("/federation", headers=HTML).status_code == 200
    assert answer.status_code == 500
    assert "cannot be read" in answer.text


def test_evidence_stands_beside_the_claim(client: TestClient) -> None:
    AttackReport.model_validate(attack_report())  # what is shown here is what attacks write
    (report,) = client.get("/evidence.json").json()["data"]["reports"]
    assert (report["claimed"], report["lower"], report["flagged"]) == (4.0, 0.31, False)
    assert [rate["at"] for rate in report["attacks"][0]["rates"]] == ["0.1 %", "1 %"]
    assert report["audits"][0]["power"] == 0.95


@pytest.mark.parametrize("garbage", ["", "[]", "{", '{"attacked": 3}', "[" * 10_000])
def test_reports_of_garbage_are_told_not_shown(empty: Path, garbage: str) -> None:
    (empty / "evidence").mkdir()
    for name in ("attacks.json", "evaluation.json"):
        (empty / "evidence" / name).write_text(garbage)
    with client_of(empty) as client:
        assert client.get("/evidence.json").json()["data"]["unreadable"] == ["evidence/attacks.json"]
        for page in ("evidence", "evaluation"):
            assert client.get(f"/{page}", headers=HTML).status_code == 200


def test_an_evaluation_of_another_version_does_no_harm(shown: ShownServer, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    shutil.copytree(shown.folder, folder)
    (folder / "evidence/evaluation.json").write_text('{"release": "biopsies/1", "accuracy_by_class": [0.5]}')
    with client_of(folder) as client:
        answer = client.get("/evaluation?release=biopsies/1", headers=HTML)
    assert answer.status_code == 200
    assert "no evaluation that can be shown" in answer.text


def test_the_audit_links_every_entry_and_its_export_is_signed(client: TestClient) -> None:
    data = client.get("/audit.json").json()["data"]
    assert [head["words"] for head in data["heads"]] == ["entries shown here: 2, all signed and linked"] * 3
    newest = data["entries"][0]
    assert newest["previous"] == data["entries"][1]["hash"]
    assert newest["releases"] == ["biopsies/2"]
    export = json.loads(client.get("/audit/export").content)
    assert len(export["receipts"]) == 6
    assert len(export["heads"]) == 3


def test_a_ledger_with_two_histories_is_told(tmp_path: Path) -> None:
    shown = ShownServer(tmp_path / "server")
    shown.run("ldpdc", 0.8)
    (shown.folder / "witness.db").unlink()  # or the witness would not let it happen
    Witness(shown.folder / "witness.db")
    shown.forget("mayo")
    shown.run("sps", 0.9)
    with client_of(shown.folder) as client:
        heads = {head["silo"]: head for head in client.get("/audit.json").json()["data"]["heads"]}
    assert heads["charite"]["sound"]
    assert not heads["mayo"]["sound"]
    assert "two histories" in heads["mayo"]["words"]


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/runs/99", "/runs/99.json", "/releases/no/1", "/releases/biopsies/9/download", "/releases/..%2f/1",
     "/static/../app.py", "/evaluation?release=no/1"],
)  # fmt: skip
def test_what_is_not_there_is_told_in_words(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(client: TestClient, method: str) -> None:
    for page in PAGES:
        assert client.request(method, f"/{page}").status_code == 405


def test_looking_writes_nothing(shown: ShownServer) -> None:
    def content() -> dict[str, str]:
        files = (path for path in shown.folder.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = content()
    with client_of(shown.folder) as client:
        for page in PAGES:
            client.get(f"/{page}")
    assert content() == before


def test_a_foreign_name_for_this_machine_is_turned_away(client: TestClient) -> None:
    assert client.get("/federation.json", headers={"Host": "evil.example"}).status_code == 401


def test_from_elsewhere_only_with_a_token(shown: ShownServer) -> None:
    tokens = Tokens(shown.folder, DASHBOARD_TOKENS_FOLDER)
    token = tokens.grant("officer")
    consumer = Tokens(shown.folder).grant("a-consumer-of-datasets")
    with client_of(shown.folder, tokens) as client:
        for path in (*PAGES, "events", "audit/export", "releases/biopsies/1/download"):
            assert client.get(f"/{path}").status_code == 401
        assert client.get("/federation", headers=HTML).headers["location"] == "/login"
        assert client.get("/login", headers=HTML).status_code == 200
        for wrong in ("", "guess", consumer, "x" * 10_000):
            assert client.post("/login", data={"token": wrong}).status_code == 403
        assert client.get("/runs.json", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        cookie = client.post("/login", data={"token": token}).headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "Secure", "SameSite=strict"))
        assert token not in cookie
        assert client.get("/federation", headers=HTML).status_code == 200
        tokens.revoke("officer")
        assert client.get("/federation.json").status_code == 401
    Tokens(shown.folder).revoke("a-consumer-of-datasets")


def test_logging_out_ends_the_session(shown: ShownServer) -> None:
    tokens = Tokens(shown.folder, DASHBOARD_TOKENS_FOLDER)
    with client_of(shown.folder, tokens) as client:
        client.post("/login", data={"token": tokens.grant("guest")})
        session = client.cookies["silosynth-session"]
        assert client.get("/runs.json").status_code == 200
        client.post("/logout")
        client.cookies.set("silosynth-session", session)
        assert client.get("/runs.json").status_code == 401
    tokens.revoke("guest")


def test_a_release_evaluated_anew_keeps_what_only_the_run_knew(shown: ShownServer, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    shutil.copytree(shown.folder, folder)
    sources = Sources(folder)
    released = sources.evaluations(sources.published())["biopsies/1"].document
    anew = {**released, "release": "biopsies/1", "accuracy": 0.85, "ceiling": None, "baselines": {}}
    (folder / "evidence/evaluation.json").write_text(json.dumps(anew))
    with client_of(folder) as client:
        detail = client.get("/evaluation.json?release=biopsies/1").json()["data"]["detail"]
    assert detail["measured_anew"] == "evidence/evaluation.json"
    rungs = {rung["kind"]: rung["accuracy"] for rung in detail["rungs"]}
    assert (rungs["this"], rungs["ceiling"]) == (0.85, 0.97)
    assert any("prototypes" in rung["words"] for rung in detail["rungs"])
