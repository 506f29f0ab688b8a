# Writes tests/convert/mxnet/data/onnx with MXNet 1.9.1: small networks, what goes in, and what comes out.
#   PYTHONPATH=.deps/mxnet python3.11 make_onnx_data.py FOLDER
import os
import subprocess
import sys

os.environ["MXNET_STORAGE_FALLBACK_LOG_VERBOSE"] = "0"

import numpy as np

np.bool = bool  # MXNet 1.9.1 asks for it
import mxnet as mx
from mxnet import sym

folder = sys.argv[1]
random = np.random.RandomState(11)


def floats(*shape):
    return random.uniform(-1, 1, shape).astype("float32")


def write(name, symbol, data):
    """Fills every variable without data with random numbers, runs the graph, and saves all."""
    shapes, _, aux_shapes = symbol.infer_shape(**{k: v.shape for k, v in data.items()})
    args = {n: mx.nd.array(data[n] if n in data else floats(*s) * 0.5) for n, s in zip(symbol.list_arguments(), shapes)}
    auxs = {n: mx.nd.array(np.abs(floats(*s)) + 0.1) for n, s in zip(symbol.list_auxiliary_states(), aux_shapes)}
    executor = symbol.bind(mx.cpu(), args, aux_states=auxs, grad_req="null")
    outputs = [o.asnumpy() for o in executor.forward(is_train=False)]
    labels = [n for n in data if n.endswith("label")]
    mx.model.save_checkpoint(os.path.join(folder, name), 0, symbol, {n: a for n, a in args.items() if n not in data}, auxs)
    np.savez_compressed(os.path.join(folder, name + ".npz"), **{"in:" + n: v for n, v in data.items() if n not in labels}, **{"out:%03d" % i: o for i, o in enumerate(outputs)})


def elementwise():
    a, b = sym.var("a"), sym.var("b")
    low, positive = a * 0.9, sym.abs(a) + 0.5
    unary = "relu sigmoid tanh softsign exp abs ceil floor sign sin cos tan arctan sinh cosh arcsinh negative erf square expm1 cbrt degrees radians round rint fix trunc BlockGrad identity logical_not".split()
    heads = [getattr(sym, n)(a * 3) for n in unary]
    heads += [getattr(sym, n)(low) for n in "arcsin arccos arctanh".split()]
    heads += [getattr(sym, n)(positive) for n in "log sqrt rsqrt log1p log2 log10 reciprocal".split()]
    heads += [sym.arccosh(positive + 1), sym.hard_sigmoid(a * 4, alpha=0.3, beta=0.4), sym.clip(a, -0.3, 0.4), sym.smooth_l1(a * 2, scalar=1.5)]
    heads += [sym.Activation(a, act_type=t) for t in ("relu", "sigmoid", "tanh", "softrelu", "softsign")]
    heads += [a + b, a - b, a * b, a / (sym.abs(b) + 0.5), positive**b, sym.maximum(a, b), sym.minimum(a, b), (a * 5) % b, sym.hypot(a, b), a == b, a != b, a > b, a >= b, a < b, a <= b]
    heads += [a + 2, a - 2, 2 - a, a * 3, a / 3, 3 / positive, positive**1.5, 2**a, sym.maximum(a, 0.1), sym.minimum(a, 0.1), (a * 5) % 2, a == 1, a != 1, a > 0.2, a >= 0.2, a < 0.2, a <= 0.2]
    heads += [sym.add_n(a, b, a), sym._internal._logical_and(a, b), sym._internal._logical_or(a, b), sym._internal._logical_xor(a, b), sym.Cast(a * 4, dtype="int32")]
    row = sym.slice_axis(b, axis=3, begin=0, end=1)
    heads += [getattr(sym, "broadcast_" + n)(a, row) for n in "add sub mul maximum minimum hypot equal not_equal greater greater_equal lesser lesser_equal logical_and logical_or logical_xor".split()]
    heads += [sym.broadcast_div(a, sym.abs(row) + 0.5), sym.broadcast_power(positive, row), sym.broadcast_mod(a * 4, row)]
    write("elementwise", sym.Group(heads), {"a": floats(2, 3, 2, 3), "b": floats(2, 3, 2, 3)})


