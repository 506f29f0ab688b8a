# MXNet 1.9.1 judges what `mezzo convert` makes of its models:
#   PYTHONPATH=.deps/mxnet python3.11 judge.py PROGRAM FOLDER [MODEL...]
# Networks with random weights are exported, converted by the program under five sets of options and
# both types, loaded, and compared with amp.convert_model's: types of parameters, and where the
# processor computes it (bfloat16), results.
import json
import os
import subprocess
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import numpy as np

np.bool = bool  # MXNet 1.9.1 asks for these
np.float, np.int, np.object = float, int, object
import mxnet as mx
from mxnet.contrib import amp
from mxnet.gluon.model_zoo import vision

program, folder = sys.argv[1:3]
zoo = ["resnet18_v1", "resnet50_v2", "vgg11", "alexnet", "squeezenet1.0", "densenet121", "inceptionv3", "mobilenet1.0", "mobilenetv2_1.0"]
models = sys.argv[3:] or zoo + ["numpy_resnet50_v2", "ssd_512_resnet50_v1_coco"]
sizes = {"alexnet": 224, "vgg11": 224, "squeezenet1.0": 224, "densenet121": 224, "inceptionv3": 299, "ssd_512_resnet50_v1_coco": 512}
failures = 0


def fail(*what):
    global failures
    failures += 1
    print("failed:", *what)


class Weights(mx.init.Xavier):
    """Factors of 1, too, which GluonCV leaves to the initializer."""

    def _init_weight(self, name, array):
        if array.ndim < 2:
            array[:] = 1
        else:
            super()._init_weight(name, array)


def exported(name):
    mx.random.seed(7)
    if name.startswith("numpy_"):  # as 2.x writes it
        mx.npx.set_np()
        net = vision.get_model(name[len("numpy_") :], classes=10)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        data = mx.np.random.uniform(-1, 1, size=(2, 3, 64, 64))
        net(data)
        prefix = os.path.join(folder, name)
        net.export(prefix)
        mx.npx.set_np(shape=True, array=False)  # what loads the files of numpy mode
        return prefix, data.as_nd_ndarray()
    if name in zoo:
        net = vision.get_model(name, classes=10)
    else:
        from gluoncv.model_zoo import get_model

        net = get_model(name, pretrained=False, pretrained_base=False)
    net.initialize(mx.init.Xavier() if name in zoo else Weights())
    net.hybridize()
    size = sizes.get(name, 64)
    data = mx.nd.random.uniform(-1, 1, shape=(1 if size == 512 else 2, 3, size, size))
    net(data)
    prefix = os.path.join(folder, name)
    net.export(prefix)
    return prefix, data


def option_sets(prefix, dtype):
    symbol = mx.sym.load(prefix + "-symbol.json")
    operators = [n for n in symbol.get_internals().list_outputs() if n.endswith("_fwd_output")]
    excluded = [n[: -len("_output")] for n in operators if "conv" in n or "dense" in n][:2]
    low = amp.list_lp16_ops(dtype if dtype == "float16" else np.dtype([("bfloat16", np.uint16)]))
    full = amp.list_fp32_ops(dtype if dtype == "float16" else np.dtype([("bfloat16", np.uint16)]))
    moved = [n for n in low if n != "FullyConnected"], full + ["FullyConnected"]
    yield "defaults", {}, []
    yield "optional", {"cast_optional_params": True}, []
    yield "lists", {"target_dtype_ops": moved[0], "fp32_ops": moved[1]}, ["--target-ops", ",".join(moved[0]), "--fp32-ops", ",".join(moved[1])]
    tutorial = {"target_dtype_ops": ["Convolution"], "fp32_ops": ["SoftmaxOutput", "FullyConnected"], "cast_optional_params": True}
    yield "tutorial", tutorial, ["--target-ops", "Convolution", "--fp32-ops", "SoftmaxOutput,FullyConnected"]
    yield "excluded", {"excluded_sym_names": excluded, "cast_optional_params": True}, [a for n in excluded for a in ("--exclude", n)]


