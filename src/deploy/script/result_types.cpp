#include "deploy/script/result_types.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "core/words.h"

namespace mezzo::deploy::script {
namespace {

using torch::jit::Node;
using torch::jit::Value;

enum class Results : std::uint8_t {
  kPromoted,       // the type that the operands promote to
  kFirst,          // the first operand's
  kFirstView,      // the same, of the first operand's values
  kWhole,          // integers or booleans
  kFirstAndWhole,  // the first operand's, then positions
  kOfDtype,        // the `dtype` argument's, else float for a new tensor
  kLikeDtype,      // the `dtype` argument's, else the first operand's
};

struct NamesOf {
  Results results;
  std::string_view names;
};

constexpr NamesOf kNamesOf[] = {
    {Results::kPromoted,
     "add sub rsub mul div divide true_divide floor_divide pow atan2 maximum minimum fmod "
     "remainder cat concat concatenate stack hstack vstack dstack column_stack addcmul addcdiv "
     "lerp relu relu6 gelu silu mish hardswish hardsigmoid hardtanh leaky_relu elu celu selu "
     "prelu rrelu glu softplus softsign softshrink hardshrink tanhshrink log_sigmoid threshold "
     "abs neg negative positive square clamp clamp_min clamp_max clip softmax log_softmax "
     "softmin layer_norm group_norm instance_norm rms_norm linear conv1d conv2d conv3d "
     "conv_transpose1d conv_transpose2d conv_transpose3d _convolution _convolution_mode "
     "convolution "
     "matmul mm bmm addmm addbmm baddbmm addmv mv dot einsum inner outer bilinear tensordot "
     "scaled_dot_product_attention lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell "
     "rnn_relu_cell cosine_similarity normalize where block_diag meshgrid broadcast_tensors "
     "atleast_1d atleast_2d atleast_3d scatter_add index_add scatter_reduce"},
    {Results::kFirst,
     "sigmoid tanh sqrt rsqrt exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh "
     "cosh asinh acosh atanh erf erfc reciprocal floor ceil round trunc frac dropout "
     "feature_dropout alpha_dropout feature_alpha_dropout batch_norm embedding max_pool1d "
     "max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
     "adaptive_avg_pool2d adaptive_avg_pool3d lp_pool1d lp_pool2d pad _pad_enum _pad_circular "
     "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
     "replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
     "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
     "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d grid_sampler "
     "pixel_shuffle pixel_unshuffle channel_shuffle roll flip fliplr flipud rot90 tril triu "
     "masked_fill masked_scatter masked_select index_select index_put index_fill index_copy "
     "gather take take_along_dim scatter fill repeat repeat_interleave tile clone nan_to_num "
     "amax amin logsumexp cumsum cumprod norm linalg_vector_norm local_response_norm bernoulli "
     "im2col col2im unfold_copy index zero copy normal uniform log_normal"},
    {Results::kFirstView,
     "view reshape view_as reshape_as flatten unflatten squeeze unsqueeze permute transpose t "
     "swapaxes swapdims movedim moveaxis numpy_T mT H adjoint expand expand_as contiguous detach "
     "alias select slice narrow diagonal unbind chunk split split_with_sizes tensor_split hsplit "
     "vsplit dsplit unfold as_strided ravel unsafe_chunk unsafe_split unsafe_split_with_sizes"},
    {Results::kWhole,
     "eq ne lt le gt ge equal greater less greater_equal less_equal not_equal logical_and "
     "logical_or logical_not logical_xor isnan isinf isfinite isposinf isneginf isclose isin "
     "is_nonzero argmax argmin argsort nonzero nonzero_numpy count_nonzero bucketize "
     "searchsorted any all bitwise_not bitwise_and bitwise_or bitwise_xor one_hot bincount "
     "randperm multinomial __and__ __or__ __xor__ histc _shape_as_tensor signbit"},
    {Results::kFirstAndWhole,
     "max min sort topk kthvalue median nanmedian mode cummax cummin max_pool1d_with_indices "
     "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d "
     "adaptive_max_pool3d fractional_max_pool2d aminmax"},
    {Results::kOfDtype,
     "zeros ones full empty rand randn eye linspace scalar_tensor arange tensor"},
    {Results::kLikeDtype,
     "zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones new_full "
     "new_empty sum mean prod std var nansum"},
};

const std::unordered_map<std::string_view, Results>& table_of_results() {
  static const auto* const table = [] {
    auto* made = new std::unordered_map<std::string_view, Results>;
    for (const NamesOf& row : kNamesOf) {
      each_word(row.names, [&](std::string_view name) { made->emplace(name, row.results); });
    }
    return made;
  }();
  return *table;
}

std::optional<Results> results_of(std::string_view name) {
  if (const auto found = table_of_results().find(name); found != table_of_results().end())
    return found->second;
  if (name.ends_with('_') && !name.starts_with("__")) {
    // In place: whatever the operator, its result is what it wrote.
    return Results::kFirst;
  }
  return std::nullopt;
}

/// The first operand that holds tensors.
const Fact* first_of(const std::vector<Fact>& facts, const Node& node) {
  for (std::size_t i = 0; i < facts.size(); ++i) {
    c10::TypePtr type = node.input(i)->type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (const auto list = type->cast<c10::ListType>()) type = list->getElementType();
    if (type->kind() == c10::TypeKind::TensorType) return &facts[i];
  }
  return nullptr;
}

/// Are numbers with fractions among the arguments, which make integers float?
bool has_fractions(const Node& node) {
  return std::ranges::any_of(node.inputs(), [](const Value* input) {
    return input->type()->kind() == c10::TypeKind::FloatType ||
           input->type()->kind() == c10::TypeKind::NumberType;
  });
}

Fact promoted_operands(const Node& node, const std::vector<Fact>& facts) {
  Fact result;
  const c10::FunctionSchema& schema = node.schema();
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (name == "condition" || name == "index" || name == "mask" || name == "batch_sizes") continue;
    if (facts[i].kind == Kind::kNothing) continue;
    result = result.kind == Kind::kNothing ? facts[i] : promoted(result, facts[i]);
  }
  const std::string_view name = node.kind().toUnqualString();
  const bool divides = name == "div" || name == "divide" || name == "true_divide" || name == "pow";
  if (result.kind == Kind::kWhole && (divides || has_fractions(node))) result.kind = Kind::kUnknown;
  return result;
}

/// The constant `dtype` argument. Nothing: there is none, or it is empty; kUnknown: it is known at
/// run time alone.
std::optional<Kind> dtype_argument_of(const Node& node, at::ScalarType low) {
  const auto index = node.schema().argumentIndexWithName("dtype");
  if (!index) return std::nullopt;
  const auto value = torch::jit::toIValue(node.input(static_cast<std::size_t>(*index)));
  if (!value) return Kind::kUnknown;
  if (value->isNone()) return std::nullopt;
  return fact_of(static_cast<at::ScalarType>(value->toInt()), false, low).kind;
}

/// aten::to and its relatives.
std::optional<Fact> converted(const Node& node, std::string_view name,
                              const std::vector<Fact>& facts, at::ScalarType low) {
  if (facts.empty()) return std::nullopt;
  if (name == "type_as") return Fact{facts[1].kind, facts[0].sized, true};
  if (name != "to") return std::nullopt;
  Fact result = facts[0];
  if (node.schema().overload_name() == "other") {
    result.kind = facts[1].kind;
    return result;
  }
  if (node.schema().overload_name() == "prim_Device") {
    const auto dtype = torch::jit::toIValue(node.input(2));
    if (!dtype) result.kind = Kind::kUnknown;
    if (dtype && !dtype->isNone())
      result.kind = fact_of(static_cast<at::ScalarType>(dtype->toInt()), false, low).kind;
    return result;
  }
  if (const auto kind = dtype_argument_of(node, low)) result.kind = *kind;
  return result;
}

/// The kind of a new tensor that no argument types.
Kind default_kind(const Node& node, std::string_view name) {
  if (name != "full" && name != "scalar_tensor" && name != "arange" && name != "tensor")
    return Kind::kFloat;
  // The numbers that it is made of decide.
  Kind kind = Kind::kWhole;
  for (const Value* input : node.inputs()) {
    const auto type = input->type()->kind();
    if (type == c10::TypeKind::FloatType && kind == Kind::kWhole) kind = Kind::kFloat;
    if (type == c10::TypeKind::NumberType || type == c10::TypeKind::ListType) kind = Kind::kUnknown;
  }
  return kind;
}

/// May the result have no dimensions although the operand has some?
bool may_lose_dimensions(Results results, std::string_view name) {
  static const std::unordered_map<std::string_view, bool> kNames = [] {
    std::unordered_map<std::string_view, bool> names;
    for (const std::string_view each :
         {"sum",        "mean",      "prod",      "std",    "var",       "nansum",
          "select",     "squeeze",   "unbind",    "dot",    "index",     "norm",
          "amax",       "amin",      "logsumexp", "matmul", "einsum",    "max",
          "min",        "median",    "nanmedian", "view",   "reshape",   "linalg_vector_norm",
          "as_strided", "tensordot", "inner",     "take",   "new_zeros", "new_ones",
          "new_full",   "new_empty", "aminmax",   "mode",   "kthvalue"}) {
      names.emplace(each, true);
    }
    return names;
  }();
  return results == Results::kOfDtype || kNames.contains(name);
}

Fact of_results(Results results, const Node& node, std::string_view name,
                const std::vector<Fact>& facts, at::ScalarType low) {
  const Fact* const first = first_of(facts, node);
  Fact result{.kind = Kind::kUnknown};
  if (results == Results::kFirstAndWhole && node.schema().overload_name() == "other")
    results = Results::kPromoted;
  switch (results) {
    case Results::kPromoted:
      result = promoted_operands(node, facts);
      break;
    case Results::kFirst:
      if (first != nullptr) result = *first;
      // Roots and their like make integers float.
      if (result.kind == Kind::kWhole) result.kind = Kind::kUnknown;
      break;
    case Results::kFirstView:
    case Results::kFirstAndWhole:
    case Results::kLikeDtype:
      if (first != nullptr) result = *first;
      break;
    case Results::kWhole:
      result.kind = Kind::kWhole;
      break;
    case Results::kOfDtype:
      result.kind = default_kind(node, name);
      break;
  }
  if (results != Results::kWhole) {
    if (const auto kind = dtype_argument_of(node, low)) result.kind = *kind;
  }
  // The absolute value of complex numbers is real, and so on.
  const bool changes = result.kind == Kind::kOther && results != Results::kFirstView;
  if (changes || result.kind == Kind::kNothing) result.kind = Kind::kUnknown;
  result.parts.clear();
  if (may_lose_dimensions(results, name)) result.sized = false;
  if (name == "unsqueeze" || name == "flatten") result.sized = true;
  return result;
}

}  // namespace

