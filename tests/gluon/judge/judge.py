"""The slow test of gluon: judge.py TEST_PROGRAM FOLDER.

Lets MXNet write the reference numbers anew and compares them with the tree's, then has the test program compare its bfloat16
training with MXNet's own, where MXNet's CPU kernels for it run (AVX-512).
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def read(lines):
    return {name: [float(v) for v in values] for name, *values in (line.split() for line in lines if line.strip())}


def generate(mode):
    return subprocess.run([sys.executable, "-B", os.path.join(HERE, "make_reference.py"), mode], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


def check_float():
    made = generate("float")
    if made.returncode != 0:
        sys.exit("MXNet failed:\n" + made.stderr)
    fresh = read(made.stdout.splitlines())
    with open(os.path.join(HERE, "..", "reference_float.txt"), encoding="ascii") as kept_file:
        kept = read(kept_file)
    if list(fresh) != list(kept):
        sys.exit("the names differ: %s" % sorted(set(fresh) ^ set(kept)))
    for name, values in kept.items():
        now = fresh[name]
        if len(now) != len(values):
            sys.exit("%s has %d numbers now, and %d in the tree" % (name, len(now), len(values)))
        for was, value in zip(values, now):
            if abs(was - value) > 2e-6 * max(1.0, abs(was)):
                sys.exit("%s: %.9g in the tree, %.9g now" % (name, was, value))
    print("%d lines of reference numbers agree with MXNet" % len(kept))


def check_bfloat16(program, folder):
    made = generate("bfloat16")
    if made.returncode != 0:
        if "primitive descriptor" not in made.stderr:
            sys.exit("MXNet failed:\n" + made.stderr)
        print("MXNet has no bfloat16 kernels for this processor: that part is left out")
        return
    path = os.path.join(folder, "bfloat16.txt")
    with open(path, "w", encoding="ascii") as out:
        out.write(made.stdout)
    subprocess.run([program, "--gtest_filter=Init.TrainingInBfloat16*"], check=True, env=dict(os.environ, MEZZO_GLUON_JUDGED=path))


check_float()
check_bfloat16(sys.argv[1], sys.argv[2])
