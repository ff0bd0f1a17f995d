# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Right tables with one wrong thing each: how many does `testbed import csv` notice?

    python tests/trials/wrong_tables.py [--number N] [--seed S] [--json FILE]

A corruption changes the meaning of a table and not its form: a unit, a sign, the order of columns,
the time base, the code for missing values, or the axes. It is *refused*, or *shown* where the line
that the command prints differs from that of the right table (a number by more than 10 %, or words),
or *silent*. Corruptions that leave the trace as it is are not counted.
"""

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from orchestrator.cli.main import app

Frame = pd.DataFrame
Corruption = Callable[[Frame, random.Random], Frame]
ROWS = 60


def phone(rng: np.random.Generator) -> Frame:
    """A phone on a UAV: RSRP and a GPS place each second, as AERPAW logs them."""
    t = np.arange(ROWS)
    return Frame(
        {
            "time": 1_693_044_000 + t,
            "latitude": 35.7274 + 4e-5 * t + rng.normal(0, 1e-6, ROWS),
            "longitude": -78.6962 + 2e-5 * t + rng.normal(0, 1e-6, ROWS),
            "height": 30 + 0.2 * t,
            "rsrp_dbm": np.round(-85 - 0.2 * t + rng.normal(0, 2, ROWS), 1),
        }
    )


def fleet(rng: np.random.Generator) -> Frame:
    """Three UAVs in local coordinates, with gains."""
    parts = []
    for uav in (1, 2, 3):
        t = np.arange(ROWS) * 0.5
        parts.append(
            Frame(
                {
                    "time": t,
                    "uav": uav,
                    "x": 50 * uav + 8 * t,
                    "y": -100 + 3 * t * uav,
                    "z": 40.0 + uav + rng.normal(0, 0.1, ROWS),
                    "gain_db": np.round(-90 - 3 * uav + rng.normal(0, 2, ROWS), 2),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def links(rng: np.random.Generator) -> Frame:
    """Rates of two UAVs' links with dates."""
    moments = pd.Timestamp("2024-05-31 11:59:30") + pd.to_timedelta(np.arange(ROWS), "s")
    parts = [
        Frame(
            {
                "time": moments.strftime("%Y-%m-%d %H:%M:%S"),
                "uav": uav,
                "uplink_bps": np.round(rng.lognormal(16, 0.5, ROWS)),
                "downlink_bps": np.round(rng.lognormal(17.5, 0.4, ROWS)),
            }
        )
        for uav in (1, 2)
    ]
    return pd.concat(parts, ignore_index=True)


TABLES = {"phone": phone, "fleet": fleet, "links": links}


def scaled(column: str, factor: float) -> Corruption:
    """A column in another unit."""
    return lambda table, rng: table.assign(**{column: table[column] * factor})


def changed(column: str, change: Callable[[pd.Series], pd.Series]) -> Corruption:
    """A column after a change."""
    return lambda table, rng: table.assign(**{column: change(table[column])})


def swapped(one: str, other: str) -> Corruption:
    """Two columns with each other's values."""
    return lambda table, rng: table.assign(**{one: table[other], other: table[one]})


def missing(column: str, code: object) -> Corruption:
    """A code for a missing value in one to five rows."""

    def corrupt(table: Frame, rng: random.Random) -> Frame:
        table = table.astype({column: object})
        for row in rng.sample(range(len(table)), rng.randint(1, 5)):
            table.loc[row, column] = code
        return table

    return corrupt


def later(change: Callable[[pd.Series], pd.Series]) -> Corruption:
    """Times of a table of seconds that change from some row on."""

    def corrupt(table: Frame, rng: random.Random) -> Frame:
        row = rng.randint(5, ROWS - 5)
        times = table["time"].astype(float).copy()
        after = np.arange(len(table)) % ROWS >= row
        times[after] = change(times[after])
        return table.assign(time=times)

    return corrupt