def compared(symbol):
    """The compared values: the result, or a detector's scores and boxes, before a threshold and the order of nearly equal scores choose."""
    names = [n["name"] for n in json.loads(symbol.tojson(remove_amp_cast=False))["nodes"] if n["op"] in ("softmax", "_contrib_box_decode")]
    internals = symbol.get_internals()
    return mx.sym.Group([internals[n + "_output"] for n in names]) if len(names) > 1 else symbol


def run(symbol, args, auxs, data):
    executor = compared(symbol).simple_bind(mx.cpu(), grad_req="null", data=data.shape)
    executor.copy_params_from(args, auxs, allow_extra_params=True)
    return [o.astype("float32").asnumpy() for o in executor.forward(is_train=False, data=data)]


def can_run(*conversion):
    try:
        return run(*conversion) is not None
    except (mx.base.MXNetError, RuntimeError):
        return False


def name_of(array):
    kind = array.dtype
    return kind.__name__ if isinstance(kind, type) else str(kind)


def judge(name):
    prefix, data = exported(name)
    original = mx.model.load_checkpoint(prefix, 0)
    full = run(*original, data)
    for dtype in ("float16", "bfloat16"):
        for title, options, flags in option_sets(prefix, dtype):
            where = f"{name} {dtype} {title}"
            out = os.path.join(folder, f"{name}-{dtype}-{title}")
            optional = "true" if options.get("cast_optional_params") else "false"
            command = [program, "convert", prefix + "-symbol.json", "--params", prefix + "-0000.params", "-o", out, "--dtype", dtype, "--quiet", "--cast-optional-params", optional]
            done = subprocess.run(command + flags, capture_output=True, text=True)
            if done.returncode != 0:
                fail(where, done.stderr.strip())
                continue
            symbol, args, auxs = mx.model.load_checkpoint(out, 0)
            types, outputs, aux_types = symbol.infer_type(data="float32")
            if None in (types, aux_types) or any(np.dtype(t) != np.float32 for t in outputs):
                fail(where, "MXNet infers the types", types, outputs)
            casts = sum(n["op"] == "amp_cast" for n in json.loads(symbol.tojson(remove_amp_cast=False))["nodes"])
            if casts == 0:
                fail(where, "there are no casts")
            try:
                theirs = amp.convert_model(original[0], dict(original[1]), dict(original[2]), target_dtype=dtype, **options)
            except mx.base.MXNetError:  # its lists leave joined types to Concat, which takes one
                print(where + ": MXNet's own conversion fails")
                theirs = [None, args, auxs]
            for ours, reference in ((args, theirs[1]), (auxs, theirs[2])):
                if sorted(ours) != sorted(reference):
                    fail(where, "other parameters")
                different = [n for n in ours if name_of(ours[n]) != name_of(reference[n])]
                if different:
                    fail(where, len(different), "types differ:", different[0], name_of(ours[different[0]]), name_of(reference[different[0]]))
            # If MXNet refuses to convert a model, an operator has no kernel for the type, and one such writes beyond its memory.
            if dtype == "bfloat16" and (theirs[0] is not None or title != "tutorial"):
                try:
                    low = run(symbol, args, auxs, data)
                except (mx.base.MXNetError, RuntimeError) as error:
                    if theirs[0] is None or can_run(*theirs, data):
                        fail(where, str(error).splitlines()[-1])
                    else:  # operators without a kernel for bfloat16, whoever converts
                        print(where + ": MXNet cannot run its own conversion either:", str(error).strip().splitlines()[-1])
                    continue
                for ours, wanted in zip(low, full):
                    error = np.abs(ours - wanted).max() / np.abs(wanted).max()
                    if not 0 < error < 0.1:
                        fail(where, "differs from float32 by", error)
            for end in ("-symbol.json", "-0000.params"):
                os.remove(out + end)
    for end in ("-symbol.json", "-0000.params"):
        os.remove(prefix + end)
    mx.npx.reset_np()
    print("judged", name, flush=True)


os.makedirs(folder, exist_ok=True)
for model in models:
    judge(model)
print(failures, "failed")
sys.exit(failures != 0)
