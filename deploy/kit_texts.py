"""The texts of a kit: what the people who run a silo, a server or the authority read and fill in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from silosynth.common.queries import Query
from silosynth.common.shipped import shipped_backbones

_TEMPLATES = Path(__file__).parent
_DATA = """\
[data]
# FILL IN where the records are, and say what is publicly known of them. The guard alone reads them.
# path = "/path/to/records"        # .npz, .csv, IDX or CIFAR files, or a folder of images with a subfolder per class
# classes = 10                     # declared, never counted: counting labels would be a question to private records
"""
_BUDGET = """\
[budget]
# FILL IN what all answers about these records together, for ever, may cost. Without it the guard does not start.
# epsilon = 8.0
# delta = 1e-5                     # well below 1 / (number of records)
"""
_POLICY = """\
[policy]
consent = "deny"                   # nothing leaves. "auto" answers what the lines below and the budget allow;
                                   # "ask" keeps each such query waiting for `silosynth silo approve`
# mechanisms = {mechanisms}
backbones = {backbones}  # public networks that records may pass through: those that come with
                                   # silosynth; any other is added by the SHA-256 digest of its file
# max_epsilon_per_query = 2.0      # no single answer may cost more than this
# max_epsilon_per_period = 4.0     # nor all answers of any so many days together:
# period_days = 30
"""
_SILO_TOML = """\
# The guard of {silo}: what it reads, what it may answer, what it may spend. Relative paths start at this folder.
# After every change: silosynth silo doctor. Once the guard has started, what you tighten holds at its next start, and
# what you loosen only after: silosynth silo adopt

[silo]
name = "{silo}"
# dataset = "default"              # whom the records are about. The budget belongs to it, also when records change

{data}
{budget}
{policy}
[guard]
address = "{address}"
ledger = "ledger.db"               # back this up: it is the memory of what was spent
key = "receipts.key"               # signs what is released; made at the first start, never leaves this folder
# device = "auto"                  # where networks compute: "cpu", "cuda", "cuda:1"
"""


@dataclass(frozen=True)
class Answers:
    """What the silo's people fill in; what is None is left to them, with an example."""

    data: Mapping[str, Any] | None = None
    budget: Mapping[str, float] | None = None
    policy: Mapping[str, Any] | None = None


def silo_toml(silo: str, address: str, answers: Answers) -> str:
    policy = _POLICY.format(mechanisms=_names(sorted(Query.kinds)), backbones=_names(shipped_backbones()))
    return _SILO_TOML.format(
        silo=silo,
        address=address,
        data=_table("data", answers.data, _DATA),
        budget=_table("budget", answers.budget, _BUDGET),
        policy=_table("policy", answers.policy, policy),
    )


def _names(names: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _table(name: str, content: Mapping[str, Any] | None, example: str) -> str:
    return example if content is None else tomli_w.dumps({name: dict(content)})


COURIER_TOML = """\
# The courier of {silo}: whom it dials and who it is. It never reads records. Relative paths start at this folder.
silo = "{silo}"
guard = "{address}"
ca = "ca.crt"                      # who may be the server
certificate = "silo.crt"           # who we are to the server
key = "silo.key"
node_key = "node.key"              # who we are to Flower
pull = true                        # fetch finished datasets into ../releases as soon as there are any
publisher = "{publisher}"  # who must have signed them

[server]
fleet = "{fleet}"  # Flower: invitations to runs
exchange = "{exchange}"  # queries and releases, during runs only
catalog = "{catalog}"  # finished datasets
"""

SERVER_TOML = """\
# The server of a silosynth federation. Relative paths start at this folder.

[flower]
fleet = "{listen}:{fleet_port}"  # the silos' SuperNodes dial this
control = "127.0.0.1:{control_port}"  # whoever reaches this can submit runs: keep it on loopback

[exchange]
host = "{listen}"
port = {exchange_port}  # one run at a time holds it; 0 takes a free port for each run
public_host = "{public_host}"  # what silos dial
ca = "ca.crt"
certificate = "server.crt"
key = "server.key"

[catalog]
host = "{listen}"
port = {catalog_port}  # silos pull finished datasets here: mutual TLS
consumer_port = {consumer_port}  # so do consumers: TLS, and a token of `silosynth server grant`

[dashboard]
host = "127.0.0.1"  # any other host: TLS, and login with a token of `silosynth server grant NAME --dashboard`
port = {dashboard_port}

[metrics]
host = "127.0.0.1"  # Prometheus reads public facts here, without login; open it to where Prometheus is
port = {metrics_port}

# The silos that may take part, kept by `silosynth provision`. Who is not listed is refused by Flower and exchange.
"""

AUTHORITY_README = """\
# The federation's certificate authority

`ca.key` makes identities: whoever has it can pose as the server or as any silo. Nothing needs it while the federation
runs. Move this folder to an offline medium; bring it back only for `silosynth provision --add-silo`.

- **A silo leaves, or its key is lost:** `silosynth provision FOLDER --remove-silo NAME`. The list in
  `server/server.toml` is the allow-list: Flower and the exchange refuse who is not on it, whatever certificate he
  shows. This needs no `ca.key`: do it on the server's own machine. A running server turns the silo out in seconds.
- **A silo joins:** `silosynth provision FOLDER --add-silo NAME`. If the server's folder lives on another machine, copy
  `server.toml` and `nodes/` there.
- **A certificate runs out** (after 825 days; `silosynth silo doctor` warns a month ahead): remove the silo, move its
  old kit folder away, add it again, and send the site the new `courier/` folder. The site keeps its `guard/` folder.
- **`ca.key` is lost to a stranger:** provision a new federation.
"""

_DOTENV = """\
# Read by docker compose. FILL IN: who owns this folder, as `id -u` and `id -g` tell.
{user}=1000:1000
SILOSYNTH_VERSION={version}
"""
_RECORDS = """\
# Where the records are. In the guard's container that is /silo/records: say path = "../records/..." in silo.toml.
SILO_RECORDS=./records
"""
_PORTS = """\
FLEET_PORT={fleet_port}
EXCHANGE_PORT={exchange_port}
CATALOG_PORT={catalog_port}
CONSUMER_PORT={consumer_port}
DASHBOARD_PORT={dashboard_port}
"""


def silo_env() -> str:
    return _DOTENV.format(user="SILO_USER", version=version("silosynth")) + _RECORDS


def server_env(**ports: int) -> str:
    return _DOTENV.format(user="SERVER_USER", version=version("silosynth")) + _PORTS.format(**ports)


def write_from_templates(kind: str, folder: Path, **facts: str) -> None:
    """Copy the files of deploy/silo or deploy/server; those for people and for systemd are told who the silo is."""
    for template in sorted((_TEMPLATES / kind).iterdir()):
        text = template.read_text()
        (folder / template.name).write_text(text if template.suffix == ".yml" else text.format(**facts))
