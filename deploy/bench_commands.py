"""`silosynth bench`: a matrix of simulated runs, and its page of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from silosynth.common.errors import RunFailed, SilosynthError
from silosynth.deploy.formats import Format, FormatOption
from silosynth.deploy.progress import share_done

console = Console(stderr=True)


def bench(
    matrix: Annotated[Path, typer.Argument(help="What to run.", metavar="MATRIX.toml")],
    out: Annotated[Path, typer.Option(help="The folder for rows.jsonl and the page.")] = Path("silosynth-bench"),
    only: Annotated[list[str] | None, typer.Option(help="Run this dataset, or this way, only; repeatable.")] = None,
    page_only: Annotated[bool, typer.Option("--page-only", help="Run nothing: write the page anew.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Run nothing: tell what is missing and its cost.")] = False,
    output: FormatOption = Format.text,
) -> None:
    """Run recipes x datasets x epsilons x silos x partitions x seeds in simulation, and write a page of results.

    A run that is in rows.jsonl already is not made again, so a stopped bench goes on where it was, and a matrix may
    grow. Partitions: iid, dirichlet:0.5, classes (one class for each silo), powerlaw:1.5 (unequal sizes). Baselines:
    pooled, alone, fedavg (not private), dp-sgd (one silo), dp-fedavg (all). Such a file:

    \b
        title = "Digits, five silos"
        epsilons = [1, 8]
        partitions = ["iid", "dirichlet:0.5"]
        seeds = [0, 1, 2]
        baselines = ["pooled", "alone", "dp-fedavg"]
        \\[datasets.digits]
        data = "digits"
        \\[recipes.prototypes]
        recipe = "prototypes"
        \\[recipes.ldpdc]
        recipe = "ldpdc"
        parameters = {mixtures = 50}
    """
    import torch

    from silosynth.deploy.bench.estimates import estimate, estimate_table
    from silosynth.deploy.bench.matrix import check_datasets, load_matrix
    from silosynth.deploy.bench.page import write_page
    from silosynth.deploy.bench.rows import Notebook
    from silosynth.deploy.bench.running import run_cell

    torch.set_num_threads(1)  # processor time is told: on small records two threads take four times as much
    wanted, notebook = load_matrix(matrix), Notebook(out)
    missing = notebook.missing(wanted, only)
    if dry_run:
        found = estimate(missing, notebook.rows())
        print(found.model_dump_json()) if output is Format.json else console.print(*estimate_table(found))
        return
    if page_only:
        missing = []
    check_datasets(wanted, {cell.dataset for cell in missing})
    failed = []
    try:
        with share_done(console, matrix.stem) as report:
            for number, cell in enumerate(missing):
                try:
                    row = run_cell(wanted, cell)
                except SilosynthError as error:  # one run that cannot be made is no reason to do without the others
                    failed.append(f"{cell.words()}: {error}")
                    continue
                notebook.add(row)
                console.print(f"{100 * row.accuracy:.1f} %  {cell.words()}", highlight=False, soft_wrap=True)
                report((number + 1) / len(missing))
    finally:  # whoever stops it wants to see what there is
        page = write_page(wanted, notebook.rows_of(wanted), out)
    if output is Format.json:
        print(
            json.dumps({"made": len(missing) - len(failed), "rows": len(notebook.rows_of(wanted)), "page": str(page)})
        )
    else:
        console.print(f"{len(missing) - len(failed)} new rows. The page: {page}", soft_wrap=True)
    if failed:
        raise RunFailed(f"{len(failed)} runs could not be made. The first: {failed[0]}")
