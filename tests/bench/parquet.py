#!/usr/bin/env python3
"""Sets what bench_ratios prints beside Parquet with its default encodings and zstd, level 1, as a table.

    bench_ratios -d DIRECTORY | parquet.py DIRECTORY

Needs pyarrow (measured with 26.0.1). Each column is written as a file of its own by pyarrow's defaults; counted is what
the file's footer calls the column's compressed bytes, against the same raw bytes: values, or offsets and characters."""
import io
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

TYPES = {"i32": pa.int32(), "i64": pa.int64()}


def read(directory, column, role):
    with open(os.path.join(directory, column + "." + role), "rb") as file:
        return pa.py_buffer(file.read())


def array_of(directory, column, buffers):
    if "values" in buffers:
        type_, bytes_ = buffers["values"][0], buffers["values"][2]
        return pa.Array.from_buffers(TYPES[type_], bytes_ * 8 // TYPES[type_].bit_width,
                                     [None, read(directory, column, "values")])
    rows = buffers["offsets"][2] // 4 - 1
    parts = [None, read(directory, column, "offsets"), read(directory, column, "characters")]
    return pa.Array.from_buffers(pa.string(), rows, parts)


def parquet_bytes(array):
    out = io.BytesIO()
    pq.write_table(pa.table({"column": array}), out, compression="zstd", compression_level=1)
    out.seek(0)
    metadata = pq.ParquetFile(out).metadata
    groups = [metadata.row_group(i).column(0) for i in range(metadata.num_row_groups)]
    return sum(g.total_compressed_size for g in groups), sorted({e for g in groups for e in g.encodings})


def main():
    directory = sys.argv[1]
    columns = {}
    for line in sys.stdin:
        column, role, type_, codec, bytes_, frames = line.split()
        columns.setdefault(column, {})[role] = (type_, codec, int(bytes_), int(frames))
    print("| column | plan | bytes | ratio | Parquet | of it |\n|---|---|---|---|---|---|")
    for column, buffers in columns.items():
        raw = sum(b[2] for b in buffers.values())
        ratio = raw / sum(b[3] for b in buffers.values())
        packed, encodings = parquet_bytes(array_of(directory, column, buffers))
        plan = ", ".join(f"`{b[1]}` {b[2] / b[3]:.3f}" for b in buffers.values())
        print(f"| `{column}` | {plan} | {raw} | {ratio:.3f} | {raw / packed:.3f} | {ratio * packed / raw:.2f} |")
        print(column, encodings, file=sys.stderr)


main()
