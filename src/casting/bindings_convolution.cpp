// Known operators whose kernels are compiled in: convolutions and recurrent layers.
#include "casting/bindings.h"
#include "casting/kernel.h"

#include <ATen/ops/_convolution_mode_ops.h>
#include <ATen/ops/_convolution_ops.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/conv1d_ops.h>
#include <ATen/ops/conv2d_ops.h>
#include <ATen/ops/conv3d_ops.h>
#include <ATen/ops/conv_tbc_ops.h>
#include <ATen/ops/conv_transpose1d_ops.h>
#include <ATen/ops/conv_transpose2d_ops.h>
#include <ATen/ops/conv_transpose3d_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/cudnn_convolution_ops.h>
#include <ATen/ops/cudnn_convolution_transpose_ops.h>
#include <ATen/ops/gru_cell_ops.h>
#include <ATen/ops/gru_ops.h>
#include <ATen/ops/lstm_cell_ops.h>
#include <ATen/ops/lstm_ops.h>
#include <ATen/ops/mkldnn_rnn_layer_ops.h>
#include <ATen/ops/rnn_relu_cell_ops.h>
#include <ATen/ops/rnn_relu_ops.h>
#include <ATen/ops/rnn_tanh_cell_ops.h>
#include <ATen/ops/rnn_tanh_ops.h>

namespace mezzo::casting {

void bind_convolution(Binder& binder) {
  namespace ops = at::_ops;
  binder.add<ops::conv1d, ops::conv1d_padding, ops::conv2d, ops::conv2d_padding, ops::conv3d,
             ops::conv3d_padding, ops::conv_tbc, ops::conv_transpose1d, ops::conv_transpose2d_input,
             ops::conv_transpose3d_input, ops::convolution, ops::_convolution,
             ops::_convolution_deprecated, ops::_convolution_mode, ops::cudnn_convolution,
             ops::cudnn_convolution_transpose, ops::lstm_input, ops::lstm_data, ops::gru_input,
             ops::gru_data, ops::rnn_tanh_input, ops::rnn_tanh_data, ops::rnn_relu_input,
             ops::rnn_relu_data, ops::lstm_cell, ops::gru_cell, ops::rnn_tanh_cell,
             ops::rnn_relu_cell, ops::_thnn_fused_lstm_cell, ops::_thnn_fused_gru_cell,
             ops::mkldnn_rnn_layer>();
}

}  // namespace mezzo::casting
