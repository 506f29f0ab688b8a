// Operators of MXNet that read parameters: which shapes fit their attributes and their data.
#pragma once

#include "convert/mxnet/shape_fit.h"

namespace mezzo::convert::mxnet::layers {

void convolution(Fit& fit);
void convolution_with_offset(Fit& fit);
void convolution_with_mask(Fit& fit);
void deconvolution(Fit& fit);
void dense(Fit& fit);
void batch_norm(Fit& fit);
void layer_norm(Fit& fit);
void instance_norm(Fit& fit);
void group_norm(Fit& fit);
void embedding(Fit& fit);
void recurrent(Fit& fit);
void leaky_relu(Fit& fit);

}  // namespace mezzo::convert::mxnet::layers