def layers():
    x = sym.var("x")
    conv = sym.Convolution(x, kernel=(3, 3), num_filter=6, num_group=2, pad=(1, 2), stride=(2, 1), name="conv")
    heads = [conv, sym.Convolution(x, kernel=(2, 2), dilate=(2, 1), num_filter=4, no_bias=True, name="dilated")]
    heads += [sym.Deconvolution(x, kernel=(3, 3), num_filter=4, stride=(2, 2), pad=(1, 1), adj=(1, 1), num_group=2, name="up"), sym.Deconvolution(x, kernel=(2, 2), num_filter=4, no_bias=False, name="up_bias")]
    for kind in ("max", "avg", "sum"):
        heads += [sym.Pooling(x, kernel=(3, 2), stride=(2, 2), pad=(1, 1), pool_type=kind), sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type=kind)]
    for kind in ("max", "avg"):
        heads += [sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type=kind, pooling_convention="full"), sym.Pooling(x, kernel=(4, 4), stride=(3, 3), pad=(1, 1), pool_type=kind, pooling_convention="full")]
    heads += [sym.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False), sym.Pooling(x, kernel=(4, 4), stride=(3, 3), pad=(1, 1), pool_type="avg", pooling_convention="full", count_include_pad=False), sym.Pooling(sym.abs(x), kernel=(2, 2), pool_type="lp", p_value=2)]
    heads += [sym.LeakyReLU(x, act_type=t, slope=0.3) for t in ("leaky", "elu", "selu", "gelu")] + [sym.LeakyReLU(x, act_type="prelu", name="prelu")]
    heads += [sym.BatchNorm(x, fix_gamma=f, name="bn%d" % f)[0] for f in (True, False)] + [sym.BatchNorm(x, axis=3, fix_gamma=False, name="bn_last")[0]]
    heads += [sym.LayerNorm(x, name="ln"), sym.LayerNorm(x, axis=1, name="ln1"), sym.InstanceNorm(x, name="inorm"), sym.GroupNorm(x, num_groups=2, name="gnorm"), sym.LRN(x, nsize=3)]
    heads += [sym.L2Normalization(x, mode=m) for m in ("instance", "channel", "spatial")]
    heads += [sym.softmax(x), sym.softmax(x, axis=1, temperature=2.0), sym.softmin(x), sym.log_softmax(x, axis=2), sym.SoftmaxActivation(x, mode="channel"), sym.SoftmaxActivation(x)]
    heads += [sym.FullyConnected(x, num_hidden=5, name="fc"), sym.FullyConnected(x, num_hidden=5, flatten=False, name="fc_rows"), sym.FullyConnected(x, num_hidden=5, no_bias=True, name="fc_bare"), sym.Dropout(x)]
    heads += [sym.UpSampling(x, scale=2, sample_type="nearest"), sym.contrib.BilinearResize2D(x, height=9, width=7), sym.contrib.AdaptiveAvgPooling2D(x), sym.depth_to_space(x, block_size=2), sym.Pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 2, 3, 0), constant_value=2), sym.Pad(x, mode="edge", pad_width=(0, 0, 0, 0, 1, 2, 3, 0)), sym.Pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 1, 2, 3, 0))]
    label = sym.var("softmax_label")
    heads += [sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=3, name="out"), label, name="softmax"), sym.LogisticRegressionOutput(sym.FullyConnected(x, num_hidden=1, name="logit"), sym.var("logistic_label"), name="logistic")]
    write("layers", sym.Group(heads), {"x": floats(2, 4, 7, 5), "softmax_label": np.zeros(2, "float32"), "logistic_label": np.zeros((2, 1), "float32")})


