#!/usr/bin/env python3
"""processes.py BENCH N PLAIN [OPTION]...: N processes of spillway-bench at once, with the same options.

Prints what they moved together as a multiple of the plain copy that PLAIN, the JSON of another run, has measured alone;
their errors; and the share of the slowest process. Exit code 1: one of them has failed, or found a difference."""
import json
import subprocess
import sys

bench, n, plain, options = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
with open(plain, encoding="utf-8") as file:
    copy_gbps = json.load(file)["raw_copy"]["both_gbps"]
processes = [
    subprocess.Popen([bench, "--json", "-", "--seed", str(i + 1), *options], stdout=subprocess.PIPE, text=True)
    for i in range(n)
]
outputs = [process.communicate()[0] for process in processes]
failed = sum(process.returncode != 0 for process in processes)
results = [json.loads(output) for output in outputs if output]
if not results:
    sys.exit("processes.py: no process has written its figures")
# While one measures its plain copy others may spill already: the longest run counts for all.
wall_s = max(result["wall_s"] for result in results)
rates = [result["total"]["bytes"] / result["wall_s"] / 1e9 for result in results]
total_gbps = sum(result["total"]["bytes"] for result in results) / wall_s / 1e9
errors = {}
for result in results:
    for name, count in result["errors"].items():
        errors[name] = errors.get(name, 0) + count
by_client = sum(result["spill"]["by_client"] for result in results)
print(f"{n} processes: {total_gbps:.2f} GB/s, {total_gbps / copy_gbps:.2f} x the plain copy of {copy_gbps:.2f} GB/s")
print(f"the slowest got {min(rates) / (sum(rates) / len(rates)):.2f} of the mean; errors: {errors or 'none'}")
print(f"spilled {sum(result['spill']['regions'] for result in results)} regions, {by_client} encoded by their process;"
      f" different: {sum(result['different'] for result in results)}; failed: {failed}")
sys.exit(1 if failed or any(result["different"] for result in results) else 0)
