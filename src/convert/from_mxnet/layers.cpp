// Convolutions, pooling and activations with parameters.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "convert/from_mxnet/rows.h"

namespace mezzo::convert::mxnet {
namespace {

// Kernel, stride, dilation and padding, one entry for each spatial dimension.
struct Window {
  Dims kernel, stride, dilate, pad;

  Dims pads(const Dims& more_behind = {}) const {
    Dims both = pad;
    for (std::size_t i = 0; i < pad.size(); ++i)
      both.push_back(pad[i] + (more_behind.empty() ? 0 : more_behind[i]));
    return both;
  }
  std::int64_t extent(std::size_t i) const { return (kernel[i] - 1) * dilate[i] + 1; }
};

Window window_of(const Call& call) {
  Window window{call.list("kernel"), {}, {}, {}};
  const std::size_t rank = window.kernel.size();
  if (rank == 0 || rank > 3 || std::ranges::any_of(window.kernel, [](auto k) { return k < 1; }))
    call.refuse("the kernel is '" + call.text("kernel", "()") + "'; expected 1 to 3 sizes");
  window.stride = call.list("stride", Dims(rank, 1));
  window.dilate = call.list("dilate", Dims(rank, 1));
  window.pad = call.list("pad", Dims(rank, 0));
  for (Dims* sizes : {&window.stride, &window.dilate, &window.pad}) {
    const std::int64_t least = sizes == &window.pad ? 0 : 1;
    if (sizes->empty()) sizes->assign(rank, least);
    if (sizes->size() != rank || std::ranges::any_of(*sizes, [&](auto s) { return s < least; }))
      call.refuse(
          "stride, dilate or pad do not fit the kernel; expected one entry for each of its "
          "dimensions");
  }
  return window;
}

bool has_channels_last(const Call& call, bool may = true) {
  const std::string layout = call.text("layout", "");
  const bool is_last = layout == "NWC" || layout == "NHWC" || layout == "NDHWC";
  if (is_last && may) return true;
  if (!layout.empty() && layout != "NCW" && layout != "NCHW" && layout != "NCDHW")
    call.refuse("the layout is " + layout + "; expected NCW, NCHW or NCDHW" +
                (may ? ", or NWC, NHWC or NDHWC" : ""));
  return false;
}

// The last dimension becomes the second, and the second the last.
Operand channels_first(Call& call, const Operand& x) {
  Dims order(static_cast<std::size_t>(call.rank(x)));
  std::iota(order.begin(), order.end(), 0);
  if (order.size() > 2) std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return call.transpose(x, order);
}

Operand channels_last(Call& call, const Operand& x) {
  Dims order(static_cast<std::size_t>(call.rank(x)));
  std::iota(order.begin(), order.end(), 0);
  if (order.size() > 2) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return call.transpose(x, order);
}

// Sizes behind a window: `channels`, then what is left of each spatial size.
std::optional<Dims> dims_behind(const Operand& x, std::int64_t channels, const Window& window,
                                const Dims& more_behind = {}) {
  if (!x.has_rank(window.kernel.size() + 2)) return std::nullopt;
  Dims dims{(*x.dims)[0], channels};
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    const std::int64_t size = (*x.dims)[i + 2];
    const std::int64_t more = more_behind.empty() ? 0 : more_behind[i];
    const std::int64_t room = size + 2 * window.pad[i] + more - window.extent(i);
    dims.push_back(size < 0 ? kUnknownSize : room / window.stride[i] + 1);
  }
  return dims;
}

Operands convolution(Call& call) {
  const bool is_last = has_channels_last(call);
  const Window window = window_of(call);
  Operands inputs{call.input(0), call.input(1)};
  if (is_last)  // data and weights alike
    for (Operand& input : inputs) input = channels_first(call, input);
  if (!call.flag("no_bias")) inputs.push_back(call.input(2));
  const Attributes attributes{{"kernel_shape", window.kernel},
                              {"strides", window.stride},
                              {"dilations", window.dilate},
                              {"pads", window.pads()},
                              {"group", call.integer("num_group", 1)}};
  const std::int64_t filters = call.integer("num_filter", kUnknownSize);
  const Operand result = call.add("Conv", inputs, attributes,
                                  {inputs[0].element, dims_behind(inputs[0], filters, window)});
  return {is_last ? channels_last(call, result) : result};
}

Operands deconvolution(Call& call) {
  has_channels_last(call, false);
  const Window window = window_of(call);
  const Dims target = call.list("target_shape");
  if (std::ranges::any_of(target, [](std::int64_t size) { return size != 0; }))
    call.refuse("target_shape sets the padding by the input's size; expected pad and adj instead");
  const Dims adjust = call.list("adj", Dims(window.kernel.size(), 0));
  Operands inputs{call.input(0), call.input(1)};
  if (!call.flag("no_bias", true)) inputs.push_back(call.input(2));
  Attributes attributes{{"kernel_shape", window.kernel},
                        {"strides", window.stride},
                        {"dilations", window.dilate},
                        {"pads", window.pads()},
                        {"group", call.integer("num_group", 1)}};
  if (!adjust.empty()) attributes.push_back({"output_padding", adjust});
  std::optional<Dims> dims;
  if (call.input(0).has_rank(window.kernel.size() + 2)) {
    dims = Dims{(*call.input(0).dims)[0], call.integer("num_filter", kUnknownSize)};
    for (std::size_t i = 0; i < window.kernel.size(); ++i) {
      const std::int64_t size = (*call.input(0).dims)[i + 2];
      const std::int64_t more = i < adjust.size() ? adjust[i] : 0;
      dims->push_back(size < 0 ? kUnknownSize
                               : (size - 1) * window.stride[i] - 2 * window.pad[i] +
                                     window.extent(i) + more);
    }
  }
  return {call.add("ConvTranspose", inputs, attributes, {call.input(0).element, dims})};
}

Operand pooled_whole(Call& call, const Operand& x, const std::string& kind) {
  std::optional<Dims> dims = x.dims;
  if (dims) {
    for (std::size_t i = 2; i < dims->size(); ++i) (*dims)[i] = 1;
  }
  const Form form{x.element, dims};
  if (kind == "avg") return call.add("GlobalAveragePool", {x}, {}, form);
  if (kind == "max") return call.add("GlobalMaxPool", {x}, {}, form);
  if (kind == "lp") return call.add("GlobalLpPool", {x}, {{"p", call.integer("p_value", 2)}}, form);
  Dims axes;
  for (std::int64_t axis = 2; axis < call.rank(x); ++axis) axes.push_back(axis);
  return call.add("ReduceSum", {x, call.writer.integers(axes)}, {{"keepdims", std::int64_t{1}}},
                  form);
}

// Zeros around the spatial dimensions, as elements that count.
Operand with_zeros(Call& call, const Operand& x, const Window& window) {
  Dims pads{0, 0};
  pads.insert(pads.end(), window.pad.begin(), window.pad.end());
  const Dims before = pads;
  pads.insert(pads.end(), before.begin(), before.end());
  std::optional<Dims> dims = x.dims;
  for (std::size_t i = 2; dims && i < dims->size() && i - 2 < window.pad.size(); ++i)
    if ((*dims)[i] >= 0) (*dims)[i] += 2 * window.pad[i - 2];
  return call.add("Pad", {x, call.writer.integers(pads), call.writer.number(0, x.element)}, {},
                  {x.element, dims});
}

Operand pooled(Call& call, Operand x) {
  const std::string kind = call.text("pool_type", "max");
  if (kind != "max" && kind != "avg" && kind != "sum" && kind != "lp")
    call.refuse("pool_type is " + kind + "; expected max, avg, sum or lp");
  if (call.flag("global_pool")) return pooled_whole(call, x, kind);
  Window window = window_of(call);
  window.dilate.assign(window.kernel.size(), 1);
  const std::string convention = call.text("pooling_convention", "valid");
  if (convention != "valid" && convention != "full")
    call.refuse("pooling_convention is " + convention + "; expected valid or full");
  // "full" also has the windows that begin inside and end outside: as if there were a stride's
  // worth of padding more behind, which no average counts.
  Dims more(window.kernel.size(), 0);
  if (convention == "full")
    for (std::size_t i = 0; i < more.size(); ++i) more[i] = window.stride[i] - 1;
  const bool is_wide = std::ranges::any_of(more, [](std::int64_t size) { return size != 0; });
  const bool counts = kind != "max" && (kind != "avg" || call.flag("count_include_pad", true));
  const bool is_padded =
      std::ranges::any_of(window.pad, [](std::int64_t size) { return size != 0; });
  if (is_wide && counts && is_padded) {
    x = with_zeros(call, x, window);
    window.pad.assign(window.pad.size(), 0);
  }
  for (std::size_t i = 0; i < more.size(); ++i) {
    if (window.pad[i] + more[i] >= window.kernel[i])
      call.refuse(
          "the padding is not smaller than the kernel; expected a kernel above pad + stride "
          "- 1");
  }
  const Form form{x.element, dims_behind(x, x.dims ? x.dims->at(1) : kUnknownSize, window, more)};
  Attributes attributes{
      {"kernel_shape", window.kernel}, {"strides", window.stride}, {"pads", window.pads(more)}};
  if (kind == "max") return call.add("MaxPool", {x}, attributes, form);
  if (kind == "lp") {
    attributes.push_back({"p", call.integer("p_value", 2)});
    return call.add("LpPool", {x}, attributes, form);
  }
  if (kind == "sum" && is_wide) call.refuse("sums under pooling_convention full; expected valid");
  attributes.push_back({"count_include_pad", std::int64_t{counts && !is_wide ? 1 : 0}});
  Operand mean = call.add("AveragePool", {x}, attributes, form);
  if (kind == "avg") return mean;
  return call.broadcast("Mul", mean, static_cast<double>(product(window.kernel)));
}

Operands pooling(Call& call) {
  if (!has_channels_last(call)) return {pooled(call, call.input(0))};
  return {channels_last(call, pooled(call, channels_first(call, call.input(0))))};
}

// The approximation by a tanh.
Operand gelu_by_tanh(Call& call, const Operand& x) {
  constexpr double kCubic = 0.044715;
  const Operand cube = call.broadcast("Mul", call.broadcast("Mul", x, x), x);
  const Operand sum = call.broadcast("Add", x, call.broadcast("Mul", cube, kCubic));
  const Operand inner =
      call.map("Tanh", call.broadcast("Mul", sum, std::sqrt(2 / std::numbers::pi)));
  return call.broadcast("Mul", call.broadcast("Mul", x, 0.5), call.broadcast("Add", inner, 1));
}

Operand gelu(Call& call, const Operand& x) {
  const Operand inner = call.map("Erf", call.broadcast("Mul", x, std::sqrt(0.5)));
  return call.broadcast("Mul", call.broadcast("Mul", x, 0.5), call.broadcast("Add", inner, 1));
}

Operands leaky_relu(Call& call) {
  const std::string kind = call.text("act_type", "leaky");
  const Operand& x = call.input(0);
  const double slope = call.number("slope", 0.25);
  if (kind == "leaky") return {call.map("LeakyRelu", x, {{"alpha", static_cast<float>(slope)}})};
  if (kind == "elu") return {call.map("Elu", x, {{"alpha", static_cast<float>(slope)}})};
  if (kind == "selu") return {call.map("Selu", x)};
  if (kind == "gelu" || kind == "gelu_erf") return {gelu(call, x)};
  if (kind == "gelu_tanh") return {gelu_by_tanh(call, x)};
  if (kind == "rrelu") {  // what it is on average
    const double mean = (call.number("lower_bound", 0.125) + call.number("upper_bound", 0.334)) / 2;
    return {call.map("LeakyRelu", x, {{"alpha", static_cast<float>(mean)}})};
  }
  if (kind != "prelu")
    call.refuse("act_type is " + kind +
                "; expected leaky, prelu, elu, selu, gelu, gelu_erf, gelu_tanh or rrelu");
  Operand gamma = call.input(1);
  const std::int64_t rank = call.rank(x);
  if (gamma.has_rank(1) && (*gamma.dims)[0] != 1 && rank > 2) {
    Dims shape(static_cast<std::size_t>(rank - 1), 1);
    shape[0] = (*gamma.dims)[0];
    gamma = call.reshape(gamma, shape, shape);
  }
  return {call.add("PRelu", {x, gamma}, {}, form_of(x))};
}

constexpr TranslationRow kLayerRows[] = {
    {"Convolution Convolution_v1", convolution},
    {"Deconvolution", deconvolution},
    {"Pooling Pooling_v1", pooling},
    {"LeakyReLU", leaky_relu, Reads::kAll, true},
};

}  // namespace

std::span<const TranslationRow> layer_rows() {
  return kLayerRows;
}

}  // namespace mezzo::convert::mxnet
