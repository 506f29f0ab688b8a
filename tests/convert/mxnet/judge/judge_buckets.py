# MXNet 1.9.1 judges the buckets of language models that convert_bucketing_module makes:
#   PYTHONPATH=.deps/mxnet python3.11 judge_buckets.py PROGRAM FOLDER
# PROGRAM (mezzo_convert_mxnet_test) converts the exported graphs of two lengths under four sets of options and both types. MXNet loads
# them into a BucketingModule, infers all types, compares the types of parameters with its own conversion, and runs bfloat16.
import os
import subprocess
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import numpy as np

np.bool = bool  # MXNet 1.9.1 asks for it
import mxnet as mx
from mxnet.contrib import amp

program, folder = sys.argv[1:3]
LENGTHS, BATCH, WORDS, HIDDEN = (3, 5), 2, 12, 8
failures = 0


def fail(*what):
    global failures
    failures += 1
    print("failed:", *what)


def graph(kind, length):
    cells = {"lstm": mx.rnn.LSTMCell, "gru": mx.rnn.GRUCell}
    fused = kind.startswith("fused_") and mx.rnn.FusedRNNCell(HIDDEN, mode=kind[6:], prefix=kind[6:] + "_")
    cell = fused or cells[kind](HIDDEN, prefix=kind + "_")
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=WORDS, output_dim=HIDDEN, name="embed")
    outputs, _ = cell.unroll(length, inputs=words, merge_outputs=True, layout="NTC")
    scores = mx.sym.FullyConnected(mx.sym.Reshape(outputs, shape=(-1, HIDDEN)), num_hidden=WORDS, name="pred")
    return mx.sym.SoftmaxOutput(scores, mx.sym.Reshape(mx.sym.var("softmax_label"), shape=(-1,)), name="softmax")


def module_of(symbols, args=None, auxs=None):
    """A BucketingModule of these graphs, bound for all lengths."""
    module = mx.mod.BucketingModule(lambda key: (symbols[key], ["data"], ["softmax_label"]), default_bucket_key=max(LENGTHS))
    shapes = lambda key: ([mx.io.DataDesc("data", (BATCH, key), layout="NT")], [mx.io.DataDesc("softmax_label", (BATCH, key), layout="NT")])
    module.bind(*shapes(max(LENGTHS)), for_training=False)
    if args is None:
        module.init_params(mx.init.Uniform(0.5))
    else:
        module.set_params(args, auxs)
    for key in LENGTHS:
        module.switch_bucket(key, *shapes(key))
    return module


def run(module):
    results = []
    for key in LENGTHS:
        data = mx.nd.array(np.arange(BATCH * key).reshape(BATCH, key) * 5 % WORDS)
        batch = mx.io.DataBatch([data], [mx.nd.zeros((BATCH, key))], bucket_key=key, provide_data=[mx.io.DataDesc("data", (BATCH, key), layout="NT")],
                                provide_label=[mx.io.DataDesc("softmax_label", (BATCH, key), layout="NT")])
        module.forward(batch, is_train=False)
        results.append(module.get_outputs()[0].astype("float32").asnumpy())
    return results


def name_of(array):
    kind = array.dtype
    return kind.__name__ if isinstance(kind, type) else str(kind)


def option_sets(dtype):
    kind = dtype if dtype == "float16" else np.dtype([("bfloat16", np.uint16)])
    low, full = amp.list_lp16_ops(kind), amp.list_fp32_ops(kind)
    yield "defaults", {}
    yield "optional", {"cast_optional_params": True}
    yield "lists", {"target_dtype_ops": [n for n in low if n != "FullyConnected"], "fp32_ops": full + ["FullyConnected"]}
    yield "excluded", {"excluded_sym_names": ["pred"], "cast_optional_params": True}


def judge(kind):
    mx.random.seed(5)
    symbols = {key: graph(kind, key) for key in LENGTHS}
    original = module_of(symbols)
    args, auxs = original.get_params()
    full = run(original)
    for key, symbol in symbols.items():
        symbol.save(os.path.join(folder, "lm_%d-symbol.json" % key))
    mx.nd.save(os.path.join(folder, "lm-0000.params"), {"arg:" + n: a for n, a in args.items()})
    done = subprocess.run([program, "--gtest_filter=MxnetConversion.BucketsOfTheJudge"], env={**os.environ, "MEZZO_MXNET_BUCKETS": folder}, capture_output=True, text=True)
    if done.returncode != 0:
        return fail(kind, done.stdout)
    for dtype in ("float16", "bfloat16"):
        for title, options in option_sets(dtype):
            where = "%s %s %s" % (kind, dtype, title)
            loaded = {key: mx.model.load_checkpoint(os.path.join(folder, "%s-%s-%d" % (dtype, title, key)), 0) for key in LENGTHS}
            shared = loaded[LENGTHS[0]][1]
            for key, (symbol, own, _) in loaded.items():
                types, outputs, _ = symbol.infer_type(data="float32", softmax_label="float32")
                if None in types or any(np.dtype(t) != np.float32 for t in outputs):
                    fail(where, "length", key, "types are", types, outputs)
                if {n: name_of(a) for n, a in own.items()} != {n: name_of(a) for n, a in shared.items()}:
                    fail(where, "buckets have parameters of different types")
            try:
                theirs = amp.convert_model(symbols[LENGTHS[0]], dict(args), dict(auxs), target_dtype=dtype, **options)[1]
            except mx.base.MXNetError as error:
                print(where + ": MXNet's own conversion fails")
            else:
                different = ["%s %s %s" % (n, name_of(shared[n]), name_of(theirs[n])) for n in shared if name_of(shared[n]) != name_of(theirs[n])]
                if different:
                    fail(where, "types differ, ours and MXNet's:", *different)
            if dtype == "bfloat16":
                low = run(module_of({key: symbol for key, (symbol, _, _) in loaded.items()}, shared, auxs))
                error = max(np.abs(a - b).max() for a, b in zip(low, full)) / max(np.abs(b).max() for b in full)
                # The lists take away FullyConnected, and the excluded name the only one that is no cell's: RNN is float32 in bfloat16.
                nothing_is_low = title == "lists" or (title == "excluded" and kind.startswith("fused"))
                if not (error == 0 if nothing_is_low else 0 < error < 0.05):
                    fail(where, "differs from float32 by", error)
    print("judged", kind, flush=True)


os.makedirs(folder, exist_ok=True)
for name in ("lstm", "gru", "fused_lstm", "fused_gru"):
    judge(name)
print(failures, "failed")
sys.exit(failures != 0)
