"""Quality and composition of sequencing reads by position: one pass over a gzipped FASTQ file, standard library only."""

import csv
import gzip


def profile(request):
    """Gives totals as the result, and writes the table by position to the output "profile"."""
    first = request["args"]["first"]
    columns = []  # by position: reads, sum of qualities, count of each base
    reads = bases = gc = 0
    for sequence, quality in records(request["inputs"]["reads"]["path"]):
        reads += 1
        bases += len(sequence)
        gc += sequence.count("G") + sequence.count("C")
        for i, (base, score) in enumerate(zip(sequence[:first], quality[:first])):
            if i == len(columns):
                columns.append([0, 0, dict.fromkeys("ACGTN", 0)])
            column = columns[i]
            column[0] += 1
            column[1] += ord(score) - 33
            column[2][base if base in column[2] else "N"] += 1
    with open(request["outputs"]["profile"]["path"], "w", newline="", encoding="utf-8") as f:
        table = csv.writer(f, delimiter="\t", lineterminator="\n")
        table.writerow(["position", "reads", "mean_quality", "A", "C", "G", "T", "N"])
        for i, (count, total, by_base) in enumerate(columns, 1):
            table.writerow([i, count, f"{total / count:.2f}", *by_base.values()])
    return {"reads": reads, "bases": bases, "gc_percent": round(100 * gc / bases, 2) if bases else None, "positions": len(columns)}


def records(path):
    with gzip.open(path, "rt", encoding="ascii") as f:
        while header := f.readline():
            sequence, plus, quality = f.readline().rstrip("\n").upper(), f.readline(), f.readline().rstrip("\n")
            if not header.startswith("@") or not plus.startswith("+") or len(sequence) != len(quality):
                raise ValueError(f"no FASTQ record: {header.rstrip()[:80]}")
            yield sequence, quality
