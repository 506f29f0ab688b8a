#!/usr/bin/env python3
"""Nodes of ONNX models of torchvision's networks and our own: `mezzo export` beside Python's two exporters.

Prints docs/deploy.md's table: how many nodes each one writes with axes of any size, and whether the file agrees with the
network at other sizes than the example's. Runs in the environment of `./run test --slow peers`:

    .deps/peers/bin/python tools/compare_exporters.py --mezzo build/dev/src/cli/mezzo [NAME...]
"""

import argparse
import contextlib
import os
import pathlib
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "deploy" / "peers"))

import judge  # noqa: E402
import networks  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402


def by_tracing(module, inputs, axes, file):
    names = ["in%d" % i for i in range(len(inputs))]
    torch.onnx.export(module, inputs, file, dynamo=False, opset_version=17, input_names=names,
                      dynamic_axes={name: axes for name in names})


def by_dynamo(module, inputs, axes, file):
    shapes = {number: torch.export.Dim(name) for number, name in axes.items()}
    torch.onnx.export(module, inputs, file, dynamo=True, opset_version=18, external_data=False,
                      dynamic_shapes=tuple(shapes for _ in inputs))


def agrees(network, module, file):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    for number, shapes in enumerate([network.shapes, *network.others]):
        inputs = networks.inputs_of(shapes, seed=number + 1)
        found = session.run(None, dict(zip(names, [each.numpy() for each in inputs])))
        expected = judge.outputs_of(module, inputs)
        judge.compare(found, expected, "at %s" % (shapes,), lambda: judge.tolerance_for(network, module, inputs, expected))


@contextlib.contextmanager
def silence():
    """PyTorch prints graphs from C++."""
    kept = os.dup(1), os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        sys.stdout.flush()
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for each in (*kept, nothing):
            os.close(each)


def cell(network, module, export):
    """The number of nodes; where the file fails, at which sizes."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "net.onnx")
        try:
            with warnings.catch_warnings(), silence():
                warnings.simplefilter("ignore")
                export(file)
        except Exception as error:  # of any kind: the exporter's failure is the finding
            print("%s: %s" % (network.name, str(error).strip().splitlines()[0][:300]), file=sys.stderr)
            return "refused"
        nodes = str(len(onnx.load(file).graph.node))
        try:
            agrees(network, module, file)
        except Exception as error:
            print("%s: %s" % (network.name, str(error).strip().splitlines()[0][:300]), file=sys.stderr)
            return nodes + ", wrong at other sizes"
        return nodes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mezzo", required=True)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.mezzo)
    print("| network | `mezzo export`, traced | scripted | `torch.onnx.export` | with `dynamo=True` |\n| --- | --- | --- | --- | --- |")
    for network in networks.all_networks():
        if arguments.names and network.name not in arguments.names:
            continue
        module = networks.made(network)
        inputs = tuple(networks.inputs_of(network.shapes, 1))

        def ours(way, file, network=network, module=module, inputs=inputs):
            script = file + ".pt"
            judge.python_module(module, way, inputs).save(script)
            judge.run_mezzo(program, "export", script, "-o", file, "--no-verify", *judge.input_arguments(network),
                            *judge.axis_arguments(network))

        cells = [cell(network, module, lambda file, way=way: ours(way, file)) if way in network.ways else ""
                 for way in ("traced", "scripted")]
        cells += [cell(network, module, lambda file, export=export: export(module, inputs, network.axes, file))
                  for export in (by_tracing, by_dynamo)]
        print("| %s | %s |" % (network.name, " | ".join(cells)), flush=True)


if __name__ == "__main__":
    main()