def shapes():
    x, y, m, n = sym.var("x"), sym.var("y"), sym.var("m"), sym.var("n")
    reshaped = [(0, -1), (-1,), (-2,), (0, -3, 0), (-3, -2), (0, 0, -4, 2, -1, 0), (0, -4, -1, 3, -2), (0, 0, -1), (-1, 0, 0), (0, -3, -1, 1), (2, 3, 20)]
    heads = [sym.Reshape(x, shape=s) for s in reshaped] + [sym.Reshape(x, shape=(-1, 0, 5), reverse=True)]
    heads += [sym.Flatten(x), sym.reshape_like(x, sym.Reshape(x, shape=(6, 20))), sym.expand_dims(x, axis=1), sym.expand_dims(x, axis=-1), sym.squeeze(sym.expand_dims(x, axis=1), axis=1), sym.transpose(x, axes=(0, 2, 3, 1)), sym.transpose(x), sym.SwapAxis(x, dim1=1, dim2=3)]
    heads += [sym.Concat(x, x * 2, dim=1), sym.Concat(x, x * 2, dim=-1), sym.stack(x, x * 2, axis=1), sym.slice(x, begin=(None, 1), end=(None, 3)), sym.slice(x, begin=(0, 0, 3), end=(2, None, None), step=(1, 1, -2)), sym.slice_axis(x, axis=-1, begin=1, end=-1), sym.slice_axis(x, axis=2, begin=1, end=None), sym.slice_like(x, y, axes=(2, 3))]
    heads += list(sym.SliceChannel(x, num_outputs=3, axis=1)) + list(sym.SliceChannel(x, num_outputs=2, axis=0, squeeze_axis=True))
    one = sym.slice_axis(x, axis=1, begin=0, end=1)
    heads += [sym.broadcast_to(one, shape=(0, 3, 0, 0)), sym.broadcast_axis(one, axis=1, size=4), sym.broadcast_like(one, x), sym.tile(x, reps=(2, 1, 1, 2)), sym.tile(m, reps=(2, 1, 1)), sym.repeat(x, repeats=2, axis=1), sym.repeat(m, repeats=2), sym.reverse(x, axis=(1, 3)), sym.shape_array(x), sym.size_array(x), sym.zeros_like(x), sym.ones_like(x)]
    for op in ("sum", "mean", "max", "min", "prod"):
        heads += [getattr(sym, op)(x, axis=(1, 2)), getattr(sym, op)(x, axis=1, keepdims=True), getattr(sym, op)(x), getattr(sym, op)(x, axis=1, exclude=True)]
    heads += [sym.norm(x, axis=1), sym.norm(x, ord=1, axis=2, keepdims=True), sym.norm(x), sym.argmax(x, axis=1), sym.argmin(x, axis=2, keepdims=True), sym.argmax(x), sym.argmax_channel(m), sym.topk(m, k=2), sym.sort(m), sym.sort(m, axis=0, is_ascend=False), sym.argsort(m)]
    heads += list(sym.topk(m, k=2, ret_typ="both", axis=0, is_ascend=True))
    heads += [sym.dot(m, n), sym.dot(m, m, transpose_b=True), sym.dot(m, m, transpose_a=True), sym.linalg.gemm2(x, x, transpose_b=True, alpha=2.0), sym.contrib.div_sqrt_dim(x)]
    heads += [sym.batch_dot(sym.Reshape(x, shape=(-3, 0, 0)), sym.Reshape(x, shape=(-3, 0, 0)), transpose_b=True)]
    write("shapes", sym.Group(heads), {"x": floats(2, 3, 4, 5), "y": floats(2, 3, 2, 3), "m": floats(3, 4), "n": floats(4, 2)})


def indexing():
    i, x, c, t, lengths = sym.var("i"), sym.var("x"), sym.var("c"), sym.var("t"), sym.var("lengths")
    heads = [sym.Embedding(i, input_dim=5, output_dim=3, name="words"), sym.take(x, i), sym.take(x, i + 20, axis=1), sym.take(x, i - 3, mode="wrap"), sym.pick(x, sym.slice_axis(i, axis=0, begin=0, end=1).reshape((-1,)), axis=1), sym.pick(x, sym.slice_axis(i, axis=0, begin=0, end=1).reshape((-1,)), axis=1, keepdims=True), sym.one_hot(i, depth=4, on_value=2, off_value=-1)]
    heads += [sym.gather_nd(x, sym.clip(i, 0, 2)), sym.where(c, x, x * -2), sym.where(sym.slice_axis(c, axis=1, begin=0, end=1).reshape((-1,)), x, x * -2), sym.arange(2, 8, 1.5) + 0, sym.contrib.arange_like(x, axis=1), sym.contrib.arange_like(x, start=1, step=0.5), sym.broadcast_add(x, sym.zeros((1, 4)) + sym.ones((1, 4)) * 2)]
    heads += [sym.SequenceMask(t, lengths, use_sequence_length=True, value=-1), sym.SequenceMask(t), sym.SequenceLast(t, lengths, use_sequence_length=True), sym.SequenceLast(t), sym.SequenceReverse(t, lengths, use_sequence_length=True), sym.SequenceReverse(t)]
    heads += [sym.softmax(sym.SwapAxis(sym.slice_axis(t, axis=2, begin=0, end=1).reshape((0, 0)), dim1=0, dim2=1), length=sym.Cast(lengths, dtype="int32"), use_length=True, axis=-1)]
    write("indexing", sym.Group(heads), {"i": np.array([[0, 2, 1], [3, 4, 0]], "float32"), "x": floats(3, 4), "c": (floats(3, 4) > 0).astype("float32"), "t": floats(4, 3, 2), "lengths": np.array([1, 4, 2], "float32")})


