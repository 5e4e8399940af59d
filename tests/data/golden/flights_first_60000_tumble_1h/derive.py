#!/usr/bin/env python3
"""Derives this case from the golden case of the whole stream, and checks the derivation against it.

Rows that the engine emitted or called late before input line 60,000 depend on nothing after it: they are taken
over as they are. The windows still open at the cut are computed here, by the plainest loop there is. The loop also
recomputes the rows that were taken over, and the script fails if a single one differs from the engine's.

Run from the repository's root, with zstd on the path: python3 tests/data/golden/flights_first_60000_tumble_1h/derive.py
"""
import hashlib, json, subprocess
from datetime import datetime
from pathlib import Path

ROWS, HOUR, DELAY = 60_000, 3_600_000, 900_000
here = Path(__file__).parent
whole = here.parent / "flink_flights_tumble_1h"
stream = here.parents[3] / "examples/flights/flights.jsonl.zst"


def read(path):
    text = subprocess.run(["zstd", "-dcq", str(path)], check=True, capture_output=True).stdout.decode()
    return [json.loads(line) for line in text.splitlines()]


def pack(path, rows):
    raw = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
    subprocess.run(["zstd", "-q", "-f", "-19", "-o", str(path)], input=raw, check=True)
    return hashlib.sha256(raw).hexdigest()


def row(seq, wm, key, end, values):
    return {"seq": seq, "wm": wm, "key": key, "window_start": end - HOUR, "window_end": end, "count": len(values),
            "count_value": len(values), "sum": sum(values), "min": min(values), "max": max(values)}


open_panes, emitted, late, wm, newest = {}, [], [], None, None
for seq, event in enumerate(read(stream)):
    ts = int(datetime.fromisoformat(event["sched_dep"].replace("Z", "+00:00")).timestamp()) * 1000
    end = ts // HOUR * HOUR + HOUR
    if wm is not None and end - 1 <= wm:
        late.append({"seq": seq, "ts": ts, "key": event["origin"]})
    else:
        open_panes.setdefault((end, event["origin"]), []).append(event["dep_delay"])
    newest = ts if newest is None else max(newest, ts)
    wm = newest - DELAY - 1
    for end, key in sorted(pane for pane in open_panes if pane[0] - 1 <= wm):
        emitted.append(row(seq, wm, key, end, open_panes.pop((end, key))))

before = lambda rows: [r for r in rows if r["seq"] is not None and r["seq"] < ROWS]
order = lambda rows: sorted(rows, key=lambda r: (r["seq"], r["window_end"], r["key"]))
golden = before(read(whole / "expected.jsonl.zst"))
assert order(golden) == order(emitted), "the loop and the engine disagree on emitted rows"
golden_late = before(read(whole / "late.jsonl.zst"))
assert golden_late == late, "the loop and the engine disagree on late rows"

flush = [row(None, None, key, end, values) for (end, key), values in sorted(open_panes.items())]
case = json.loads((whole / "case.json").read_text())
case |= {
    "id": "flights_first_60000_tumble_1h", "input": "../../../../examples/flights/flights.jsonl.zst",
    "input_rows": ROWS, "emitted_rows": len(golden) + len(flush), "late_rows": len(late),
    "verified": f"rows with a seq are the engine's own; the {len(flush)} rows of the end flush come from derive.py",
    "final_watermark_before_end": wm,
    "expected_sha256": pack(here / "expected.jsonl.zst", golden + flush),
    "late_sha256": pack(here / "late.jsonl.zst", late),
}
(here / "case.json").write_text(json.dumps(case, indent=1) + "\n")
print(f"{len(golden)} emitted, {len(flush)} at the end, {len(late)} late")
