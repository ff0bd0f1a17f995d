# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a report says and draws of a cell: schemes and resource blocks of each UAV over time.

The sources are the tables `resource_blocks` of the model, see
`orchestrator.analysis.resource_blocks`, and `grants` of ns-3's scheduler, see
`orchestrator.analysis.radio_log`.
"""

from typing import Any

import numpy as np
import pandas as pd

from orchestrator.records.reader import Run

MOST_ROWS = 120_000
"""Most rows of the table that are drawn one by one; more slots are merged."""
MOST_NAMED = 4
"""Most UAVs that a sentence names."""
LINK = ["client", "direction"]
WAYS = {"up": ("uplink", "send"), "down": ("downlink", "receive")}


def cell_chart(run: Run) -> dict[str, Any] | None:
    """Bars of equal slots by client and direction, as columns; None without the table.

    A bar has its first slot's start, its number of slots, the mean number of resource blocks, the
    scheme and the number of layers of most of the time, and the part of the time in which the link
    is active. Too many slots are merged, `slots_a_bar` at a time.
    """
    if "resource_blocks" not in run.tables:
        return None
    return _bars(run.tables["resource_blocks"], run.scenario.slot_s)


def grants_chart(run: Run) -> dict[str, Any] | None:
    """The same bars for what ns-3's scheduler granted; None without the table.

    Each also has the share of its transport blocks that were lost; a bar is active for the part of
    the time in which data did not wait for a grant.
    """
    if "grants" not in run.tables:
        return None
    table, slot_s = run.tables["grants"], run.scenario.slot_s
    active_s = (slot_s - table["waiting_s"]).clip(lower=0)
    lost = (table["lost_blocks"] / table["blocks"].clip(lower=1)).clip(upper=1).round(3)
    return _bars(table.assign(active_s=active_s, layers=1, lost=lost), slot_s)


def _bars(table: pd.DataFrame, slot_s: float) -> dict[str, Any]:
    merged = -(-len(table) // MOST_ROWS)
    table = table.assign(slot=table["slot"] // merged)
    # Two rounds share the slot in which one ends and the next begins.
    rows = table.sort_values("active_s", ascending=False, kind="stable").groupby([*LINK, "slot"])
    bars = rows[["mcs", "layers"]].first()
    sums = rows[["active_s", "resource_blocks"]].sum() / merged
    bars["blocks"] = sums["resource_blocks"].round(2)
    bars["active"] = (sums["active_s"] / slot_s).round(3)
    if "lost" in table:
        bars["lost"] = rows["lost"].mean()
    bars = bars.reset_index().sort_values([*LINK, "slot"])
    same = [*LINK, "mcs", "layers", "blocks", "active", *(["lost"] if "lost" in bars else [])]
    follows = (bars[same] == bars[same].shift()).all(axis=1)
    follows &= bars["slot"] == bars["slot"].shift() + 1
    number = (~follows).cumsum()
    slots = bars.groupby(number).size().to_numpy()
    bars = bars[~follows]
    return {
        "most_blocks": int(max(1, np.ceil(table["resource_blocks"].max()))),
        "schemes": sorted(int(mcs) for mcs in bars["mcs"].unique()),
        "slots_a_bar": merged,
        "client": bars["client"].tolist(),
        "direction": bars["direction"].tolist(),
        "time_s": (bars["slot"] * merged * slot_s).round(6).tolist(),
        "slots": (slots * merged).tolist(),
        "blocks": bars["blocks"].tolist(),
        "active": bars["active"].tolist(),
        "mcs": bars["mcs"].tolist(),
        "layers": bars["layers"].tolist(),
        **({"lost": bars["lost"].tolist()} if "lost" in bars else {}),
    }


def cell_sentences(table: pd.DataFrame, slot_s: float) -> str:
    """One sentence per direction: which schemes UAVs have, and how many resource blocks."""
    said = []
    for direction, (way, do) in WAYS.items():
        own = table[table["direction"] == direction]
        if own.empty:
            continue
        reached = own[own["mcs"] >= 0]
        if reached.empty:
            said.append(f"In the {way}, all UAVs are out of range.")
            continue
        away = 1 - len(reached) / len(own)
        said.append(
            f"In the {way}, {_schemes(reached, do)}"
            + (f"; in {_share(away)} of the slots they are out of range" if away else "")
            + f". While they {do}, they have {_blocks(reached, slot_s)}."
        )
    return " ".join(said)


def grants_sentence(table: pd.DataFrame) -> str:
    """A sentence with the numbers of granted and lost transport blocks, and the waiting time."""
    said = []
    for direction, (way, _) in WAYS.items():
        own = table[table["direction"] == direction]
        if own.empty:
            continue
        blocks, lost = int(own["blocks"].sum()), int(own["lost_blocks"].sum())
        said.append(
            f"In the {way}, ns-3 granted {blocks} transport blocks, of which {lost} were lost, "
            f"and data waited {own['waiting_s'].sum():.2f} s for a first grant."
        )
    return " ".join(said)


def _schemes(table: pd.DataFrame, do: str) -> str:
    most = table.groupby("client")["mcs"].agg(lambda mcs: int(mcs.mode().max()))
    low, high = int(most.min()), int(most.max())
    if low < high:
        return (
            f"UAVs differ: the most frequent scheme is MCS {low} ({_uavs(most, low)}) to MCS "
            f"{high} ({_uavs(most, high)}), and MCS {_range(table['mcs'])} occur"
        )
    rest = table["mcs"][table["mcs"] != high]
    if rest.empty:
        return f"all UAVs have MCS {high} in all slots in which they {do}"
    share = _share(1 - len(rest) / len(table))
    return (
        f"all UAVs mostly have MCS {high} (in {share} of the slots in which they {do}), otherwise "
        f"MCS {_range(rest)}"
    )


def _blocks(table: pd.DataFrame, slot_s: float) -> str:
    """Numbers of resource blocks while links are active."""
    each = (table["resource_blocks"] * slot_s / table["active_s"]).round()
    mean = float(table["resource_blocks"].sum() * slot_s / table["active_s"].sum())
    average = "" if each.nunique() == 1 else f", {mean:.1f} on average"
    return f"{_range(each)} resource blocks{average}"


def _share(share: float) -> str:
    """A share below 1 in per cent, which is never called 100 %."""
    return f"{min(100 * share, 99.9):.3g} %"


def _range(values: "pd.Series[Any]") -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _uavs(most: "pd.Series[int]", scheme: int) -> str:
    named = [str(client) for client in most.index[most == scheme]]
    if len(named) > MOST_NAMED:
        return f"{len(named)} UAVs"
    return f"UAV{'s' * (len(named) > 1)} {', '.join(named)}"
