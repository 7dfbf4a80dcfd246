"""Reads OpenMetrics text with Prometheus' own parser. Prints families with their samples as JSON."""
import json
import sys

from prometheus_client.openmetrics.parser import text_fd_to_metric_families

families = []
with open(sys.argv[1], encoding="utf-8") as file:
    for family in text_fd_to_metric_families(file):
        samples = [{"name": s.name, "labels": s.labels, "value": s.value,
                    "timestamp": None if s.timestamp is None else float(s.timestamp)}
                   for s in family.samples]
        families.append({"name": family.name, "type": family.type, "unit": family.unit,
                         "help": family.documentation, "samples": samples})
json.dump(families, sys.stdout)
