"""torchvision's networks through `mezzo export` and `mezzo convert`, judged by ONNX Runtime and PyTorch.

    judge.py --mezzo build/dev/src/cli/mezzo [--only NAME...] [--json FILE]

Each network is traced and scripted by Python. The ONNX file has to agree with the eager network at the example's size and at
others, the converted TorchScript module in its type's precision. Ends with 1 if one result is wrong, or if one was refused that
KNOWN does not name.
"""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

import numpy
import onnx
import onnxruntime
import torch

import networks

TOLERANCE = 1e-4  # of an output's range
LOW = {"float16": 5e-3, "bfloat16": 4e-2}  # of the norm of an output; more where PyTorch's own autocast is off by more

# (network, way, step) that is refused, with the reason: by PyTorch itself, or by ours for what its error says.
KNOWN = {}


class Wrong(Exception):
    pass


class Refused(Exception):
    pass


class Python(Exception):
    """A fault that is in Python's TorchScript already."""


def run_mezzo(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode < 0:
        raise Wrong("mezzo died of signal %d" % -done.returncode)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("mezzo ")]
        raise Refused("\n".join(said) or done.stderr.strip())
    return done.stdout


def outputs_of(module, inputs):
    with torch.no_grad():
        result = module(*inputs)
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [(each.float() if each.is_floating_point() else each).numpy() for each in parts if each is not None]


def noise_of(module, inputs, expected):
    """How far float itself is from float64, of the range: deep networks of random weights multiply rounding."""
    double = copy.deepcopy(module).double()
    with torch.no_grad():
        result = double(*(each.double() for each in inputs))
    parts = result if isinstance(result, (tuple, list)) else [result]
    return max(float(numpy.abs(exact.numpy() - rounded).max()) / max(float(numpy.abs(rounded).max()), 1e-6)
               for exact, rounded in zip([each for each in parts if each is not None], expected))


def tolerance_for(network, module, inputs, expected):
    return TOLERANCE if network.is_detector else max(TOLERANCE, 4 * noise_of(module, inputs, expected))


def compare(found, expected, where, tolerance=lambda: TOLERANCE):
    if len(found) != len(expected):
        raise Wrong("%s: %d outputs, %d expected" % (where, len(found), len(expected)))
    worst = 0.0
    for index, (ours, theirs) in enumerate(zip(found, expected)):
        if ours.shape != theirs.shape:
            raise Wrong("%s: output %d is %s, %s expected" % (where, index, ours.shape, theirs.shape))
        if theirs.size == 0:
            raise Wrong("%s: output %d is empty, which proves nothing" % (where, index))
        span = max(float(numpy.abs(theirs).max()), 1e-6)
        worst = max(worst, float(numpy.abs(ours.astype(float) - theirs.astype(float)).max()) / span)
    if not worst <= TOLERANCE and not worst <= tolerance():
        raise Wrong("%s: off by %.2g of the range" % (where, worst))
    return worst


def differs(made, inputs, expected):
    try:
        compare(outputs_of(made, inputs), expected, "", lambda: 1e-2)
    except (Wrong, RuntimeError):
        return True
    return False


def python_module(module, way, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, inputs, check_trace=False) if way == "traced" else torch.jit.script(module)


def input_arguments(network):
    return ["--input=" + "x".join(map(str, shape)) for shape in network.shapes]


def axis_arguments(network):
    return ["--dynamic=%d:%d=%s" % (index, axis, name) for index in range(len(network.shapes)) for axis, name in network.axes.items()]


def check_dynamic(model, network):
    """No axis that was asked for is a number in the file."""
    for value in model.graph.input:
        for axis, name in network.axes.items():
            dimension = value.type.tensor_type.shape.dim[axis]
            if not dimension.dim_param:
                raise Wrong("axis %s of input '%s' is %d in the file" % (name, value.name, dimension.dim_value))


def runs_at_other_sizes(made, module, network):
    """Python's trace may have numbers in place of all sizes."""
    cases = [networks.inputs_of(shapes, seed=2) for shapes in network.others]
    return not all(differs(made, inputs, outputs_of(module, inputs)) for inputs in cases)


def fails_at_other_sizes(made, network):
    try:
        for shapes in network.others:
            outputs_of(made, networks.inputs_of(shapes, seed=2))
    except RuntimeError:
        return True
    return False


def judge_export(program, network, module, script, folder):
    if not runs_at_other_sizes(torch.jit.load(script), module, network):
        raise Python("the module is fixed to the example's sizes")
    onnx_file = os.path.join(folder, "net.onnx")
    try:
        run_mezzo(program, "export", script, "-o", onnx_file, "--no-verify", *input_arguments(network), *axis_arguments(network))
    except Refused:
        if fails_at_other_sizes(torch.jit.load(script), network):
            raise Python("the module fails at other sizes of some axes") from None
        raise
    model = onnx.load(onnx_file)
    onnx.checker.check_model(onnx_file, full_check=True)
    check_dynamic(model, network)
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    made, worst, frozen = torch.jit.load(script), 0.0, 0
    for number, shapes in enumerate([network.shapes, *network.others]):
        inputs = networks.inputs_of(shapes, seed=number + 1)
        expected = outputs_of(module, inputs)
        if differs(made, inputs, expected):  # Python's trace has numbers in place of sizes
            frozen += 1
            continue

        found = session.run(None, dict(zip(names, [each.numpy() for each in inputs])))
        worst = max(worst, compare(found, expected, "at %s" % (shapes,),
                                   lambda inputs=inputs, expected=expected: tolerance_for(network, module, inputs, expected)))
    if frozen > len(network.others):
        raise Python("the trace is not the network, even at the example's size")
    return {"nodes": len(model.graph.node), "error": worst, "frozen": frozen}


