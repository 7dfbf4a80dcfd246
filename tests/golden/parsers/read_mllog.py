"""Reads MLPerf log lines with the compliance checker's own parser, and checks their order by its
common rules for training. Prints the lines and what the checker says as JSON."""
import contextlib
import io
import json
import os
import re
import sys
import tempfile

from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.compliance_checker.mlp_parser import ruleset_500

RULES = "training_5.0.0/common.yaml"

lines, errors = ruleset_500.parse_file(sys.argv[1])
assert not errors, errors
with open(os.path.join(os.path.dirname(mlp_compliance.__file__), RULES), encoding="utf-8") as file:
    rules = file.read()
# What is allowed in the open division, without its rule, which reads MLPerf's list of benchmarks.
rules = rules.replace("'compile_time_mins': 0", "'compile_time_mins': 240")
rules = re.sub(r"- KEY:\n +NAME: +submission_division\n(?: +.*\n)+", "", rules)
said = io.StringIO()
with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
    config.write(rules)
    config.flush()
    with contextlib.redirect_stdout(said):
        checker = mlp_compliance.make_checker("training", "5.0.0", False, False)
        valid = checker.check_file(sys.argv[1], config.name)
json.dump({"lines": [{"ms": line.timestamp, "key": line.key, **line.value} for line in lines],
           "valid": bool(valid), "said": said.getvalue()}, sys.stdout)
