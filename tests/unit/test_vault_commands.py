"""`silosynth silo audit | budget | requests | approve | deny | adopt`, on the files of a guard that is not running."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import Result
from support.artifacts import ARTIFACT, CONTENT, naming
from support.guards import DELTA, SCHEMA, counts_bytes, ignore_progress, open_ledger, silo_tables, toy_guard
from typer.testing import CliRunner

from silosynth.client.config import load_silo
from silosynth.client.guard.head_file import head_path
from silosynth.common import accounting, shipped
from silosynth.common.errors import ConfigError, ConsentPending, LedgerError, LedgerRolledBack, SilosynthError
from silosynth.common.events import SampledGaussian
from silosynth.common.queries import Mixtures, digest, encode
from silosynth.deploy import vault
from silosynth.deploy.vault_commands import app

QUERY = counts_bytes(8.0)
DIGEST = digest(QUERY).hex()


class Site:
    """A silo's folder, its guard for a moment, and the commands of its people."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write()

    def write(self, epsilon: float = 1.0, **policy: Any) -> None:
        tables = silo_tables(epsilon)
        tables["policy"] |= {"consent": "ask"} | policy
        (self.folder / "silo.toml").write_text(tomli_w.dumps(tables))

    def ask(self, query: bytes = QUERY) -> bytes:
        with closing(open_ledger(self.folder)) as ledger:
            guard = toy_guard(ledger, config=load_silo(self.folder / "silo.toml"))
            return guard.answer(query, ignore_progress).sealed

    def wait(self, query: bytes = QUERY) -> None:
        with pytest.raises(ConsentPending):
            self.ask(query)

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        config = str(self.folder / "silo.toml")
        return CliRunner().invoke(app, [*arguments, "--config", config], input=answer)

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--format", "json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def error(self, *arguments: str) -> SilosynthError:
        error = self.run(*arguments).exception
        assert isinstance(error, SilosynthError)
        return error


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_request_says_through_which_backbone(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    (tmp_path / "small.safetensors").write_bytes(CONTENT)
    naming(monkeypatch, (ARTIFACT,), (ARTIFACT,))
    site.write(backbones=["small"])
    site.wait()
    assert site.json("requests")[0]["backbones"] == ["small"]
    assert "of default through the backbone small: noise multiplier 8;" in site.run("requests").output


def test_approving_a_request(site: Site) -> None:
    site.wait()
    (waiting,) = site.json("requests")
    assert (waiting["digest"], waiting["state"], waiting["mechanism"]) == (DIGEST, "waiting", "class_counts")
    assert waiting["parameters"] == {"noise_multiplier": 8.0}
    assert waiting["epsilon_added"] == waiting["epsilon_alone"] == accounting.epsilon([SampledGaussian(8.0)], DELTA)
    approved = site.json("approve", DIGEST[:8], "--yes")
    assert (approved["state"], approved["expires"]) == ("approved", "")
    site.ask()
    assert site.json("requests")[0]["state"] == "answered"
    act = site.json("audit")["decisions"][-1]
    assert (act["who"], act["digest"]) == (pwd.getpwuid(os.getuid()).pw_name, DIGEST)


def test_an_approval_needs_a_yes(site: Site) -> None:
    site.wait()
    assert site.run("approve", DIGEST, answer="n\n").exit_code == 1
    site.wait()
    done = site.run("approve", DIGEST, "--days", "2", answer="y\n")
    assert done.exit_code == 0
    assert DIGEST in done.stderr
    assert "noise multiplier 8" in done.stderr
    assert "0.4" in done.stderr
    assert site.json("requests")[0]["expires"]
    site.ask()


def test_denying_a_request(site: Site) -> None:
    site.wait()
    assert site.json("deny", DIGEST.upper())["state"] == "denied"
    with pytest.raises(SilosynthError, match="denied"):
        site.ask()
    assert "0 of 1 requests wait" in site.run("requests").stderr


def test_a_request_beyond_the_budget_says_so(site: Site) -> None:
    site.wait()
    site.write(epsilon=0.1)
    assert "which the budget does not allow" in site.run("requests").stderr


@pytest.mark.parametrize(("prefix", "complaint"), [("abc", "too short"), ("0" * 64, "no request begins")])
def test_digests_must_name_one_request(site: Site, prefix: str, complaint: str) -> None:
    site.wait()
    error = site.error("deny", prefix)
    assert isinstance(error, ConfigError)
    assert complaint in str(error)


def test_an_ambiguous_prefix_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.wait()
    site.wait(counts_bytes(9.0))
    monkeypatch.setattr(vault, "_SHORTEST_PREFIX", 0)
    assert "several requests begin" in str(site.error("deny", ""))


def test_audit_prints_what_it_verified(site: Site) -> None:
    site.write(consent="auto")
    site.ask()
    document = site.json("audit")
    assert [entry["query"] for entry in document["entries"]] == [DIGEST]
    event = {"protected": "records", "noise_multiplier": 8.0, "sampling_probability": 1.0, "count": 1}
    assert document["entries"][0]["event"] == event
    text = site.run("audit").stderr
    assert "1 entries and 1 decisions: all verified" in text
    assert not list(site.folder.glob("ledger.db-*"))


def damage(site: Site) -> None:
    path = site.folder / "ledger.db"
    content = bytearray(path.read_bytes())
    place = content.index(digest(QUERY))
    content[place] ^= 1
    path.write_bytes(content)


def lose(site: Site) -> None:
    (site.folder / "ledger.db").unlink()
    head_path(site.folder / "ledger.db").unlink()


def roll_back(site: Site) -> None:
    older = (site.folder / "ledger.db").read_bytes()
    site.ask(counts_bytes(12.0))
    (site.folder / "ledger.db").write_bytes(older)


@pytest.mark.parametrize(
    ("accident", "kind"), [(damage, LedgerError), (lose, LedgerError), (roll_back, LedgerRolledBack)]
)
def test_audit_of_a_bad_ledger_fails(site: Site, accident: Callable[[Site], None], kind: type[SilosynthError]) -> None:
    site.write(consent="auto")
    site.ask()
    accident(site)
    assert type(site.error("audit")) is kind


def test_audit_while_the_guard_runs(site: Site) -> None:
    site.write(consent="auto")
    with closing(open_ledger(site.folder)) as ledger:
        guard = toy_guard(ledger, config=load_silo(site.folder / "silo.toml"))
        guard.answer(QUERY, ignore_progress)
        assert len(site.json("audit")["entries"]) == 1
        guard.answer(counts_bytes(12.0), ignore_progress)
        assert len(site.json("audit")["entries"]) == 2


def test_audit_of_a_ledger_without_its_head_file(site: Site) -> None:
    site.write(consent="auto")
    site.ask()
    head_path(site.folder / "ledger.db").unlink()
    assert len(site.json("audit")["entries"]) == 1


def test_nothing_to_see_before_the_first_start(site: Site) -> None:
    assert "no key yet" in str(site.error("audit"))
    assert [path.name for path in site.folder.iterdir()] == ["silo.toml"]


def test_budget_says_what_one_more_release_costs(site: Site) -> None:
    site.write(consent="auto", mechanisms=["class_counts", "mixtures"], max_epsilon_per_period=0.9)
    site.ask()
    document = site.json("budget")
    assert document["epsilon_spent"] == accounting.epsilon([SampledGaussian(8.0)], DELTA)
    assert document["epsilon_remaining"] == 1.0 - document["epsilon_spent"]
    assert document["period"] == {"days": 30, "epsilon_limit": 0.9, "epsilon_spent": document["epsilon_spent"]}
    kinds = {(row["mechanism"], row["of"]) for row in document["one_more_release"]}
    assert len(kinds) == 3
    row = document["one_more_release"][1]
    after = accounting.epsilon([SampledGaussian(8.0), SampledGaussian(5.0)], DELTA)
    assert (row["noise_multiplier"], row["epsilon_after"], row["fits"]) == (5.0, after, after <= 1.0)
    text = site.run("budget").stderr
    assert "last 30 days" in text
    assert "one more release would cost" in text


def test_requests_of_sampled_mechanisms_are_told_in_words(site: Site) -> None:
    query = Mixtures(
        schema=SCHEMA,
        noise_multiplier=20.0,
        mixtures=3,
        sampling_probability=0.1,
        center=0.0,
        clip=1.0,
        count_weight=1.0,
    )
    site.wait(encode(query))
    assert "mixtures 3, sampling probability 0.1" in site.run("requests").stderr


def test_loosening_is_an_act(site: Site) -> None:
    site.write(consent="auto")
    site.ask()
    assert "nothing to adopt" in site.run("adopt").stderr
    site.write(consent="auto", epsilon=5.0, max_epsilon_per_query=1.0)
    assert site.json("budget")["epsilon_total"] == 1.0
    assert site.run("adopt", answer="n\n").exit_code == 1
    assert site.json("budget")["epsilon_total"] == 1.0
    document = site.json("adopt", "--yes")
    assert document["looser"] == ["budget.epsilon: 1.0 -> 5.0"]
    assert document["stricter"] == ["policy.max_epsilon_per_query: no limit -> 1.0"]
    assert site.json("budget")["epsilon_total"] == 5.0
    assert site.json("audit")["decisions"][-1]["verdict"] == "adopted"


def test_lost_terms_are_stated_anew(site: Site) -> None:
    site.write(consent="auto")
    site.ask()
    (site.folder / "ledger.db.decisions").unlink()
    with pytest.raises(LedgerError, match="silosynth silo adopt"):
        site.ask()
    assert "are missing" in site.run("adopt", answer="y\n").stderr
    site.ask()


def test_adopting_before_the_first_release_is_not_needed(site: Site) -> None:
    open_ledger(site.folder).close()
    assert site.json("adopt") == {"dataset": "default", "looser": [], "stricter": []}


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert vault.operating_user() == f"uid {os.getuid()}"