CODES = (0, -999, 99, 9999, 32767, -1, "nan", "", "None", 65535)
CORRUPTIONS: dict[str, dict[str, list[Corruption]]] = {
    "phone": {
        "unit": [
            *(lambda t, r: t.assign(latitude=t.latitude * 1e7, longitude=t.longitude * 1e7),),
            *(scaled("latitude", np.pi / 180), scaled("longitude", np.pi / 180)),
            *(scaled("height", 1000), scaled("height", 3.2808), scaled("height", 100)),
            changed("rsrp_dbm", lambda it: 10 ** (it / 10)),
            changed("rsrp_dbm", lambda it: it + 140),
        ],
        "sign": [scaled("latitude", -1), scaled("longitude", -1), scaled("rsrp_dbm", -1)],
        "order": [
            swapped("latitude", "longitude"),
            swapped("height", "rsrp_dbm"),
            swapped("time", "height"),
            swapped("latitude", "height"),
        ],
        "time": [
            scaled("time", 1e3),
            scaled("time", 1e6),
            changed("time", lambda it: (it - it.iloc[0]) * 1e3),
            changed("time", lambda it: it.iloc[::-1].to_numpy()),
            changed(
                "time", lambda it: pd.to_datetime(it, unit="s").dt.strftime("%d/%m/%Y %H:%M:%S")
            ),
            later(lambda it: it + 3600),
            later(lambda it: it - 1_693_044_000),
            later(lambda it: it * 1000),
            later(lambda it: it - 5),
        ],
        "missing": [
            missing(name, code)
            for name in ("latitude", "longitude", "height", "rsrp_dbm")
            for code in CODES
        ],
        "axis": [
            scaled("height", -1),
            changed("height", lambda it: it + 1600),
            changed("height", lambda it: it + 120),
        ],
    },
    "fleet": {
        "unit": [
            lambda t, r: t.assign(x=t.x / 1000, y=t.y / 1000),
            lambda t, r: t.assign(x=t.x * 1000, y=t.y * 1000),
            *(scaled("z", 1000), scaled("z", 3.2808)),
            changed("gain_db", lambda it: 10 ** (it / 10)),
            changed("gain_db", lambda it: it / 10),
        ],
        "sign": [scaled("gain_db", -1), scaled("x", -1), scaled("y", -1)],
        "order": [
            swapped("x", "z"),
            swapped("uav", "time"),
            swapped("gain_db", "z"),
            swapped("x", "y"),
            swapped("gain_db", "x"),
            swapped("uav", "z"),
        ],
        "time": [
            *(scaled("time", 1e3), scaled("time", 1e6), scaled("time", 1 / 60)),
            *(later(lambda it: it + 600), later(lambda it: it - 10), later(lambda it: it * 0)),
        ],
        "missing": [
            missing(name, code) for name in ("x", "z", "gain_db", "uav", "time") for code in CODES
        ],
        "axis": [
            scaled("z", -1),
            changed("z", lambda it: it + 1600),
            lambda t, r: t.assign(x=t.x + 5e5, y=t.y + 4e6),
            lambda t, r: t.assign(x=t.y, y=t.x, z=-t.z),
        ],
    },
    "links": {
        "unit": [
            lambda t, r: t.assign(uplink_bps=t.uplink_bps / 1e6, downlink_bps=t.downlink_bps / 1e6),
            lambda t, r: t.assign(uplink_bps=t.uplink_bps / 1e3, downlink_bps=t.downlink_bps / 1e3),
            lambda t, r: t.assign(uplink_bps=t.uplink_bps / 8, downlink_bps=t.downlink_bps / 8),
            *(scaled("uplink_bps", 1e6), scaled("downlink_bps", 1e-6)),
        ],
        "sign": [scaled("uplink_bps", -1), scaled("downlink_bps", -1)],
        "order": [swapped("uplink_bps", "downlink_bps"), swapped("uav", "uplink_bps")],
        "time": [
            changed("time", lambda it: it.str[11:16]),
            changed("time", lambda it: it.str[11:]),
            changed("time", lambda it: pd.to_datetime(it).dt.strftime("%m/%d/%Y %H:%M:%S")),
            changed("time", lambda it: pd.to_datetime(it).dt.strftime("%Y-%m-%d %I:%M:%S")),
            changed("time", lambda it: pd.to_datetime(it).dt.strftime("%Y%m%d%H%M%S")),
            missing("time", "2024-05-31 11:59:30"),
            missing("time", "2024-05-31T11:59:40Z"),
        ],
        "missing": [
            missing(name, code) for name in ("uplink_bps", "downlink_bps", "uav") for code in CODES
        ],
        "axis": [],
    },
}


def outcome(table: Frame, folder: Path) -> tuple[str, bytes]:
    """The line that the command prints, or its refusal, and the trace."""
    path, trace = folder / "table.csv", folder / "trace.npz"
    trace.unlink(missing_ok=True)
    table.to_csv(path, index=False)
    words = ["import", "csv", str(path), "--out", str(trace), "--slot-s", "1"]
    words += ["--tx-dbm", "20"] if "rsrp_dbm" in table else []
    done = CliRunner().invoke(app, words)
    if done.exit_code:
        return f"refused: {done.exception}", b""
    with np.load(trace) as fields:
        content = b"".join(fields[name].tobytes() for name in fields.files)
    return done.stdout, content


def differs(line: str, right: str) -> bool:
    """Whether words differ, or a number by more than 10 %."""
    number = r"-?\d+(?:\.\d+)?"
    if re.sub(number, "#", line) != re.sub(number, "#", right):
        return True
    pairs = zip(re.findall(number, line), re.findall(number, right), strict=True)
    return any(abs(float(a) - float(b)) > 0.1 * abs(float(b)) for a, b in pairs)


def main() -> int:
    """Try corruptions by seed; print what became of them by kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--silent", action="store_true", help="list corruptions without a word")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    counts: Counter[tuple[str, str]] = Counter()
    silent: list[str] = []
    kinds = [
        (name, kind) for name, kinds in CORRUPTIONS.items() for kind, all_ in kinds.items() if all_
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        while sum(counts.values()) < options.number:
            name, kind = rng.choice(kinds)
            which = rng.randrange(len(CORRUPTIONS[name][kind]))
            table = TABLES[name](np.random.default_rng(rng.randrange(10**9)))
            right, trace = outcome(table, folder)
            if right.startswith("refused"):
                raise SystemExit(f"the right table {name} is {right}")
            line, other = outcome(CORRUPTIONS[name][kind][which](table, rng), folder)
            if other == trace:
                continue
            refused = line.startswith("refused")
            what = "refused" if refused else "shown" if differs(line, right) else "silent"
            counts[kind, what] += 1
            silent += [f"{name} {kind} {which}"] if what == "silent" else []
            if sum(counts.values()) % 50 == 0:
                print(f"{sum(counts.values())} of {options.number}", file=sys.stderr)
    shown = Table("kind", "tried", "refused", "shown", "silent")
    columns = ("refused", "shown", "silent")
    for kind in ("unit", "sign", "order", "time", "missing", "axis"):
        row = [counts[kind, column] for column in columns]
        shown.add_row(kind, *map(str, (sum(row), *row)))
    total = [sum(counts[kind, column] for kind in CORRUPTIONS["phone"]) for column in columns]
    shown.add_row("all", *map(str, (sum(total), *total)))
    Console().print(shown)
    if options.silent:
        for line, times in Counter(silent).most_common():
            print(f"{times:4} {line}")
    if options.json:
        options.json.write_text(json.dumps({f"{a} {b}": n for (a, b), n in counts.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