def recurrent():
    x, h, c = sym.var("x"), sym.var("h"), sym.var("c")
    for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        for sides in (False, True):
            states = {"state_cell": c} if mode == "lstm" else {}
            net = sym.RNN(x, sym.var("parameters"), h, state_size=3, num_layers=2, bidirectional=sides, mode=mode, state_outputs=True, name="rnn", **states)
            count = 2 * (2 if sides else 1)
            data = {"x": floats(5, 2, 4), "h": floats(count, 2, 3)}
            if mode == "lstm":
                data["c"] = floats(count, 2, 3)
            write(mode + ("_both" if sides else ""), sym.Group(list(net)), data)


def language_models():
    for mode in ("lstm", "gru"):
        words = sym.Embedding(sym.var("data"), input_dim=12, output_dim=4, name="embed")
        fused = mx.rnn.FusedRNNCell(5, num_layers=2, mode=mode, prefix=mode + "_")
        outputs, _ = fused.unroll(6, inputs=words, merge_outputs=True, layout="TNC")
        scores = sym.FullyConnected(sym.Reshape(outputs, shape=(-1, 5)), num_hidden=12, name="pred")
        loss = sym.SoftmaxOutput(scores, sym.Reshape(sym.var("softmax_label"), shape=(-1,)), name="softmax")
        data = {"data": random.randint(0, 12, (6, 3)).astype("float32"), "softmax_label": np.zeros((6, 3), "float32")}
        write("language_" + mode, loss, data)
    for seq in (2, 4):  # buckets of one module, whose parameters are those of the first
        cell = mx.rnn.GRUCell(5, prefix="gru_")
        words = sym.Embedding(sym.var("data"), input_dim=12, output_dim=4, name="embed")
        outputs, _ = cell.unroll(seq, inputs=words, merge_outputs=True, layout="NTC")
        scores = sym.FullyConnected(sym.Reshape(outputs, shape=(-1, 5)), num_hidden=12, name="pred")
        loss = sym.SoftmaxOutput(scores, sym.Reshape(sym.var("softmax_label"), shape=(-1,)), name="softmax")
        write("unrolled_%d" % seq, loss, {"data": random.randint(0, 12, (3, seq)).astype("float32"), "softmax_label": np.zeros((3, seq), "float32")})


def detection():
    x, rows = sym.var("x"), sym.var("rows")
    features = sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=4, name="features")
    scores = sym.Convolution(features, kernel=(1, 1), num_filter=3 * 3, name="scores")
    scores = sym.softmax(sym.Reshape(sym.transpose(scores, axes=(0, 2, 3, 1)), shape=(0, -1, 3)) * 6)
    moves = sym.Flatten(sym.transpose(sym.Convolution(features, kernel=(1, 1), num_filter=3 * 4, name="moves"), axes=(0, 2, 3, 1)))
    anchors = sym.contrib.MultiBoxPrior(features, sizes=(0.4, 0.7), ratios=(1, 2))
    found = sym.contrib.MultiBoxDetection(sym.transpose(scores, axes=(0, 2, 1)), moves, anchors, nms_threshold=0.4, threshold=0.3)
    # Rows behind the best 12 are what the memory held before, with the class -1.
    best = sym.slice_axis(sym.contrib.MultiBoxDetection(sym.transpose(scores, axes=(0, 2, 1)), moves, anchors, nms_threshold=0.4, threshold=0.3, nms_topk=12, force_suppress=True), axis=1, begin=0, end=12)
    decoded = [sym.contrib.box_decode(sym.Reshape(moves, shape=(0, -1, 4)), anchors, std0=0.1, std1=0.2, std2=0.3, std3=0.4, clip=0.2, format="corner"), sym.contrib.box_decode(sym.Reshape(moves, shape=(0, -1, 4)), anchors)]
    nms = [sym.contrib.box_nms(rows, overlap_thresh=0.3, valid_thresh=0.2, topk=k, id_index=i, force_suppress=f, out_format=o)[0] for k, i, f, o in ((-1, 0, False, "corner"), (6, 0, True, "corner"), (8, -1, False, "center"), (8, 0, False, "corner"))]
    clipped = sym.contrib.MultiBoxPrior(features, sizes=(0.9,), ratios=(1, 0.5), clip=True, steps=(0.3, 0.2), offsets=(0.25, 0.5))
    corner = random.uniform(0, 1, (2, 14, 2))
    boxes = np.concatenate([random.randint(0, 3, (2, 14, 1)), random.permutation(28).reshape(2, 14, 1) / 28, corner, corner + random.uniform(0.1, 0.8, (2, 14, 2))], axis=2).astype("float32")
    write("detection", sym.Group([found, best, anchors, clipped] + decoded + nms), {"x": floats(2, 2, 3, 4), "rows": boxes})