def off_by(ours, theirs):
    """The distance, relative to the norm."""
    return float(numpy.linalg.norm(ours.astype(float) - theirs) / numpy.linalg.norm(theirs))


def by_autocast(network, module, inputs, dtype):
    """Nothing where PyTorch's own autocast does not run."""
    try:
        with torch.autocast("cpu", dtype=getattr(torch, dtype)):
            return outputs_of(module, inputs) if not network.is_detector else []
    except RuntimeError:
        return []


def judge_convert(program, network, module, script, folder, dtype):
    low_file = os.path.join(folder, "low.pt")
    run_mezzo(program, "convert", script, "-o", low_file, "--dtype", dtype)
    low = torch.jit.load(low_file)
    inputs = networks.inputs_of(network.shapes, seed=1)
    found, expected = outputs_of(low, inputs), outputs_of(module, inputs)
    worst, allowed = 0.0, LOW[dtype]
    peers = by_autocast(network, module, inputs, dtype)
    for peer, theirs in zip(peers, expected):
        allowed = max(allowed, 1.5 * off_by(peer, theirs))
    for index, (ours, theirs) in enumerate(zip(found, expected)):
        if network.is_detector:  # 16 bits may choose other boxes
            if not numpy.isfinite(ours.astype(float)).all():
                raise Wrong("output %d is not finite" % index)
            continue
        if ours.shape != theirs.shape:
            raise Wrong("output %d is %s, %s expected" % (index, ours.shape, theirs.shape))
        worst = max(worst, off_by(ours, theirs))
    if not worst <= allowed:
        raise Wrong("off by %.2g of the norm, %.2g allowed" % (worst, allowed))
    return {"error": worst}


def judge(program, network, results):
    def step(way, name, work):
        begin = time.monotonic()
        entry = {"network": network.name, "way": way, "step": name, "seconds": 0.0}
        try:
            found = work()
            entry.update(verdict="right", **(found if isinstance(found, dict) else {}))
        except Python as error:
            found = None
            entry.update(verdict="python", reason=str(error))
        except Refused as error:
            found = None
            entry.update(verdict="refused", reason=str(error))
        except Exception as error:  # whatever a network, PyTorch or a judge throws is a finding
            found = None
            reason = str(error) if isinstance(error, Wrong) else "".join(traceback.format_exception_only(error)).strip()
            entry.update(verdict="python" if name in ("make", "script") else "wrong", reason=reason)
        entry["seconds"] = round(time.monotonic() - begin, 1)
        if name not in ("make", "script") or found is None:
            results.append(entry)
            show(entry)
        return found

    module = step("", "make", lambda: networks.made(network))
    if module is None:
        return
    for way in network.ways:
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "net.pt")
            traced = step(way, "script", lambda: python_module(module, way, tuple(networks.inputs_of(network.shapes, 1))))
            if traced is None:
                continue
            traced.save(script)
            step(way, "export", lambda: judge_export(program, network, module, script, folder))
            for dtype in LOW:
                step(way, dtype, lambda: judge_convert(program, network, module, script, folder, dtype))


def is_known(entry):
    return (entry["network"], entry["way"], entry["step"]) in KNOWN


def show(entry):
    text = entry.get("reason") or ", ".join("%s %.3g" % (key, entry[key]) for key in ("nodes", "error", "frozen") if entry.get(key))
    known = " (known)" if entry["verdict"] != "right" and is_known(entry) else ""
    print("%-38s %-8s %-8s %s%s %5.1f s  %s" % (entry["network"], entry["way"], entry["step"], entry["verdict"], known,
                                               entry["seconds"], text.splitlines()[0][:240] if text else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mezzo", required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    chosen = [each for each in networks.all_networks() if not arguments.only or each.name in arguments.only]
    if not chosen or (arguments.only and len(chosen) != len(set(arguments.only))):
        sys.exit("no such network; there are: %s" % " ".join(each.name for each in networks.all_networks()))
    results = []
    for network in chosen:
        judge(os.path.abspath(arguments.mezzo), network, results)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    counts = {verdict: sum(each["verdict"] == verdict for each in results) for verdict in ("right", "wrong", "refused", "python")}
    unknown = [each for each in results if each["verdict"] == "wrong" or (each["verdict"] == "refused" and not is_known(each))]
    print("%d networks: %d right, %d wrong, %d refused, %d that PyTorch does not make; %d not expected"
          % (len(chosen), *counts.values(), len(unknown)))
    sys.exit(1 if unknown else 0)


if __name__ == "__main__":
    main()
