"""The slow test of examples/ssd512: judge.py PROGRAM FOLDER, with MXNet 1.9.1 and GluonCV 0.10.5 on the path.

Lets GluonCV write the reference numbers of the tests anew, has the program train from weights that MXNet saved, and has it convert a
symbol that MXNet made, which MXNet then runs.
"""
import json
import os
import subprocess
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
os.environ["MXNET_STORAGE_FALLBACK_LOG_VERBOSE"] = "0"

import numpy as np

np.bool = bool  # MXNet 1.9.1 asks for it
import mxnet as mx
from mxnet.contrib import amp

HERE = os.path.dirname(os.path.abspath(__file__))
program, folder = sys.argv[1:3]


def read(lines):
    return {name: np.array([float(v) for v in values]) for name, *values in (line.split() for line in lines if line.strip())}


def reference(*arguments):
    made = subprocess.run([sys.executable, "-B", os.path.join(HERE, "make_reference.py"), *arguments], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit("GluonCV failed:\n" + made.stderr)
    return read(made.stdout.splitlines())


def run_program(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("the program failed:\n" + done.stdout + done.stderr)
    return done.stdout


def check_reference():
    fresh = reference()
    with open(os.path.join(HERE, "reference.txt"), encoding="ascii") as kept_file:
        kept = read(kept_file)
    if list(fresh) != list(kept):
        sys.exit("the names differ: %s" % sorted(set(fresh) ^ set(kept)))
    for name, values in kept.items():
        if fresh[name].shape != values.shape or np.abs(fresh[name] - values).max() > 1e-5 * max(1, np.abs(values).max()):
            sys.exit("%s in the tree is not what GluonCV gives" % name)
    print("%d lines of reference numbers agree with GluonCV" % len(kept))


def check_training(side, batch):
    theirs = reference(str(side), str(batch), folder)
    losses = os.path.join(folder, "losses.json")
    run_program("--part", "training", "--params", os.path.join(folder, "ssd.params"), "--data", os.path.join(folder, "batch.safetensors"),
                "--iterations", "4", "--dtype", "bfloat16", "--json", losses)
    with open(losses, encoding="ascii") as file:
        runs = json.load(file)
    keys = ("sum_loss", "cls_loss", "box_loss")
    full, low = (np.array([runs[dtype][key] for key in keys]).T for dtype in ("float32", "bfloat16"))
    wanted = np.array([theirs["losses%d" % i] for i in range(4)])
    # Batch norms of few nearly equal values multiply rounding: 1e-7 of the images are 3e-3 of the last losses.
    if (np.abs(full - wanted).max(axis=1) > [1e-3, 1e-3, 1e-3, 1e-2]).any():
        sys.exit("losses at %d pixels are\n%s\nand GluonCV's\n%s" % (side, full, wanted))
    logged = [[(line["CrossEntropy"], line["SmoothL1"]) for line in runs[dtype]["log"]] for dtype in ("float32", "bfloat16")]
    gap = np.abs(np.array(logged[1]) / np.array(logged[0]) - 1).max()
    if gap > 0.02:
        sys.exit("bfloat16 is %g from float at a printed iteration" % gap)
    print("losses at %d pixels agree with GluonCV to %.1e, bfloat16 with float to %.2f %%" % (side, np.abs(full - wanted).max(), 100 * gap))


def resnet(names):
    """A residual network with the names that the tutorial asserts, ending as imagenet1k-resnet-18 does."""
    sym = mx.sym
    x = sym.BatchNorm(sym.var("data"), fix_gamma=True, eps=2e-5, name="bn_data")
    x = sym.Convolution(x, num_filter=16, kernel=(7, 7), stride=(2, 2), pad=(3, 3), no_bias=True, name="conv0")
    x = sym.Activation(sym.BatchNorm(x, fix_gamma=False, eps=2e-5, name="bn0"), act_type="relu", name="relu0")
    x = sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
    for name in names:
        y = sym.Activation(sym.BatchNorm(x, fix_gamma=False, eps=2e-5, name=name + "_bn1"), act_type="relu", name=name + "_relu1")
        shortcut = sym.Convolution(y, num_filter=32, kernel=(1, 1), stride=(2, 2), no_bias=True, name=name + "_sc")
        y = sym.Convolution(y, num_filter=32, kernel=(3, 3), stride=(2, 2), pad=(1, 1), no_bias=True, name=name + "_conv1")
        x = y + shortcut
    x = sym.Pooling(x, global_pool=True, kernel=(7, 7), pool_type="avg", name="pool1")
    x = sym.FullyConnected(sym.Flatten(x), num_hidden=10, name="fc1")
    return sym.SoftmaxOutput(x, name="softmax")


def with_weights(symbol, data):
    module = mx.mod.Module(symbol)
    module.bind(data_shapes=[("data", data.shape)], label_shapes=[("softmax_label", data.shape[:1])])
    mx.random.seed(3)
    module.init_params(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2))
    return module


def run(symbol, args, auxs, data):
    module = mx.mod.Module(symbol, data_names=["data"], label_names=["softmax_label"])
    module.bind(data_shapes=[("data", data.shape)], label_shapes=[("softmax_label", data.shape[:1])], for_training=False)
    module.set_params(args, auxs)
    module.forward(mx.io.DataBatch(data=[data], label=[mx.nd.ones(data.shape[:1])]), is_train=False)
    # As the tutorial asserts it, of the module.
    kinds = [name_of(module._arg_params[name]) for name in ("conv0_weight", "fc1_bias")]
    return kinds, module.get_outputs()[0].astype("float32").asnumpy()


def name_of(array):
    kind = array.dtype
    return kind.__name__ if isinstance(kind, type) else "bfloat16" if "bfloat16" in str(kind) else str(kind)


def check_symbol(prefix, original, data):
    """The pair that the program's inference half leaves behind, beside amp.convert_model's."""
    _, full = run(*original, data) if original else (None, None)
    for dtype in ("bfloat16", "float16"):
        options = ["--model", prefix] if original else []
        run_program("--part", "inference", "--data-shape", str(data.shape[2]), "--dtype", dtype, "--save-to", folder, *options)
        symbol, args, auxs = mx.model.load_checkpoint(os.path.join(folder, "amp_tutorial_model"), 0)
        types, _, aux_types = symbol.infer_type(data="float32")
        if None in types or None in aux_types:
            sys.exit("MXNet cannot infer the types of the converted model")
        if original:
            # bfloat16 has SoftmaxOutput among its operators in float32 as float16 has.
            theirs = amp.convert_model(original[0], dict(original[1]), dict(original[2]), target_dtype=dtype, target_dtype_ops=["Convolution"],
                                       fp32_ops=["SoftmaxOutput", "FullyConnected"], cast_optional_params=True)
            for ours, others in ((args, theirs[1]), (auxs, theirs[2])):
                if {n: name_of(a) for n, a in ours.items()} != {n: name_of(a) for n, a in others.items()}:
                    sys.exit("parameters have other types than amp.convert_model gives them (%s)" % dtype)
        if dtype == "float16":
            continue  # no convolutions of that type on a CPU
        kinds, low = run(symbol, args, auxs, data)
        if kinds != [dtype, "float32"]:
            sys.exit("conv0_weight and fc1_bias are %s" % kinds)
        if not original:
            plain = symbol.tojson(remove_amp_cast=True)
            full = run(mx.sym.load_json(plain.replace('"__dtype__": "12"', '"__dtype__": "0"')), {n: a.astype("float32") for n, a in args.items()},
                       auxs, data)[1]
        error = np.abs(low - full).max() / np.abs(full).max()
        if not 0 < error < 0.1:
            sys.exit("the model in bfloat16 is %g from float" % error)
        print("MXNet runs the converted model in bfloat16, %.2g of the range from float" % error)


os.makedirs(folder, exist_ok=True)
check_reference()
check_training(128, 4)
images = mx.nd.random.uniform(-1, 1, shape=(1, 3, 64, 64))
module = with_weights(resnet(["stage1_unit1", "stage2_unit1"]), images)
module.save_checkpoint(os.path.join(folder, "imagenet"), 0)
check_symbol(os.path.join(folder, "imagenet"), mx.model.load_checkpoint(os.path.join(folder, "imagenet"), 0), images)
check_symbol(None, None, images)
