#!/usr/bin/env python3
"""Compares `mezzo convert` with onnxconverter-common's float16 on models that ONNX Runtime loads: how many results load, and agree.

    python3 -m venv venv && venv/bin/pip install onnxruntime==1.31.1 onnx==1.23.2 onnxconverter-common==1.16.0
    venv/bin/python tools/compare_converters.py --mezzo build/dev/src/cli/mezzo /usr/share/libonnx-testdata/data

Prints one line for each converter and mode of inputs and outputs: results that load of the originals that load, and results that agree within
2 % of an output's range of those that were run on the stored inputs.
"""
import argparse
import pathlib
import subprocess
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from onnxconverter_common import float16

RANDOM = ("random", "bernoulli", "training_dropout")


def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def stored_inputs(model, loaded):
    """The stored sample, or None where an input is no tensor."""
    feed = {}
    for i, each in enumerate(loaded.get_inputs()):
        try:
            tensor = onnx.load_tensor(str(model.parent / "test_data_set_0" / f"input_{i}.pb"))
            feed[each.name] = numpy_helper.to_array(tensor)
        except Exception:
            return None
    return feed


def run(loaded, feed):
    typed = {}
    for each in loaded.get_inputs():
        value = feed[each.name]
        if each.type == "tensor(float16)":
            value = value.astype(np.float16)
        typed[each.name] = value
    return loaded.run(None, typed)


def agrees(reference, got):
    for a, b in zip(reference, got):
        if not isinstance(a, np.ndarray) or a.dtype.kind not in "fiub":
            continue
        if not isinstance(b, np.ndarray) or a.shape != b.shape:
            return False
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return False
        a, b = a[finite], b[finite]
        if a.size and np.abs(a - b).max() > 0.02 * max(np.abs(a).max(), 1e-6):
            return False
    return True


def by_mezzo(program, source, target, keep):
    command = [program, "convert", str(source), "-o", str(target), "--profile", "ort", "--verify", "none", "--quiet",
               "--io", "keep" if keep else "low"]
    subprocess.run(command, check=True, capture_output=True)


def by_onnxconverter(source, target, keep):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx.save(float16.convert_float_to_float16(onnx.load(str(source)), keep_io_types=keep), str(target))


def compare(name, convert, models, keep):
    originals = refused = loaded = compared = agreeing = 0
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "out.onnx"
        for model in models:
            original = session(model)
            if original is None:
                continue
            originals += 1
            target.unlink(missing_ok=True)
            try:
                convert(model, target, keep)
            except Exception:
                refused += 1
                continue
            result = session(target)
            if result is None:
                continue
            loaded += 1
            feed = stored_inputs(model, original)
            if feed is None or any(word in str(model) for word in RANDOM):
                continue
            if not keep:  # the original gets what the result gets: inputs in float16
                feed = {name: value.astype(np.float16).astype(np.float32) if value.dtype == np.float32 else value
                        for name, value in feed.items()}
            try:
                reference = run(original, feed)
            except Exception:
                continue
            compared += 1
            try:
                agreeing += agrees(reference, run(result, feed))
            except Exception:
                pass
    print(f"{name}, io {'keep' if keep else 'low'}: {loaded} of {originals} results load ({refused} refused), "
          f"{agreeing} of {compared} that were run agree", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="a folder of ONNX models")
    parser.add_argument("--mezzo", required=True, help="the program")
    arguments = parser.parse_args()
    models = sorted(arguments.folder.rglob("*.onnx"))
    for keep in (True, False):
        compare("mezzo", lambda *a: by_mezzo(arguments.mezzo, *a), models, keep)
        compare("onnxconverter-common", by_onnxconverter, models, keep)


if __name__ == "__main__":
    main()
