"""`silosynth provision`: create a federation's certificates and kits, add silos, remove silos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from silosynth.common.errors import ConfigError
from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.kits import FederationFolder, Place

console = Console(stderr=True)


def provision(
    folder: Annotated[Path, typer.Argument(help="The federation's folder: new, or existing to add or remove silos.")],
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Name or address silos dial, with Flower's port (9092). Repeat for every other name of the server.",
        ),
    ] = None,
    silo: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A silo of the new federation; repeat.")
    ] = None,
    add_silo: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Add a silo to the federation.")] = None,
    remove_silo: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Revoke a silo's admission.")] = None,
    exchange_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for queries and releases.")
    ] = Place.exchange_port,
    control_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Flower's control port, on loopback.")
    ] = Place.control_port,
    catalog_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port at which silos pull finished datasets.")
    ] = Place.catalog_port,
    consumer_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port at which consumers pull them, with a token.")
    ] = Place.consumer_port,
    dashboard_port: Annotated[
        int, typer.Option(min=1, max=65535, help="The dashboard's port, on loopback.")
    ] = Place.dashboard_port,
    output: FormatOption = Format.text,
) -> None:
    """Create a federation: a certificate authority, the server's folder, and one kit per silo.

    For example:

        silosynth provision FEDERATION --server synth.example.org --silo st-mary --silo charite

    Then keep FEDERATION/authority offline, take FEDERATION/server to the server (`silosynth server run`), and send each
    folder of FEDERATION/kits to its site by a trustworthy way, whose README.md says the rest. Later:

        silosynth provision FEDERATION --add-silo mayo
        silosynth provision FEDERATION --remove-silo charite

    The list in server.toml decides who may take part: a removed silo is refused by Flower and by the exchange, whatever
    certificate it shows. Nothing is ever overwritten.
    """
    if server:
        if add_silo or remove_silo:
            raise ConfigError("--server creates a new federation: name its silos with --silo")
        place = Place.of(
            server,
            exchange_port=exchange_port,
            control_port=control_port,
            catalog_port=catalog_port,
            consumer_port=consumer_port,
            dashboard_port=dashboard_port,
        )
        federation = FederationFolder.create(folder, place)
        added = silo or []
    else:
        if silo:
            raise ConfigError("a new federation needs --server; to add to an existing one use --add-silo")
        if not add_silo and not remove_silo:
            raise ConfigError("nothing to do: give --server and --silo, --add-silo or --remove-silo")
        federation, added = FederationFolder.open(folder), add_silo or []
    for name in remove_silo or []:
        federation.remove_silo(name)
    for name in added:
        federation.add_silo(name)
    _report(federation, added, output)


def _report(federation: FederationFolder, added: list[str], output: Format) -> None:
    kits = {name: str(federation.kit(name).folder) for name in added}
    if output is Format.json:
        print(json.dumps({"server": str(federation.server), "silos": federation.silos(), "kits": kits}))
        return
    for name, kit in kits.items():
        console.print(f"Kit of {name}: {kit}", soft_wrap=True)
    console.print(f"Registered: {', '.join(federation.silos()) or 'none'}", soft_wrap=True)
    console.print(
        f"Keep {federation.authority} offline. Next: silosynth server run --folder {federation.server}", soft_wrap=True
    )
