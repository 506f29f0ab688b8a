"""Reference numbers for the tests of examples/ssd512, made by GluonCV 0.10.5 on MXNet 1.9.1.

    python make_reference.py > reference.txt
    python make_reference.py SIDE BATCH FOLDER      # larger sizes: losses, and the files that the program reads

Every line is a name and numbers. Weights and data follow from a hash of their names and places, which the C++ side
(ssd512_test.cpp) computes again.
"""
import json
import os
import re
import struct
import sys
import warnings

os.environ["MXNET_MKLDNN_ENABLED"] = "0"  # its decoder of boxes is wrong
os.environ["MXNET_STORAGE_FALLBACK_LOG_VERBOSE"] = "0"

import numpy as np  # noqa: E402

np.bool = bool  # what mxnet 1.9.1 expects of numpy
warnings.simplefilter("ignore")
import gluoncv as gcv  # noqa: E402
import mxnet as mx  # noqa: E402
from gluoncv.model_zoo import get_model  # noqa: E402
from gluoncv.model_zoo.ssd.target import SSDTargetGenerator  # noqa: E402
from mxnet import autograd, gluon, nd  # noqa: E402

ITERATIONS = 4


def hashed(name, shape):
    """Numbers between 0 and 1."""
    seed = 2166136261
    for byte in name.encode():
        seed = ((seed ^ byte) * 16777619) % 2**32
    h = (np.arange(int(np.prod(shape)), dtype=np.uint64) * 2654435761 + seed) % 2**32
    h ^= h >> np.uint64(15)
    h = h * 2246822519 % 2**32
    h ^= h >> np.uint64(13)
    h = h * 3266489917 % 2**32
    h ^= h >> np.uint64(16)
    return (h.astype(np.float64) / 2**32).astype(np.float32).reshape(shape)


def between(name, shape, bound):
    return (hashed(name, shape) * np.float32(2) - np.float32(1)) * np.float32(bound)


def common_name(name):
    predictor = re.search(r"convpredictor(\d+)_conv0_(\w+)", name)
    if predictor:
        number = int(predictor[1])
        return "%s_predictors_%d_%s" % ("box" if number % 2 else "class", number // 2, predictor[2])
    name = re.sub("^.*expand_", "expand_", re.sub(r"^.*resnetv1\d+_", "", name))
    return re.sub("^dense0_", "output_", name).replace("moving_", "running_")


def weights_of(name, shape, last_gamma=0):
    last = re.fullmatch(r"stage\d_batchnorm(\d+)_gamma", name)
    if last and int(last[1]) % 3 == (2 if int(last[1]) < 3 else 0) and int(last[1]) != 3:
        return np.full(shape, last_gamma, np.float32)  # of a bottleneck
    if name.endswith(("gamma", "running_var")):
        return np.ones(shape, np.float32)
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    return between(name, shape, np.sqrt(3 / np.prod(shape[1:])))


def make_net(side):
    net = get_model("ssd_512_resnet50_v1_coco", pretrained_base=False, norm_layer=gluon.nn.BatchNorm)
    net.initialize()
    with autograd.train_mode():
        anchors = net(nd.zeros((1, 3, side, side)))[2]
    for name, parameter in net.collect_params().items():
        if "anchor" not in name:
            parameter.set_data(nd.array(weights_of(common_name(name), parameter.shape)))
    return net, anchors


def batch_of(side, batch, anchors):
    return (nd.array(between("data", (batch, 3, side, side), 1)), nd.array(hashed("cls_targets", (batch, anchors))),
            nd.array(hashed("box_targets", (batch, anchors, 4))))


def save_safetensors(path, arrays):
    header, blob = {}, b""
    for name, array in arrays.items():
        data = np.ascontiguousarray(array.asnumpy().astype("<f4"))
        header[name] = {"dtype": "F32", "shape": list(data.shape), "data_offsets": [len(blob), len(blob) + data.nbytes]}
        blob += data.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + blob)


def say(name, values):
    print(name, *("%.7g" % float(v) for v in np.asarray(values).ravel()), flush=True)