def numpy_mode():
    """Operators that 2.x exports hold; 1.9.1 has them in numpy mode, some under other names."""
    mx.npx.set_np()
    np_, npx = sym.np, sym.npx
    x, y, v, c = (sym.var(n).as_np_ndarray() for n in "xyvc")
    i = sym.var("i", dtype="int32").as_np_ndarray()
    positive = np_.abs(x) + 0.5
    heads = [getattr(np_, n)(x * 2) for n in "exp absolute sign floor ceil fix trunc rint sin cos tan arctan sinh cosh tanh arcsinh cbrt square expm1 degrees radians negative".split()]
    heads += [getattr(np_, n)(positive) for n in "log sqrt log1p log2 log10 reciprocal".split()] + [npx.relu(x), npx.sigmoid(x), np_.clip(x, -0.3, 0.4)]
    heads += [x + y, x - y, x * y, x / positive, positive**y, (x * 5) % positive, np_.maximum(x, y), np_.minimum(x, v), np_.hypot(x, v)]
    heads += [x + 2, x - 1, 1 - x, x * 1.5, x / 2, 2 / positive, positive**2, 2**x, (x * 5) % 2, 5 % positive, np_.maximum(x, 0.1)]
    heads += [(i + 1) * x, i + 0.5, i / 2, i * 3, (x > 0) * y, (x > 0) + (y > 0) * 2]
    heads += [x > y, x < 0.2, np_.where(c, x, v), np_.where(x > 0, x, y * 2), np_.where(c, 1.0, x), np_.where(c, x, 2.0), np_.logical_not(x > 0).astype("float32")]
    heads += [(a * 1.0) for a in (x >= y, x <= 0.1, x == x, x != y)]
    for op in ("sum", "mean", "max", "min", "prod", "var", "std"):
        f = getattr(np_, op)
        heads += [f(x, axis=(1, 2)), f(x, axis=1, keepdims=True), f(x), f(x, axis=-1)]
    heads += [np_.var(x, axis=1, ddof=1), np_.sum(i), np_.mean(i), np_.argmax(x, axis=1), np_.argmin(x, axis=2), np_.argmax(x)]
    heads += [np_.matmul(x, np_.swapaxes(y, 1, 2)), np_.matmul(x, v), np_.dot(x, v), np_.dot(v, v), np_.einsum("abc,adc->abd", x, y), np_.einsum("abc,c->ab", x, v)]
    # 1.9.1 infers wrong shapes beside hstack, and for whatever else reads what concatenate (axis None) and vstack read.
    heads += [np_.concatenate([x, y], axis=1), np_.concatenate([x * 1, y * 1], axis=None), np_.stack([x, y], axis=1), np_.vstack([x * 3, y * 3]), np_.vstack([v * 1, v * 1])]
    heads += [x.reshape(-1, 5), x.reshape(2, 20), npx.reshape(x, (-2, -5)), npx.reshape(x, (-4,)), npx.reshape(x, (-2, -6, 2, -1, -4)), npx.reshape(np_.expand_dims(x, 0), (-3, -4)), npx.reshape(x, (-1, 10), reverse=True)]
    heads += [x.transpose(), np_.transpose(x, (1, 0, 2)), np_.moveaxis(x, 0, 2), np_.moveaxis(x, (0, 1), (2, 0)), np_.squeeze(np_.expand_dims(x, 1)), np_.flip(x, 1), np_.flip(x), np_.tile(v, (2, 2)), np_.repeat(x, 2, axis=1), np_.broadcast_to(v, (2, 4, 5)), x[0], x[:, 1:3]]
    heads += list(np_.split(x, 2, axis=1)) + list(np_.split(x, [1, 3], axis=1))
    heads += [np_.pad(x, ((0, 0), (1, 2), (0, 3)), mode="constant", constant_values=2), np_.full_like(x, 3) + x, np_.ones((4, 1)) * x, np_.zeros((4, 1)) + x, np_.arange(5) + x, np_.full((4, 1), 2) * x]
    heads += [npx.softmax(x), npx.log_softmax(x, axis=1), npx.batch_flatten(x), npx.pick(x, np_.ones((2, 4))), npx.one_hot(i, 3), npx.topk(x, k=2), npx.gather_nd(v, np_.ones((1, 2))), np_.take(v, i, mode="clip"), npx.batch_dot(x, y, transpose_b=True), npx.leaky_relu(x, act_type="gelu"), npx.activation(x, act_type="softrelu"), npx.dropout(x)]
    heads += [npx.fully_connected(x, sym.var("fc_weight").as_np_ndarray(), sym.var("fc_bias").as_np_ndarray(), num_hidden=3, flatten=False), npx.embedding(i, sym.var("embed_weight").as_np_ndarray(), input_dim=4, output_dim=3), npx.layer_norm(x, sym.var("ln_gamma").as_np_ndarray(), sym.var("ln_beta").as_np_ndarray())]
    write("numpy", sym.Group([h.as_nd_ndarray() for h in heads]), {"x": floats(2, 4, 5), "y": floats(2, 4, 5), "v": floats(5), "c": np.array([[1], [0], [2], [0]], "float32"), "i": np.array([[0], [3], [1], [2]], "int32")})


