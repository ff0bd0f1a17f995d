"""`testbed compare` and `testbed export`: what runs have learned, side by side and for others."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from testbed.core.errors import InputError

out = Console()


def add_to(app: typer.Typer) -> None:
    """Let the console script know the commands of this file."""
    app.command()(compare)
    app.command()(export)


def compare(
    run_dirs: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Directories of runs that learned.")
    ],
    page: Annotated[
        Path, typer.Option("--out", metavar="FILE.html", help="The page to write.")
    ] = Path("comparison.html"),
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the table as JSON.")
    ] = None,
) -> None:
    """Show runs beside each other: learning curves over emulated time, and what precision costs."""
    from orchestrator.cli.tables import plain_table
    from orchestrator.reporting.comparison import write_comparison
    from testbed.system.files import check_writable, write_json

    check_writable("--out", page)
    check_writable("--json", json_file)
    table = write_comparison(run_dirs, page)
    if json_file is not None:
        # NaN is nothing that JSON knows.
        write_json(json_file, table.astype(object).where(table.notna(), None).to_dict("records"))
    columns = ["run", "rounds", "latency_s", "train_loss", "held_out_loss", "held_out_accuracy"]
    out.print(plain_table(table[columns]))
    out.print(f"comparison: {page}")


def export(
    run_dir: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a run.")],
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="The folder to make, for peft to load.")
    ],
) -> None:
    """Write what a run has trained as a folder that peft loads over the same backbone."""
    from orchestrator.emulation.learning import model_of
    from orchestrator.reporting.report import read_run

    run = read_run(run_dir)
    state = run_dir / "adapters.safetensors"
    if not state.is_file():
        raise InputError(f"{run_dir}: nothing was trained: adapters.safetensors is missing")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out: {folder} exists already and is not an empty folder")
    from workloads.costs.lookup import cache_folder
    from workloads.learning.backbone import backbone_file  # torch takes seconds to import
    from workloads.learning.export import export_peft
    from workloads.learning.tensors import read_tensors

    model = model_of(run.scenario)
    export_peft(read_tensors(state, "export"), folder, model)
    out.print(f"adapters and head: {folder}")
    out.print(f"frozen weights, by timm's names: {backbone_file(model, cache_folder())}")