def train(net, data, cls_targets, box_targets):
    """The tutorial's loop: three losses an iteration, and some of the first outputs."""
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001, "wd": 0.0005, "momentum": 0.9})
    mbox_loss = gcv.loss.SSDMultiBoxLoss()
    for i in range(ITERATIONS):
        with autograd.record():
            cls_pred, box_pred, _ = net(data)
            losses = mbox_loss([cls_pred], [box_pred], [cls_targets], [box_targets])
            autograd.backward(losses[0])
        trainer.step(1)
        if i == 0:
            say("cls_preds", cls_pred.asnumpy().ravel()[::97])
            say("box_preds", box_pred.asnumpy().ravel()[::7])
        say("losses%d" % i, [kind[0].sum().asscalar() for kind in losses])


def say_losses(mbox_loss, anchors):
    """Hard negatives among real positives, and targets that do not count."""
    cls_pred, box_pred = nd.array(between("a", (2, anchors, 81), 3)), nd.array(between("b", (2, anchors, 4), 2))
    kinds = np.floor(hashed("c", (2, anchors)) * 100) - 90
    kinds = np.where(kinds < -80, -1, np.maximum(kinds, 0)).astype(np.float32)
    losses = mbox_loss([cls_pred], [box_pred], [nd.array(kinds)], [nd.array(hashed("d", (2, anchors, 4)))])
    for name, loss in zip(("mined_sum", "mined_cls", "mined_box"), losses):
        say(name, loss[0].asnumpy())


def say_detections(net, anchors):
    cls_pred, box_pred = nd.array(between("e", (2, anchors.shape[1], 81), 6)), nd.array(between("f", (2, anchors.shape[1], 4), 2))
    boxes = net.bbox_decoder(box_pred, anchors)
    ids, scores = net.cls_decoder(nd.softmax(cls_pred, axis=-1))
    rows = nd.concat(*[nd.concat(ids[:, :, i:i + 1], scores[:, :, i:i + 1], boxes, dim=-1) for i in range(80)], dim=1)
    kept = nd.contrib.box_nms(rows, overlap_thresh=0.45, topk=400, valid_thresh=0.01, id_index=0, score_index=1, coord_start=2,
                              force_suppress=False)[:, :100]
    say("decoded", boxes[0].asnumpy())
    say("detections", kept.asnumpy())


def say_targets(anchors):
    labelled = [[[3, 5, 40, 61], [30, 20, 60, 64], [0, 0, 9, 9], [-40, -30, 100, 90]], [[10, 12, 30, 30], [-1, -1, -1, -1], [-1, -1, -1, -1], [-1, -1, -1, -1]]]
    kinds = [[[7], [0], [79], [15]], [[3], [-1], [-1], [-1]]]
    generator = SSDTargetGenerator(iou_thresh=0.5, stds=(0.1, 0.1, 0.2, 0.2), negative_mining_ratio=-1)
    for i in range(2):  # one image at a time, as GluonCV's transform calls it
        classes, boxes, _ = generator(anchors, None, nd.array(labelled[i:i + 1]), nd.array(kinds[i:i + 1]))
        say("class_targets%d" % i, classes.asnumpy())
        say("box_targets%d" % i, boxes.asnumpy())


def say_resnet50():
    """The network that the tutorial converts for inference."""
    net = mx.gluon.model_zoo.vision.resnet50_v1()
    net.initialize()
    data = nd.array(between("images", (2, 3, 64, 64), 1))
    net(data)
    for name, parameter in net.collect_params().items():
        parameter.set_data(nd.array(weights_of(common_name(name), parameter.shape, last_gamma=0.5)))
    say("resnet50", net(data).asnumpy().ravel()[::10])


def main():
    side, batch = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (64, 4)
    net, anchors = make_net(side)
    data = batch_of(side, batch, anchors.shape[1])
    if len(sys.argv) > 3:
        net.save_parameters(os.path.join(sys.argv[3], "ssd.params"))
        save_safetensors(os.path.join(sys.argv[3], "batch.safetensors"), dict(zip(("data", "cls_targets", "box_targets"), data)))
    else:
        say("anchors", anchors.asnumpy())
        say_targets(anchors)
        say_losses(gcv.loss.SSDMultiBoxLoss(), anchors.shape[1])
        say_detections(net, anchors)
        say_resnet50()
    train(net, *data)


main()
