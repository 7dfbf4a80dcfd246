"""Prints the shell steps of a CI file as JSON: GitHub's `run` steps with the job's and their own
environment, or GitLab's `before_script` and `script` lines, which are one shell, as one step."""
import json
import sys

import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    document = yaml.safe_load(file)
steps = []
for name, job in document.get("jobs", {}).items():
    for step in job["steps"]:
        assert ("run" in step) != ("uses" in step), step
        if "run" in step:
            steps.append({"script": step["run"],
                          "env": {**job.get("env", {}), **step.get("env", {})}})
for name, job in document.items():
    if isinstance(job, dict) and "script" in job:
        assert job["allow_failure"]["exit_codes"] == 4
        steps.append({"script": "\n".join(job.get("before_script", []) + job["script"]), "env": job["variables"]})
json.dump(steps, sys.stdout)