std::vector<Fact> result_facts(const Node& node, const std::vector<Fact>& facts,
                               at::ScalarType low) {
  bool touched = false;
  for (const Fact& fact : facts) touched = touched || fact.touched;
  std::vector<Fact> results(node.outputs().size(),
                            Fact{.kind = Kind::kUnknown, .touched = touched});
  if (node.maybeSchema() == nullptr || !node.kind().is_aten()) return results;
  const std::string_view name = node.kind().toUnqualString();
  if (const auto fact = converted(node, name, facts, low)) {
    results.at(0) = *fact;
    results[0].touched = touched || fact->kind == Kind::kLow;
    return results;
  }
  if (name == "quantile" || name == "nanquantile") return results;
  const auto kind = results_of(name);
  if (!kind) return results;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool position = i > 0 && *kind == Results::kFirstAndWhole && name != "aminmax";
    results[i] = position ? Fact{.kind = Kind::kWhole, .sized = false}
                          : of_results(*kind, node, name, facts, low);
    results[i].touched = touched;
  }
  return results;
}

bool is_view(const Node& node) {
  if (!node.kind().is_aten()) return false;
  return results_of(node.kind().toUnqualString()) == Results::kFirstView;
}

bool reads_no_values(const Node& node) {
  const std::string_view name = node.kind().toUnqualString();
  return name == "size" || name == "dim" || name == "numel" || name == "device" || name == "len" ||
         name == "stride" || name == "is_cuda" || name == "requires_grad" || name == "sym_size";
}

}  // namespace mezzo::deploy::script
