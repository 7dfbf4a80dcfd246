"""Validates documents by JSON Schemas: validate.py SCHEMA=FILE… (SCHEMA=FILE.jsonl: every line).
Prints a JSON object: for each argument its first error, or null."""
import json
import sys

import jsonschema

results = {}
for argument in sys.argv[1:]:
    schema_path, path = argument.split("=", 1)
    with open(schema_path, encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    with open(path, encoding="utf-8") as file:
        documents = [json.loads(line) for line in file] if path.endswith(".jsonl") else [json.load(file)]
    errors = [error for document in documents for error in validator.iter_errors(document)]
    best = jsonschema.exceptions.best_match(errors)
    results[argument] = None if best is None else f"{best.json_path}: {best.message}"[:500]
json.dump(results, sys.stdout)
