"""Reference numbers for the tests of gluon, made by MXNet 1.9.1 itself.

    python make_reference.py float    > ../reference_float.txt
    python make_reference.py bfloat16 > ../reference_bfloat16.txt

Python 3.11 with mxnet==1.9.1 numpy==1.23.5 requests 'graphviz<0.9'. Every line is a name and
numbers. Inputs and first weights are sines, which the C++ side (judged.h) computes again.
"""
import math
import os
import sys

MODE = sys.argv[1] if len(sys.argv) > 1 else "float"
if MODE == "float":
    os.environ["MXNET_MKLDNN_ENABLED"] = "0"  # its float results differ where it fuses
else:
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import numpy as np  # noqa: E402

np.bool = bool  # what mxnet 1.9.1 expects of numpy
import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon, lr_scheduler, nd  # noqa: E402

ROWS, INPUTS, HIDDEN, CLASSES = 12, 8, 6, 3


def sines(count, first, factor):
    return np.array([factor * math.sin(first + 0.7 * i) for i in range(count)], dtype=np.float32)


def say(name, values):
    print(name, *("%.9g" % float(v) for v in values))


@mx.optimizer.Optimizer.register
class AdamW(mx.optimizer.Optimizer):
    """MXNet 2.x's, of which 1.9.1 has the kernel only."""

    def __init__(self, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-6, correct_bias=True, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2, self.epsilon, self.correct_bias = beta1, beta2, epsilon, correct_bias

    def create_state(self, index, weight):
        return nd.zeros(weight.shape), nd.zeros(weight.shape)

    def update(self, index, weight, grad, state):
        self._update_count(index)
        lr, wd, t = self._get_lr(index), self._get_wd(index), self._index_update_count[index]
        if self.correct_bias:
            lr *= math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
        more = {"clip_gradient": self.clip_gradient} if self.clip_gradient else {}
        nd.contrib.adamw_update(weight, grad, state[0], state[1], out=weight, rescale_grad=nd.array([self.rescale_grad]), lr=1,
                                wd=wd, eta=lr, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, **more)


def make_net():
    net = gluon.nn.Sequential(prefix="")
    net.add(gluon.nn.Dense(HIDDEN, in_units=INPUTS, activation="tanh", prefix="a_"))
    net.add(gluon.nn.Dense(CLASSES, in_units=HIDDEN, prefix="b_"))
    net.initialize()
    for k, param in enumerate(net.collect_params().values()):
        param.set_data(nd.array(sines(param.data().size, k, 0.5).reshape(param.shape)))
    return net


def batch(step):
    x = sines(ROWS * INPUTS, 0.1 * step, 1.0).reshape(ROWS, INPUTS)
    return nd.array(x), nd.array(np.arange(ROWS) % CLASSES)


def train(name, optimizer, params, schedule=None, batch_size=ROWS, prepare=None, steps=100):
    net = make_net()
    if schedule is not None:
        params = dict(params, lr_scheduler=schedule)
    if prepare:
        prepare(net)
    trainer = gluon.Trainer(net.collect_params(), optimizer, params, update_on_kvstore=False)
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    rates = []
    for step in range(steps):
        x, y = batch(step)
        with autograd.record():
            loss = criterion(net(x), y)
        loss.backward()
        trainer.step(batch_size)
        rates.append(trainer.learning_rate)
    say(name, np.concatenate([p.data().asnumpy().ravel() for p in net.collect_params().values()]))
    if schedule is not None:
        say(name + ".rates", rates)


def factors(net):
    params = list(net.collect_params().values())
    params[0].lr_mult = 0.5
    params[1].wd_mult = 0.0
    params[3].wd_mult = 0.0


def optimizers():
    train("sgd", "sgd", {"learning_rate": 0.1})
    train("sgd_momentum", "sgd", {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.01})
    train("sgd_clip", "sgd", {"learning_rate": 0.1, "momentum": 0.5, "wd": 0.02, "clip_gradient": 0.05})
    train("sgd_batch", "sgd", {"learning_rate": 0.1, "momentum": 0.9, "rescale_grad": 0.5}, batch_size=7)
    train("sgd_factors", "sgd", {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.05}, prepare=factors)
    train("nag", "nag", {"learning_rate": 0.05})
    train("nag_decay", "nag", {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.02})
    train("nag_clip", "nag", {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.02, "clip_gradient": 0.05})
    train("adam", "adam", {})
    train("adam_decay", "adam", {"learning_rate": 0.01, "wd": 0.02, "epsilon": 1e-4})
    train("adam_clip", "adam", {"learning_rate": 0.01, "wd": 0.1, "clip_gradient": 0.05, "beta1": 0.8, "beta2": 0.99})
    train("adamw", "adamw", {"learning_rate": 0.01, "wd": 0.1})
    train("adamw_clip", "adamw", {"learning_rate": 0.01, "wd": 0.1, "clip_gradient": 0.05})
    train("adamw_plain", "adamw", {"learning_rate": 0.005, "wd": 0.1, "correct_bias": False, "epsilon": 1e-3})
    train("adagrad", "adagrad", {"learning_rate": 0.05})
    train("adagrad_decay", "adagrad", {"learning_rate": 0.05, "wd": 0.02, "eps": 1e-3, "clip_gradient": 0.05})
    train("rmsprop", "rmsprop", {"learning_rate": 0.002})
    train("rmsprop_decay", "rmsprop", {"learning_rate": 0.002, "wd": 0.05, "clip_gradient": 0.05, "epsilon": 1e-4})
    train("rmsprop_centered", "rmsprop", {"learning_rate": 0.002, "centered": True, "wd": 0.05, "epsilon": 1e-3, "clip_weights": 0.45})
    train("lamb", "lamb", {"learning_rate": 0.01, "wd": 0.02})
    train("lamb_bounds", "lamb", {"learning_rate": 0.01, "wd": 0.02, "lower_bound": 0.6, "upper_bound": 1.2, "clip_gradient": 0.05})
    train("lamb_plain", "lamb", {"learning_rate": 0.01, "bias_correction": False})
    train("signum", "signum", {"learning_rate": 0.001, "wd": 0.02, "wd_lh": 0.1})
    train("signum_plain", "signum", {"learning_rate": 0.001, "momentum": 0.0, "wd": 0.02})


def schedules():
    warm = {"warmup_steps": 10, "warmup_begin_lr": 0.01}
    flat = {"warmup_steps": 10, "warmup_begin_lr": 0.01, "warmup_mode": "constant"}
    sgd = {"learning_rate": 0.1, "momentum": 0.9}
    for suffix, more in (("", {}), ("_warm", warm), ("_flat", flat)):
        more = dict(more, base_lr=0.1)
        train("factor" + suffix, "sgd", sgd, lr_scheduler.FactorScheduler(15, 0.5, stop_factor_lr=0.002, **more))
        train("multifactor" + suffix, "sgd", sgd, lr_scheduler.MultiFactorScheduler([20, 50, 51], 0.3, **more))
        train("poly" + suffix, "sgd", sgd, lr_scheduler.PolyScheduler(80, pwr=2, final_lr=0.001, **more))
        train("cosine" + suffix, "sgd", sgd, lr_scheduler.CosineScheduler(80, final_lr=0.001, **more))
    train("adam_cosine", "adam", {"learning_rate": 0.02}, lr_scheduler.CosineScheduler(80, base_lr=0.02))


class Gradient:
    """A parameter with one gradient, as LossScaler asks for it."""

    grad_req = "write"

    def __init__(self):
        self.grad = self._grad = nd.ones((2,))

    def list_grad(self):
        return [self.grad]


def scales():
    from mxnet.contrib.amp.loss_scaler import LossScaler
    rng = np.random.RandomState(3)
    for name, window, chance, steps in (("scale_rare", 2000, 0.0005, 6000), ("scale_often", 5, 0.15, 400), ("scale_falls", 4, 0.9, 60),
                                        ("scale_grows", 3, 0.0, 60)):
        scaler = LossScaler()
        scaler._scale_seq_len = window
        overflows = rng.uniform(size=steps) < chance
        used = []
        param = Gradient()
        for overflow in overflows:
            used.append(scaler.loss_scale)
            param.grad[:] = float("inf") if overflow else 1.0
            assert scaler.has_overflow([param]) == overflow
        changes = [i for i in range(steps) if i == 0 or used[i] != used[i - 1]]
        say(name + ".setting", [window, steps])
        say(name + ".overflows", np.nonzero(overflows)[0])
        say(name + ".changes", [v for i in changes for v in (i, used[i])])


def outputs():
    data = sines(24, 0.3, 2.0)
    cases = [
        ("softmax", (6, 4), (6,), {}),
        ("softmax_scale", (6, 4), (6,), {"grad_scale": 2.5}),
        ("softmax_batch", (6, 4), (6,), {"normalization": "batch"}),
        ("softmax_valid", (6, 4), (6,), {"normalization": "valid", "use_ignore": True, "ignore_label": 1}),
        ("softmax_ignore", (6, 4), (6,), {"use_ignore": True, "ignore_label": 2}),
        ("softmax_smooth", (6, 4), (6,), {"smooth_alpha": 0.2}),
        ("softmax_multi", (2, 3, 4), (2, 4), {"multi_output": True}),
        ("softmax_multi_batch", (2, 3, 4), (2, 4), {"multi_output": True, "normalization": "batch"}),
        ("softmax_multi_valid", (2, 3, 4), (2, 4), {"multi_output": True, "normalization": "valid", "use_ignore": True, "ignore_label": 0}),
        ("softmax_multi_ignore", (2, 3, 4), (2, 4), {"multi_output": True, "use_ignore": True, "ignore_label": 0}),
        ("softmax_shape", (2, 3, 4), (2, 3), {"preserve_shape": True}),
        ("softmax_shape_batch", (2, 3, 4), (2, 3), {"preserve_shape": True, "normalization": "batch"}),
        ("softmax_soft", (6, 4), (6, 4), {"grad_scale": 3.0}),
    ]
    for name, shape, label_shape, options in cases:
        x = nd.array(data.reshape(shape))
        count = int(np.prod(label_shape))
        label = nd.array((np.arange(count) % 3).reshape(label_shape)) if shape != label_shape else nd.array(
            np.abs(sines(count, 1.0, 0.5)).reshape(label_shape))
        run_output(name, x, lambda: nd.SoftmaxOutput(x, label, **options))
    for name, op in (("linear", nd.LinearRegressionOutput), ("logistic", nd.LogisticRegressionOutput), ("mae", nd.MAERegressionOutput)):
        for suffix, shape in (("", (6, 4)), ("_one", (24,)), ("_three", (2, 3, 4))):
            x = nd.array(data.reshape(shape))
            label = nd.array(sines(24, 1.0, 1.0).reshape(shape))
            run_output(name + suffix, x, lambda: op(x, label, grad_scale=1.5))


def run_output(name, x, compute):
    x.attach_grad()
    with autograd.record():
        y = compute()
    y.backward(nd.ones(y.shape) * 7)
    say(name + ".result", y.asnumpy().ravel())
    say(name + ".gradient", x.grad.asnumpy().ravel())


def metrics():
    losses = [nd.array(sines(12, 0.5, 1.0)), nd.array(sines(5, 1.5, 1.0))]
    loss = mx.metric.Loss("l")
    loss.update(0, losses)
    scores = nd.softmax(nd.array(sines(60, 0.2, 2.0).reshape(12, 5)))
    labels = nd.array(np.arange(12) % 5)
    accuracy, top = mx.metric.Accuracy(), mx.metric.TopKAccuracy(top_k=3)
    perplexity, ignoring = mx.metric.Perplexity(None), mx.metric.Perplexity(2)
    for metric in (accuracy, top, perplexity, ignoring):
        metric.update([labels], [scores])
        metric.update([labels[:7]], [scores[:7]])
    say("metrics", [m.get()[1] for m in (loss, accuracy, top, perplexity, ignoring)])


def bfloat16(casts):
    """A small convolutional network: losses and weights, in float, then under amp.init."""
    net = gluon.nn.Sequential(prefix="")
    net.add(gluon.nn.Conv2D(4, 3, padding=1, in_channels=2, prefix="a_"), gluon.nn.Activation("relu"), gluon.nn.MaxPool2D(2, 2),
            gluon.nn.Flatten(), gluon.nn.Dense(3, in_units=4 * 4 * 4, prefix="b_"))
    net.initialize()
    for k, param in enumerate(net.collect_params().values()):
        param.set_data(nd.array(sines(param.data().size, k, 0.3).reshape(param.shape)))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.02, "momentum": 0.9, "wd": 1e-3}, update_on_kvstore=False)
    if casts:
        from mxnet.contrib import amp
        amp.init_trainer(trainer)
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for step in range(30):
        x = nd.array(sines(6 * 2 * 64, 0.1 * step, 1.0).reshape(6, 2, 8, 8))
        y = nd.array(np.arange(6) % 3)
        with autograd.record():
            loss = criterion(net(x), y)
            if casts:
                with amp.scale_loss(loss, trainer) as scaled:
                    autograd.backward(scaled)
        if not casts:
            loss.backward()
        trainer.step(6)
        losses.append(loss.astype("float32").mean().asscalar())
    name = "bfloat16" if casts else "float"
    say(name + ".losses", losses)
    say(name + ".weights", np.concatenate([p.data().astype("float32").asnumpy().ravel() for p in net.collect_params().values()]))


if MODE == "float":
    optimizers()
    schedules()
    scales()
    outputs()
    metrics()
else:
    bfloat16(False)
    from mxnet.contrib import amp
    amp.init(np.dtype([("bfloat16", np.uint16)]))
    bfloat16(True)
