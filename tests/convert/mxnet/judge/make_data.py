# Writes the small files of tests/convert/mxnet/data with MXNet 1.9.1: PYTHONPATH=.deps/mxnet python3.11 make_data.py FOLDER
import sys

import numpy as np

np.bool = bool  # MXNet 1.9.1 asks for it
import mxnet as mx

folder = sys.argv[1]
mx.random.seed(1)
with mx.name.Prefix("small_"):
    net = mx.gluon.nn.HybridSequential(prefix="small_")
    net.add(mx.gluon.nn.Conv2D(4, 3, in_channels=3, prefix="conv_"), mx.gluon.nn.BatchNorm(in_channels=4, prefix="norm_"), mx.gluon.nn.Activation("relu", prefix="relu_"), mx.gluon.nn.Dense(2, in_units=144, prefix="dense_"))
net.initialize()
net.hybridize()
net(mx.nd.ones((1, 3, 8, 8)))
net.export(folder + "/small")
dense = mx.nd.array([[1, 0, 2], [0, 0, 0], [0, 3, 0]])
mx.nd.save(folder + "/arrays.params", {
    "dense": dense,
    "rows": dense.tostype("row_sparse"),
    "cells": dense.tostype("csr"),
    "half": mx.nd.array([1.5, -2], dtype="float16"),
    "counts": mx.nd.array([3, 4], dtype="int64"),
    "bytes": mx.nd.array([7], dtype="uint8"),
})
