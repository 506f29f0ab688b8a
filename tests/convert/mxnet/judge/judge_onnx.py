# MXNet 1.9.1 judges the ONNX models that are made of its networks:
#   PYTHONPATH=.deps/mxnet python3.11 judge_onnx.py PROGRAM FOLDER [MODEL...]
# Networks with random weights are exported with what goes in and comes out; PROGRAM (mezzo_convert_ort_test or
# mezzo_convert_evaluate_test) makes ONNX of each and compares.
import json
import os
import subprocess
import sys

os.environ["MXNET_MKLDNN_ENABLED"] = "0"  # wrong on some networks
os.environ["MXNET_STORAGE_FALLBACK_LOG_VERBOSE"] = "0"

import numpy as np

np.bool = bool  # MXNet 1.9.1 asks for these
np.float, np.int, np.object = float, int, object
import mxnet as mx
from mxnet.gluon.model_zoo import vision

program, folder = sys.argv[1:3]
zoo = ["resnet18_v1", "resnet50_v2", "vgg11", "alexnet", "squeezenet1.0", "densenet121", "inceptionv3", "mobilenet1.0", "mobilenetv2_1.0"]
models = sys.argv[3:] or zoo + ["numpy_resnet18_v1", "numpy_resnet50_v2", "ssd_512_resnet50_v1_coco"]
sizes = {"inceptionv3": 299, "ssd_512_resnet50_v1_coco": 512}


class Weights(mx.init.Xavier):
    def _init_weight(self, name, array):
        if array.ndim < 2:
            array[:] = 1
        else:
            super()._init_weight(name, array)


def save_heads(prefix, data):
    """Scores and boxes of a detector as a network of their own: before a threshold and the order of nearly equal scores choose."""
    symbol, args, auxs = mx.model.load_checkpoint(prefix, 0)
    nodes = json.loads(symbol.tojson())["nodes"]
    heads = mx.sym.Group([symbol.get_internals()[n["name"] + "_output"] for n in nodes if n["op"] in ("softmax", "_contrib_box_decode")])
    executor = heads.simple_bind(mx.cpu(), grad_req="null", data=data.shape)
    executor.copy_params_from(args, auxs, allow_extra_params=True)
    outputs = executor.forward(is_train=False, data=data)
    known = set(heads.list_arguments())
    mx.model.save_checkpoint(prefix + "_heads", 0, heads, {n: a for n, a in args.items() if n in known}, auxs)
    np.savez(prefix + "_heads.npz", **{"in:data": data.asnumpy()}, **{"out:%03d" % i: o.asnumpy() for i, o in enumerate(outputs)})


def export(name):
    mx.random.seed(7)
    in_numpy = name.startswith("numpy_")  # as 2.x writes them
    if in_numpy:
        mx.npx.set_np()
    if name in zoo or in_numpy:
        net = vision.get_model(name.replace("numpy_", ""), classes=10)
    else:
        try:
            from gluoncv.model_zoo import get_model
        except ImportError:
            print("skipped:", name, "(GluonCV is not here)", flush=True)
            return
        net = get_model(name, pretrained=False, pretrained_base=False)
    # Signals keep their size through a classifier; boxes, which grow exponentially, stay finite.
    gaussian = {"rnd_type": "gaussian", "factor_type": "in", "magnitude": 2}
    net.initialize(Weights(**gaussian) if name in zoo or in_numpy else Weights())
    net.hybridize()
    size = sizes.get(name, 224)
    data = mx.nd.random.uniform(-1, 1, shape=(1 if size == 512 else 2, 3, size, size))
    outputs = net(data.as_np_ndarray() if in_numpy else data)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    if not all(np.isfinite(o.asnumpy()).all() for o in outputs):
        print("failed:", name, "is not finite in MXNet itself", flush=True)
        return 1
    prefix = os.path.join(folder, name)
    net.export(prefix)
    if name.startswith("ssd"):
        save_heads(prefix, data)
    np.savez(prefix + ".npz", **{"in:data": data.asnumpy()}, **{"out:%03d" % i: o.asnumpy() for i, o in enumerate(outputs)})
    mx.npx.reset_np()
    done = subprocess.run([program, "--gtest_filter=MxnetNumbers.NetworksOfTheJudge"], env={**os.environ, "MEZZO_MXNET_NETWORKS": folder}, capture_output=True, text=True)
    for file in os.listdir(folder):
        os.remove(os.path.join(folder, file))
    print("judged" if done.returncode == 0 else "failed:\n" + done.stdout, name, flush=True)
    return done.returncode


os.makedirs(folder, exist_ok=True)
failures = sum(1 for name in models if export(name))
print(failures, "failed")
sys.exit(failures != 0)
