#include "convert/mxnet/parameter_shapes.h"

#include <algorithm>

#include "convert/mxnet/attribute_text.h"
#include "convert/mxnet/layer_shapes.h"
#include "convert/mxnet/numpy_operators.h"
#include "convert/mxnet/operator_table.h"
#include "convert/mxnet/shape_fit.h"
#include "core/words.h"

namespace mezzo::convert::mxnet {
namespace {

// Operators of two operands with the same shape.
void alike(Fit& fit) {
  KnownShape result = fit.input(0) ? fit.input(0) : fit.input(1);
  for (std::size_t i = 1; i < fit.count(); ++i) {
    if (!result || !fit.input(i)) continue;
    fit.want(i, *result);
    if (fit.input(i)->size() != result->size()) break;
    for (std::size_t d = 0; d < result->size(); ++d)
      if ((*result)[d] < 0) (*result)[d] = (*fit.input(i))[d];
  }
  fit.gives(result);
}

// Sizes counted from the end are the same, or one is 1.
void broadcast(Fit& fit) {
  if (!fit.input(0) || !fit.input(1)) return;
  Sizes longer = *fit.input(0), shorter = *fit.input(1);
  if (longer.size() < shorter.size()) std::swap(longer, shorter);
  for (std::size_t d = 0; d < shorter.size(); ++d) {
    std::int64_t& size = longer[longer.size() - 1 - d];
    const std::int64_t other = shorter[shorter.size() - 1 - d];
    if (size > 1 && other > 1 && size != other) {
      fit.refuse(1, "sizes that are broadcast to " + text_of(*fit.input(0)));
      return;
    }
    if (size == 1) size = other;
    if (size < 0 && other > 1) size = other;
  }
  fit.gives(longer);
}

// Matrices: rows of the second are as many as columns of the first.
void product(Fit& fit) {
  if (!fit.has_rank(0, 2) || !fit.has_rank(1, 2)) return;
  const bool is_a_turned = fit.flag("transpose_a"), is_b_turned = fit.flag("transpose_b");
  const std::int64_t inner = fit.size(0, is_a_turned ? 0 : 1);
  fit.want(1, is_b_turned ? Sizes{kAny, inner} : Sizes{inner, kAny});
  fit.gives(Sizes{fit.size(0, is_a_turned ? 1 : 0), fit.size(1, is_b_turned ? 0 : 1)});
}

void keep(Fit& fit) {
  fit.gives_all(fit.inputs());
}

void keep_channels(Fit& fit) {
  KnownShape result = fit.input(0);
  const bool is_last = fit.word("layout").ends_with('C');
  for (std::size_t d = 1; result && d < result->size(); ++d)
    if (d != (is_last ? result->size() - 1 : 1)) (*result)[d] = kAny;
  fit.gives(result);
}

void flatten(Fit& fit) {
  if (!fit.input(0) || fit.input(0)->empty()) return;
  std::int64_t rest = 1;
  for (std::size_t d = 1; d < fit.input(0)->size(); ++d) rest = times(rest, (*fit.input(0))[d]);
  fit.gives(Sizes{fit.size(0, 0), rest});
}

void concat(Fit& fit) {
  KnownShape result = fit.input(0);
  if (!result) return;
  const auto rank = static_cast<std::int64_t>(result->size());
  std::int64_t axis = fit.integer("dim", 1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return;
  const auto place = static_cast<std::size_t>(axis);
  for (std::size_t i = 1; i < fit.count(); ++i) {
    if (!fit.has_rank(i, result->size())) return;
    const std::int64_t size = fit.size(i, axis);
    (*result)[place] = size < 0 || (*result)[place] < 0 ? kAny : (*result)[place] + size;
  }
  fit.gives(result);
}

struct ShapeRow {
  std::string_view ops;
  void (*fit)(Fit&);
  std::string_view parameters = {};  ///< tensors that a file must hold
};

constexpr ShapeRow kShapeRows[] = {
    {"Convolution Convolution_v1", layers::convolution, "weight bias"},
    {"_contrib_DeformableConvolution", layers::convolution_with_offset, "weight bias"},
    {"_contrib_ModulatedDeformableConvolution", layers::convolution_with_mask, "weight bias"},
    {"Deconvolution", layers::deconvolution, "weight bias"},
    {"FullyConnected", layers::dense, "weight bias"},
    {"BatchNorm BatchNorm_v1 BatchNormWithReLU _contrib_BatchNormWithReLU CuDNNBatchNorm "
     "_contrib_SyncBatchNorm",
     layers::batch_norm, "gamma beta moving_mean moving_var"},
    {"LayerNorm", layers::layer_norm, "gamma beta"},
    {"InstanceNorm", layers::instance_norm, "gamma beta"},
    {"GroupNorm", layers::group_norm, "gamma beta"},
    {"Embedding _contrib_SparseEmbedding", layers::embedding, "weight"},
    {"RNN", layers::recurrent, "parameters"},
    {"LeakyReLU", layers::leaky_relu, "gamma"},
    {"elemwise_add elemwise_sub elemwise_mul elemwise_div _plus _minus _mul _div _grad_add", alike},
    {"ElementWiseSum add_n", alike},
    {"broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_maximum broadcast_minimum "
     "broadcast_power _npi_add _npi_subtract _npi_multiply _npi_true_divide",
     broadcast},
    {"dot", product},
    {"Activation relu sigmoid tanh softsign hard_sigmoid erf exp log sqrt square abs negative clip "
     "Dropout softmax log_softmax softmin SoftmaxActivation SoftmaxOutput BlockGrad _copy amp_cast "
     "amp_multicast Cast L2Normalization LRN _plus_scalar _minus_scalar _rminus_scalar _mul_scalar "
     "_div_scalar _rdiv_scalar _power_scalar _maximum_scalar _minimum_scalar _npi_add_scalar "
     "_npi_subtract_scalar _npi_multiply_scalar _npi_true_divide_scalar _npx_relu _npx_sigmoid "
     "_contrib_div_sqrt_dim SequenceMask",
     keep},
    {"Pooling Pooling_v1 _contrib_AdaptiveAvgPooling2D _contrib_BilinearResize2D Pad",
     keep_channels},
    {"Flatten", flatten},
    {"Concat", concat},
};

std::string_view own_name(std::string_view op) {
  const OperatorFacts* facts = find_operator(op);
  return facts == nullptr ? classic_name(op) : facts->name;
}

const ShapeRow* shape_row(std::string_view op) {
  const std::string_view name = own_name(op);
  const auto* row = std::ranges::find_if(
      kShapeRows, [&](const ShapeRow& each) { return has_word(each.ops, name); });
  return row == std::end(kShapeRows) ? nullptr : row;
}

// Tensors that attributes switch on and off.
bool is_read(const Node& node, std::string_view op, std::string_view tensor) {
  const auto flag = [&](std::string_view key, bool otherwise) {
    const auto text = written(node, key);
    return text ? flag_of(*text).value_or(otherwise) : otherwise;
  };
  if (tensor == "bias") return !flag("no_bias", op == "Deconvolution");
  if (op == "LeakyReLU" && tensor == "gamma") return written(node, "act_type") == "prelu";
  if (op == "RNN" && tensor == "state_cell") return written(node, "mode") == "lstm";
  if (tensor == "sequence_length") return flag("use_sequence_length", false);
  return true;
}

}  // namespace

std::string text_of(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (const std::int64_t size : sizes)
    text += (text.empty() ? "" : ", ") + (size < 0 ? "?" : std::to_string(size));
  return "(" + text + (sizes.size() == 1 ? ",)" : ")");
}

bool is_parameter(std::string_view op, std::string_view tensor) {
  const ShapeRow* row = shape_row(op);
  return row != nullptr && has_word(row->parameters, tensor);
}

std::optional<std::vector<std::string_view>> tensors_of(const Node& node) {
  const OperatorFacts* facts = find_operator(node.op);
  const ShapeRow* row = shape_row(node.op);
  if (facts == nullptr || facts->takes_many) return std::nullopt;
  const bool is_binary = facts->tensors == std::vector<std::string_view>{"lhs", "rhs"} ||
                         facts->tensors == std::vector<std::string_view>{"data"};
  if (!is_binary && (row == nullptr || row->parameters.empty())) return std::nullopt;
  std::vector<std::string_view> tensors;
  for (const std::string_view tensor : facts->tensors)
    if (is_read(node, facts->name, tensor)) tensors.push_back(tensor);
  return tensors;
}

Shapes fitted(const Node& node, std::vector<KnownShape> inputs) {
  Fit fit(node, std::move(inputs));
  if (const ShapeRow* row = shape_row(node.op)) row->fit(fit);
  return fit.take();
}

}  // namespace mezzo::convert::mxnet
