#!/usr/bin/env python3
"""Draws the README's pictures from what measure.sh has measured.

    draw.py RESULTS [FOLDER]    RESULTS: measure.sh's folder; FOLDER: for the pictures (default: this one)

Writes size.svg and, if a GPU was measured, busy.svg, and figures.json, from which `draw.py FOLDER/figures.json` draws
them again.
"""
import json
import pathlib
import re
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("draw.py: needs matplotlib: apt-get install python3-matplotlib, or pip install matplotlib")
matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "spillway", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3,
                            "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
from matplotlib import pyplot

COLUMNS = {"l_comment": ("text", "C0"), "random": ("random bytes", "C1")}
ENGINES = {"none": "idle", "kernel_100": "100 µs", "kernel_300": "300 µs", "kernel_1000": "1 ms", "scan": "scans"}
CODERS = {"service": ("C0", "the service encodes"), "client": ("C2", "the engine's process encodes")}
BESIDE = re.compile(r"^ *(\d+) MiB (\w+) +(out|back) +([\d.]+) GB/s +([\d.]+) x copy", re.M)


def read_sizes(folder):
    """A row for each column, size and direction: latency, rate, and those of the plain copy of the same run."""
    rows = []
    for path in sorted(folder.glob("size_*.json")):
        figures = json.loads(path.read_text())
        column = path.stem.removeprefix("size_").rpartition("_")[0]
        size = figures["setting"]["max_bytes"]
        for name, way in (("spill", "out"), ("restore", "back")):
            copy_gbps = figures["raw_copy"][way + "_gbps"]
            p50_us = figures[name]["latency_us"]["p50"]
            rows.append({"column": column, "bytes": size, "way": way, "us": p50_us, "gbps": size / p50_us / 1e3,
                         "p99_us": figures[name]["latency_us"]["p99"], "copy_gbps": copy_gbps})
    return sorted(rows, key=lambda row: (row["column"], row["way"], row["bytes"]))


def read_beside(folder):
    rows = []
    for engine in ENGINES:
        path = folder / f"beside_{engine}.txt"
        text = path.read_text() if path.exists() else ""
        for mib, coder, way, gbps, times in BESIDE.findall(text):
            rows.append({"engine": engine, "mib": int(mib), "coder": coder, "way": way, "gbps": float(gbps),
                         "x_copy": float(times)})
    return rows


def read(path):
    if path.is_file():
        return json.loads(path.read_text())
    return {"device": (path / "device").read_text().strip(), "date": (path / "date").read_text().strip(),
            "sizes": read_sizes(path), "beside": read_beside(path)}


def name_size(size, _=None):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.0f} GiB"


def finish(figure, figures, title, path):
    figure.suptitle(f"{title} ({figures['device']}, {figures['date']})", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    print(path)


def draw_sizes(figures, path):
    figure, axes = pyplot.subplots(2, 2, figsize=(8, 6), sharex=True)
    for at, (way, name) in enumerate((("out", "spill"), ("back", "restore"))):
        latency, rate = axes[0][at], axes[1][at]
        copies = {}
        for column, (label, color) in COLUMNS.items():
            rows = [row for row in figures["sizes"] if row["column"] == column and row["way"] == way]
            sizes = [row["bytes"] for row in rows]
            copies.update({row["bytes"]: row["copy_gbps"] for row in rows})
            latency.plot(sizes, [row["us"] for row in rows], "o-", ms=3, color=color, label=f"{name}, {label}")
            latency.fill_between(sizes, [row["us"] for row in rows], [row["p99_us"] for row in rows], color=color,
                                 alpha=0.15, lw=0)
            rate.plot(sizes, [row["gbps"] for row in rows], "o-", ms=3, color=color, label=f"{name}, {label}")
        sizes = sorted(copies)
        latency.plot(sizes, [size / copies[size] / 1e3 for size in sizes], "k--", lw=1, label="plain copy")
        rate.plot(sizes, [copies[size] for size in sizes], "k--", lw=1, label="plain copy")
        latency.set(xscale="log", yscale="log", ylabel="µs, median to p99" if at == 0 else "")
        rate.set(ylabel="GB/s" if at == 0 else "", ylim=(0, None))
        rate.set_xticks(sizes[::2], [name_size(size) for size in sizes[::2]])
        rate.minorticks_off()
        latency.legend()
    finish(figure, figures, "One region at a time, registered memory", path)


def draw_beside(figures, path):
    sizes = sorted({row["mib"] for row in figures["beside"]})
    figure, axes = pyplot.subplots(2, len(sizes), figsize=(8, 5), sharey=True, squeeze=False)
    for (at, way), (column, mib) in ((a, b) for a in enumerate(("out", "back")) for b in enumerate(sizes)):
        axis = axes[at][column]
        for i, (coder, (color, label)) in enumerate(CODERS.items()):
            heights = [next((row["x_copy"] for row in figures["beside"] if (row["engine"], row["mib"], row["coder"],
                             row["way"]) == (engine, mib, coder, way)), 0) for engine in ENGINES]
            axis.bar([x + 0.4 * i - 0.2 for x in range(len(ENGINES))], heights, 0.38, color=color, label=label)
        axis.axhline(1, color="k", ls="--", lw=1)
        axis.set_xticks(range(len(ENGINES)), ENGINES.values(), fontsize=8)
        axis.set_title(f"{'spill' if way == 'out' else 'restore'}, {name_size(mib << 20)}", fontsize=9)
        axis.grid(axis="x", visible=False)
    for row in axes:
        row[0].set_ylabel("times a plain copy's rate")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="lower center", ncols=2)
    figure.supxlabel(" ")  # room for it
    finish(figure, figures, "Text, beside the engine's own kernels", path)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else __file__).absolute()
    folder = folder.parent if folder.is_file() else folder
    folder.mkdir(parents=True, exist_ok=True)
    figures = read(pathlib.Path(sys.argv[1]))
    if not figures["sizes"]:
        sys.exit(f"draw.py: {sys.argv[1]} has no size_*.json")
    (folder / "figures.json").write_text(json.dumps(figures).replace("{\"", "\n{\"") + "\n")
    draw_sizes(figures, folder / "size.svg")
    if figures["beside"]:
        draw_beside(figures, folder / "busy.svg")


if __name__ == "__main__":
    main()
