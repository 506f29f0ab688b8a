#include "convert/mxnet/layer_shapes.h"

#include <algorithm>

namespace mezzo::convert::mxnet::layers {
namespace {

// Kernel, groups and filters as every convolution has them; false if they cannot be.
bool check_window(Fit& fit, const Sizes& kernel, std::int64_t filters, std::int64_t groups) {
  if (kernel.empty() || kernel.size() > 3 ||
      std::ranges::any_of(kernel, [](auto size) { return size < 1; })) {
    fit.refuse({}, "a kernel of 1 to 3 sizes above 0");
    return false;
  }
  for (const char* key : {"stride", "dilate", "pad"}) {
    const Sizes sizes = fit.sizes(key);
    if (!sizes.empty() && sizes.size() != kernel.size())
      fit.refuse({}, std::string("as many entries of '") + key + "' as of 'kernel'");
  }
  if (filters < 1 || groups < 1 || filters % groups != 0)
    fit.refuse({}, "num_filter above 0, and num_group among its divisors");
  return groups >= 1;
}

// The weight and the bias stand behind `before` other inputs.
void convolution_with(Fit& fit, std::size_t before) {
  const Sizes kernel = fit.sizes("kernel");
  const std::int64_t filters = fit.integer("num_filter", kAny),
                     groups = fit.integer("num_group", 1);
  if (!check_window(fit, kernel, filters, groups)) return;
  const bool is_last = fit.word("layout").ends_with('C');
  const std::int64_t channels = fit.size(0, is_last ? -1 : 1);
  if (fit.input(0)) {
    Sizes data(kernel.size() + 2, kAny);
    fit.want(0, data);
    if (channels > 0 && channels % groups != 0)
      fit.refuse(0, "a number of channels that num_group divides");
  }
  const std::int64_t of_group = channels < 0 ? kAny : channels / groups;
  Sizes weight{filters};
  if (!is_last) weight.push_back(of_group);
  weight.insert(weight.end(), kernel.begin(), kernel.end());
  if (is_last) weight.push_back(of_group);
  fit.want(before, weight);
  fit.want(before + 1, {filters});
  Sizes result(kernel.size() + 2, kAny);
  result[0] = fit.size(0, 0);
  (is_last ? result.back() : result[1]) = filters;
  fit.gives(result);
}

// The size of the first of these inputs that is a list.
std::int64_t length_among(const Fit& fit, std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i)
    if (fit.has_rank(i, 1)) return (*fit.input(i))[0];
  return kAny;
}

void factors_along(Fit& fit, std::int64_t axis) {
  std::int64_t channels = fit.size(0, axis);
  if (channels < 0) channels = length_among(fit, 1, fit.count());
  for (std::size_t i = 1; i < fit.count(); ++i) fit.want(i, {channels});
  KnownShape result = fit.input(0);
  if (result) {
    const auto rank = static_cast<std::int64_t>(result->size());
    const std::int64_t place = axis < 0 ? axis + rank : axis;
    if (place < 0 || place >= rank)
      return fit.refuse({}, "an axis that the data of " + std::to_string(rank) +
                                " dimensions has, not " + std::to_string(axis));
    (*result)[static_cast<std::size_t>(place)] = channels;
  }
  fit.gives(result);
}

std::int64_t gates_of(std::string_view mode) {
  return mode == "lstm" ? 4 : mode == "gru" ? 3 : 1;
}

}  // namespace

void convolution(Fit& fit) {
  convolution_with(fit, 1);
}
void convolution_with_offset(Fit& fit) {
  convolution_with(fit, 2);
}
void convolution_with_mask(Fit& fit) {
  convolution_with(fit, 3);
}

void deconvolution(Fit& fit) {
  const Sizes kernel = fit.sizes("kernel");
  const std::int64_t filters = fit.integer("num_filter", kAny),
                     groups = fit.integer("num_group", 1);
  if (!check_window(fit, kernel, filters, groups)) return;
  const bool is_last = fit.word("layout").ends_with('C');
  if (fit.input(0)) fit.want(0, Sizes(kernel.size() + 2, kAny));
  Sizes weight{fit.size(0, is_last ? -1 : 1)};
  if (!is_last) weight.push_back(filters / groups);
  weight.insert(weight.end(), kernel.begin(), kernel.end());
  if (is_last) weight.push_back(filters / groups);
  fit.want(1, weight);
  fit.want(2, {filters});
  Sizes result(kernel.size() + 2, kAny);
  result[0] = fit.size(0, 0);
  (is_last ? result.back() : result[1]) = filters;
  fit.gives(result);
}

