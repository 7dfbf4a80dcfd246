"""Reads a CSV with the csv module: every row as wide as the header. Prints header and rows as JSON."""
import csv
import json
import sys

with open(sys.argv[1], newline="", encoding="utf-8") as file:
    rows = list(csv.reader(file, strict=True))
assert all(len(row) == len(rows[0]) for row in rows), "rows of different widths"
json.dump({"header": rows[0], "rows": rows[1:]}, sys.stdout)