def numpy_layers():
    """Pooling with the channels last, beside convolutions, in numpy mode."""
    mx.npx.set_np()
    x = sym.var("x").as_np_ndarray()
    convolved = sym.npx.convolution(x, sym.var("conv_weight").as_np_ndarray(), sym.var("conv_bias").as_np_ndarray(), kernel=(3, 3), num_filter=4, pad=(1, 1))
    normed = sym.npx.batch_norm(convolved, *(sym.var("bn_" + n).as_np_ndarray() for n in ("gamma", "beta", "running_mean", "running_var")), fix_gamma=False)
    last = sym.np.transpose(normed, (0, 2, 3, 1))
    heads = [normed] + [sym.npx.pooling(last, kernel=(3, 2), stride=(2, 2), pad=(1, 1), pool_type=t, layout="NHWC") for t in ("max", "avg")] + [sym.npx.pooling(last, kernel=(1, 1), global_pool=True, pool_type=t, layout="NHWC") for t in ("max", "avg")]
    write("numpy_layers", sym.Group([h.as_nd_ndarray() for h in heads]), {"x": floats(2, 3, 5, 6)})


def attention():
    """A block of BERT: heads side by side, weights, values, a norm and a dense layer; and one over another sequence."""
    c, x, memory = sym.contrib, sym.var("x"), sym.var("memory")
    heads = 2
    qkv = sym.FullyConnected(x, num_hidden=3 * 8, flatten=False, name="qkv")
    weights = sym.softmax(c.interleaved_matmul_selfatt_qk(qkv, heads=heads), axis=-1)
    sums = c.interleaved_matmul_selfatt_valatt(qkv, weights, heads=heads)
    block = sym.LayerNorm(x + sym.FullyConnected(sums, num_hidden=8, flatten=False, name="out"), name="ln")
    block = sym.LeakyReLU(sym.FullyConnected(block, num_hidden=6, flatten=False, name="ffn"), act_type="gelu")
    kv = sym.FullyConnected(memory, num_hidden=2 * 8, flatten=False, name="kv")
    cross = c.interleaved_matmul_encdec_valatt(kv, sym.softmax(c.interleaved_matmul_encdec_qk(x, kv, heads=heads), axis=-1), heads=heads)
    write("attention", sym.Group([block, cross]), {"x": floats(4, 3, 8), "memory": floats(5, 3, 7)})


# oneDNN computes some float operators wrongly, and the fused RNN not at all without it.
if len(sys.argv) == 2:
    for oneDNN, parts in (("0", "elementwise layers shapes indexing detection attention numpy_mode numpy_layers"), ("1", "recurrent language_models")):
        subprocess.run([sys.executable, __file__, folder, *parts.split()], env={**os.environ, "MXNET_MKLDNN_ENABLED": oneDNN}, check=True)
for name in sys.argv[2:]:
    globals()[name]()