void dense(Fit& fit) {
  const std::int64_t hidden = fit.integer("num_hidden", kAny);
  if (hidden < 1) return fit.refuse({}, "num_hidden above 0");
  const KnownShape& data = fit.input(0);
  const bool is_flat = fit.flag("flatten", true);
  std::int64_t features = kAny;
  if (data && is_flat && !data->empty()) {
    features = 1;
    for (std::size_t d = 1; d < data->size(); ++d) features = times(features, (*data)[d]);
  } else if (data && !is_flat) {
    features = fit.size(0, -1);
  }
  fit.want(1, {hidden, features});
  fit.want(2, {hidden});
  if (is_flat) return fit.gives(Sizes{fit.size(0, 0), hidden});
  KnownShape result = data;
  if (result && !result->empty()) result->back() = hidden;
  fit.gives(result);
}

void batch_norm(Fit& fit) {
  factors_along(fit, fit.integer("axis", 1));
}
void layer_norm(Fit& fit) {
  factors_along(fit, fit.integer("axis", -1));
}
void instance_norm(Fit& fit) {
  factors_along(fit, 1);
}

// A factor a group in 1.x, a channel in 2.x.
void group_norm(Fit& fit) {
  const std::int64_t groups = fit.integer("num_groups", 1), channels = fit.size(0, 1);
  if (groups < 1) return fit.refuse({}, "num_groups above 0");
  const std::int64_t length = length_among(fit, 1, fit.count());
  const bool is_by_group = length == groups || length < 0;
  const std::int64_t wanted = is_by_group ? length : channels < 0 ? length : channels;
  for (std::size_t i = 1; i < fit.count(); ++i) fit.want(i, {wanted});
  fit.gives(fit.input(0));
}

void embedding(Fit& fit) {
  const std::int64_t rows = fit.integer("input_dim", kAny), width = fit.integer("output_dim", kAny);
  if (rows < 1 || width < 1) return fit.refuse({}, "input_dim and output_dim above 0");
  fit.want(1, {rows, width});
  KnownShape result = fit.input(0);
  if (result) result->push_back(width);
  fit.gives(result);
}

// All weights of all layers in one list: per layer and direction the matrices of input and state,
// two biases a gate, and the projection.
void recurrent(Fit& fit) {
  const std::int64_t state = fit.integer("state_size", kAny), layers = fit.integer("num_layers", 1);
  const std::int64_t directions = fit.flag("bidirectional") ? 2 : 1;
  constexpr std::int64_t kMost = 1 << 20;  // what is larger would overflow, and nobody has it
  if (state < 1 || layers < 1 || state > kMost || layers > kMost)
    return fit.refuse({}, "state_size and num_layers above 0");
  const std::int64_t fed_back =
      std::clamp<std::int64_t>(fit.integer("projection_size", state), 1, kMost);
  const bool is_projected = fed_back != state || !fit.word("projection_size").empty();
  const std::int64_t gates = gates_of(fit.word("mode")) * state;
  const auto layer = [&](std::int64_t width) {
    const std::int64_t own = times(gates, width + fed_back + 2);
    return times(directions, own + (is_projected ? fed_back * state : 0));
  };
  const std::int64_t others = times(layers - 1, layer(directions * fed_back));
  const std::int64_t width = fit.size(0, 2);
  const std::int64_t length = length_among(fit, 1, 2);
  if (fit.input(1) && !fit.has_rank(1, 1)) return fit.refuse(1, "(?)");
  if (length >= 0 && width >= 0) {
    fit.want(1, {layer(width) + others});
  } else if (length >= 0) {
    // Some width of the data must make it.
    const std::int64_t rest = length - others - layer(0), step = directions * gates;
    if (rest < step || rest % step != 0)
      fit.refuse(1, "a length of " + std::to_string(others + layer(0)) + " and " +
                        std::to_string(step) + " for each feature of the data");
  }
  fit.want(2, {layers * directions, kAny, fed_back});
  fit.want(3, {layers * directions, kAny, state});
  fit.gives(Sizes{fit.size(0, 0), fit.size(0, 1), directions * fed_back});
}

void leaky_relu(Fit& fit) {
  fit.gives(fit.input(0));
  if (fit.word("act_type") != "prelu" || !fit.input(1)) return;
  const std::int64_t channels = fit.size(0, 1);
  if (fit.has_rank(1, 1) && (*fit.input(1))[0] == 1) return;
  if (fit.has_rank(1, 1)) fit.want(1, {channels});
}

}  // namespace mezzo::convert::mxnet::layers
