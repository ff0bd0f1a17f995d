"""Results as tables for the console."""

from rich.table import Table

from testbed.timeline import Timeline

MOST_ROWS = 20


def rounds_table(timeline: Timeline) -> Table:
    """One row a round, the first ones of many, and the mean over all."""
    summary = timeline.summary()
    table = Table(box=None, pad_edge=False)
    for column in ("round", "paradigm", "u", "start s", "latency s", "max energy J", "objective"):
        table.add_column(column, justify="left" if column == "paradigm" else "right")
    for row in summary.head(MOST_ROWS).itertuples():
        table.add_row(
            str(row.round),
            str(row.paradigm),
            str(row.split),
            f"{row.start_s:.3f}",
            f"{row.latency_s:.3f}",
            f"{row.max_energy_j:.3f}",
            f"{row.objective:.3f}",
        )
    if len(summary) > MOST_ROWS:
        table.add_row("...")
    if len(summary) > 1:
        table.add_section()
        table.add_row(
            "mean",
            "",
            "",
            "",
            f"{summary['latency_s'].mean():.3f}",
            f"{summary['max_energy_j'].mean():.3f}",
            f"{summary['objective'].mean():.3f}",
        )
    return table
