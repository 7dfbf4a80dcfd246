#!/usr/bin/env python3
"""On mixed clusters of emulated devices: the planner's plan and even plans, predicted and measured.

    paced_plans.py [--program heteroperf] [--clusters 10] [--steps 4] [--out FOLDER]

Cluster i is drawn from seed i: 2 or 3 classes, 4 to 8 devices, speeds within 4 x, memories and links
that differ. Every plan has 48 samples of llm nano a step. Even plans: data parallel over all devices
and a pipeline over all of them. Fails (exit code 1) where the planner's plan is not the fastest, or
is measured more than 7 % from its prediction.
"""
import argparse, json, os, random, subprocess, sys

BATCH = 48


def cluster(seed):
    draw = random.Random(seed)
    kinds = draw.choice([2, 2, 3])
    total = draw.choice([4, 6, 8])
    counts = [1] * kinds
    for _ in range(total - kinds):
        counts[draw.randrange(kinds)] += 1
    classes, ranks, links, efficiency = [], [], [], []
    for k in range(kinds):
        name, rate = f"class{k}", 1e9 * (draw.uniform(2.5, 4) if k == 0 else draw.uniform(1, 2))
        classes.append({"name": name, "kind": "paced", "memory_bytes": draw.choice([1, 2, 4]) << 30,
                        "threads": 1, "rates_ops_per_second": {"fp32": rate}})
        efficiency.append({"class": name, "operation": "memory", "shape": "stream",
                           "precision": "fp32", "ops_per_second": rate * draw.uniform(0.25, 0.5),
                           "source": "given; bytes per second"})
        ranks.append({"count": counts[k], "class": name, "host": f"host{k}", "cluster": name})
        for other in range(k + 1):
            far = other != k
            links.append({"between": [f"class{other}", name],
                          "latency_s": 5e-5 if far else 1e-5,
                          "bandwidth_bytes_per_s": 1e9 * (draw.uniform(0.05, 0.5) if far
                                                          else draw.uniform(0.5, 2)),
                          "source": "given"})
    return {"_format": "heteroperf-cluster", "_version": 1, "name": f"mixed {seed}",
            "classes": classes, "ranks": ranks, "links": links, "efficiency": efficiency}, total


def call(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"paced_plans: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def measured(program, folder, name, steps, words):
    out = os.path.join(folder, name)
    call([program, "run", "llm", "--size", "nano", "--steps", str(steps), "--out", out,
          "--set", "measure.peak_s=0", "--set", "measure.evaluation_samples=1", *words])
    with open(os.path.join(out, "record.json")) as file:
        record = json.load(file)
    prediction = record["prediction"]
    return prediction["step_time_s"], prediction["measured"]["step_time_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="heteroperf")
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--out", default="paced-plans")
    options = parser.parse_args()
    bad = 0
    print(f"{'cluster':8} {'plan':>9} {'measured':>9} {'off':>7}   {'even dp':>8} {'even pp':>8}")
    for seed in range(options.clusters):
        folder = os.path.join(options.out, f"cluster-{seed}")
        os.makedirs(folder, exist_ok=True)
        machine, devices = cluster(seed)
        path, plan = os.path.join(folder, "cluster.json"), os.path.join(folder, "plan.json")
        with open(path, "w") as file:
            json.dump(machine, file, indent=1)
        call([options.program, "plan", "llm", "--size", "nano", "--cluster", path, "--batch",
              str(BATCH), "-o", plan])
        run = lambda name, words: measured(options.program, folder, name, options.steps, words)
        predicted, best = run("planned", ["--cluster", path, "--plan", plan])
        even = [run("even-dp", ["--cluster", path, "--dp", str(devices), "--micro-batch",
                                str(BATCH // devices), "--micro-batches", "1"])[1]]
        even.append(run("even-pp", ["--cluster", path, "--pp", str(devices), "--micro-batch", "4",
                                    "--micro-batches", str(BATCH // 4)])[1])
        off = best / predicted - 1
        bad += best >= min(even) or abs(off) > 0.07
        print(f"{seed:<8} {predicted:8.4f}s {best:8.4f}s {100 * off:+6.2f}%   "
              f"{even[0] / best:7.2f}x {even[1] / best:7.2f}x", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
