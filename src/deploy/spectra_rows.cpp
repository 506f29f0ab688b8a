// Fourier transforms. Results are pairs along a last axis where ATen's are complex.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <optional>

#include "deploy/onnx_complex.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;
constexpr std::int64_t kLastPlace = std::numeric_limits<std::int64_t>::max();

/// A length as a list of one integer, and as a number if it is the same in all runs.
struct Length {
  std::string name;
  std::optional<std::int64_t> fixed;
};

/// A signal while axes of it are transformed.
struct Signal {
  Parts parts;
  std::int64_t rank;
  at::ScalarType type;
};

std::string in_type(C c, const Length& length, at::ScalarType type) {
  if (length.fixed) return c.g.number(static_cast<double>(*length.fixed), type);
  return c.g.cast(length.name, at::kLong, type);
}

/// The length of an axis, or the one that the caller asks for.
Length transform_length(C c, const Signal& signal, std::int64_t axis, const OnnxValue* asked,
                        std::optional<std::int64_t> fixed) {
  if (asked == nullptr) return {c.sizes(signal.parts[0], axis, axis + 1), fixed};
  if (asked->is_constant()) return {c.g.ints({asked->to_int()}), asked->to_int()};
  return {c.g.list_of(*asked), std::nullopt};
}

/// ONNX's transform along an axis; inverses are divided by the length.
Parts transformed(C c, const Signal& signal, std::int64_t axis, const Length* length, bool inverse,
                  bool half) {
  const bool is_real = signal.parts[1].empty();
  std::string x = is_real ? c.g.op("Unsqueeze", {signal.parts[0], c.g.ints({-1})})
                          : c.g.pairs({signal.parts[0], signal.parts[1]});
  const bool alone = signal.rank == 1;  // ONNX wants a batch
  if (alone) x = c.unsqueezed(x, {0});
  OnnxAttributes attributes{{"inverse", std::int64_t{inverse}}, {"onesided", std::int64_t{half}}};
  Names in = {x, length == nullptr ? "" : c.one("Squeeze", {length->name})};
  if (c.g.opset() >= 20) {
    in.push_back(c.g.integer(axis + alone));
  } else {
    attributes["axis"] = axis + alone;
  }
  std::string made = c.one("DFT", in, attributes);
  if (alone) made = c.squeezed(made, {0});
  const Names parts = c.g.parts_of(made);
  return {parts[0], parts[1]};
}

Parts scaled(C c, const Parts& parts, const std::string& factor, std::string_view op = "Mul") {
  return {c.one(op, {parts[0], factor}), parts[1].empty() ? "" : c.one(op, {parts[1], factor})};
}

/// ATen's norms beside ONNX's: nothing forward, a division by the length back.
Parts with_norm(C c, const Parts& parts, const Length& length, const std::string& norm,
                bool inverse, at::ScalarType type) {
  if (norm == "backward") return parts;
  const bool root = norm == "ortho";
  const std::string_view op = inverse ? "Mul" : "Div";
  if (length.fixed) {
    const auto n = static_cast<double>(*length.fixed);
    return scaled(c, parts, c.g.number(root ? std::sqrt(n) : n, type), op);
  }
  const std::string n = in_type(c, length, type);
  return scaled(c, parts, root ? c.one("Sqrt", {n}) : n, op);
}

std::string norm_of(C c) {
  return c.has("norm") ? c.s("norm") : "backward";
}

/// How often each number of half a spectrum stands in the whole: twice, but for the first, and for
/// the last if the length is even. In the sizes [bins, 1, ...].
std::string weights(C c, const Length& length, const std::string& bins,
                    std::optional<std::int64_t> fixed_bins, std::int64_t after,
                    at::ScalarType type) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(after + 1), 1);
  if (length.fixed && fixed_bins) {
    at::Tensor numbers = at::full({*fixed_bins}, 2, at::TensorOptions(type));
    numbers.select(0, 0).fill_(1);
    if (*length.fixed % 2 == 0 && *fixed_bins > *length.fixed / 2)
      numbers.select(0, *length.fixed / 2).fill_(1);
    shape[0] = *fixed_bins;
    return c.g.tensor(numbers.reshape(shape));
  }
  const std::string places =
      c.one("Range", {c.g.integer(0), c.one("Squeeze", {bins}), c.g.integer(1)});
  const std::string twice = c.one("Mul", {places, c.g.ints({2})});
  const std::string once =
      c.one("Or", {c.one("Equal", {places, c.g.ints({0})}), c.one("Equal", {twice, length.name})});
  const std::string numbers = c.one("Where", {once, c.g.number(1, type), c.g.number(2, type)});
  shape[0] = -1;
  return c.one("Reshape", {numbers, c.g.ints(shape)});
}

/// The real signal of half a spectrum.
std::string of_half(C c, const Signal& signal, std::int64_t axis, const Length& length,
                    std::optional<std::int64_t> fixed_bins) {
  Parts x = signal.parts;
  if (length.fixed && fixed_bins && *fixed_bins > *length.fixed / 2 + 1) {
    fixed_bins = *length.fixed / 2 + 1;
    for (std::string& part : x) part = c.sliced(part, axis, 0, *fixed_bins);
  }
  const std::string bins = c.sizes(x[0], axis, axis + 1);
  const std::string factors =
      weights(c, length, bins, fixed_bins, signal.rank - 1 - axis, signal.type);
  const Signal whole{scaled(c, x, factors), signal.rank, signal.type};
  return transformed(c, whole, axis, &length, /*inverse=*/true, /*half=*/false)[0];
}

/// The axes of a transform, and the lengths that were asked for: null, those that they have.
struct Axes {
  std::vector<std::int64_t> axes;
  std::vector<OnnxValue> lengths;  // as many, or none
};

Axes transform_axes(C c) {
  Axes found;
  if (c.takes("s") && c.has("s")) found.lengths = c.arg("s").elements();
  if (c.takes("n") && c.has("n")) found.lengths = {c.arg("n")};
  const auto count = static_cast<std::int64_t>(found.lengths.size());
  if (c.has("dim") && c.arg("dim").operand()->kind != Operand::Kind::kList) {
    found.axes = {c.i("dim")};
  } else if (c.has("dim")) {
    found.axes = c.is("dim");
  } else {
    for (std::int64_t d = count == 0 ? 0 : c.rank() - count; d < c.rank(); ++d)
      found.axes.push_back(d);
  }
  for (std::int64_t& axis : found.axes) axis = axis < 0 ? axis + c.rank() : axis;
  return found;
}

Signal signal_of(C c) {
  const at::ScalarType type = c.out_type();
  Parts parts = parts_of(c);
  for (std::string& part : parts) part = c.g.cast(part, c.type(), type);
  return {parts, c.rank(), type};
}

/// A length of the k-th axis, where the caller asks for one.
const OnnxValue* asked(const Axes& axes, std::size_t k) {
  if (axes.lengths.empty()) return nullptr;
  const OnnxValue& one = axes.lengths[k];
  return one.is_constant() && one.to_int() == -1 ? nullptr : &one;
}

std::optional<std::int64_t> fixed_size(C c, std::int64_t axis) {
  const std::int64_t size = c.fixed_size("self", axis);
  return size < 0 ? std::nullopt : std::optional(size);
}

void transform(C c, Signal* signal, const Axes& axes, std::size_t k, bool inverse, bool half,
               const std::string& norm) {
  const std::int64_t axis = axes.axes[k];
  const OnnxValue* const given = asked(axes, k);
  const Length length = transform_length(c, *signal, axis, given, fixed_size(c, axis));
  signal->parts =
      transformed(c, *signal, axis, given == nullptr ? nullptr : &length, inverse, half);
  signal->parts = with_norm(c, signal->parts, length, norm, inverse, signal->type);
}

Names whole_spectrum(C c, bool inverse) {
  Signal signal = signal_of(c);
  const Axes axes = transform_axes(c);
  for (std::size_t k = 0; k < axes.axes.size(); ++k)
    transform(c, &signal, axes, k, inverse, false, norm_of(c));
  return {c.g.pairs({signal.parts[0], signal.parts[1]})};
}

/// Half the spectrum of real numbers; its last axis is transformed first.
Names half_spectrum(C c) {
  Signal signal = signal_of(c);
  const Axes axes = transform_axes(c);
  for (std::size_t k = axes.axes.size(); k-- > 0;)
    transform(c, &signal, axes, k, false, k + 1 == axes.axes.size(), norm_of(c));
  return {c.g.pairs({signal.parts[0], signal.parts[1]})};
}

/// Real numbers of half their spectrum.
Names real_of_half(C c) {
  Signal signal = signal_of(c);
  const Axes axes = transform_axes(c);
  const std::size_t last = axes.axes.size() - 1;
  for (std::size_t k = 0; k < last; ++k) transform(c, &signal, axes, k, true, false, norm_of(c));
  const std::int64_t axis = axes.axes[last];
  const OnnxValue* const given = asked(axes, last);
  const std::optional<std::int64_t> bins = fixed_size(c, axis);
  Length length;
  if (given != nullptr) {
    length = transform_length(c, signal, axis, given, {});
    for (std::size_t k = 0; !length.fixed && k < c.g.variants(); ++k) {
      if (c.example("self", k).size(axis) != c.result(0, k).toTensor().size(axis) / 2 + 1)
        c.refuse("its length follows from the inputs, and is not that of the spectrum");
    }
  } else {
    const std::string all = c.sizes(signal.parts[0], axis, axis + 1);
    length.name = c.one("Mul", {c.one("Sub", {all, c.g.ints({1})}), c.g.ints({2})});
    if (bins) length = {c.g.ints({2 * (*bins - 1)}), 2 * (*bins - 1)};
  }
  if (signal.parts[1].empty()) c.refuse("a spectrum of real numbers; make it complex first");
  const std::string made = of_half(c, signal, axis, length, bins);
  return {with_norm(c, {made, ""}, length, norm_of(c), true, signal.type)[0]};
}

Names shifted(C c, std::int64_t more) {
  std::string x = c.x();
  std::vector<std::int64_t> axes;
  for (std::int64_t d = 0; !c.has("dim") && d < c.rank(); ++d) axes.push_back(d);
  if (c.has("dim")) axes = c.is("dim");
  for (std::int64_t axis : axes) {
    axis = axis < 0 ? axis + c.rank() : axis;
    const std::int64_t size = c.fixed_size("self", axis);
    const std::string middle =
        size >= 0 ? c.g.ints({(size + more) / 2})
                  : c.one("Div", {c.one("Add", {c.sizes(c.x(), axis, axis + 1), c.g.ints({more})}),
                                  c.g.ints({2})});
    const auto part = [&](const std::string& begin, const std::string& end) {
      return c.one("Slice", {x, begin, end, c.g.ints({axis})});
    };
    x = c.one("Concat", {part(middle, c.g.ints({kLastPlace})), part(c.g.ints({0}), middle)},
              {{"axis", axis}});
  }
  return {x};
}

/// The frames of a short-time transform: their length, what is between their beginnings, and a
/// window of their length.
struct Frames {
  std::int64_t length, step;
  std::string window;
};

Frames frames_of(C c, at::ScalarType type) {
  Frames frames{c.i("n_fft"), 0, {}};
  frames.step = c.i("hop_length", frames.length / 4);
  const std::int64_t window = c.i("win_length", frames.length);
  const std::int64_t left = (frames.length - window) / 2;
  if (!c.has("window") || c.arg("window").is_constant()) {
    const at::Tensor given = c.has("window") ? c.example("window").to(type)
                                             : at::ones({window}, at::TensorOptions(type));
    at::Tensor all = at::zeros({frames.length}, at::TensorOptions(type));
    all.narrow(0, left, window).copy_(given);
    frames.window = c.g.tensor(all);
    return frames;
  }
  frames.window = c.x("window", type);
  if (window < frames.length)
    frames.window = c.one("Pad", {frames.window, c.g.ints({left, frames.length - window - left})});
  return frames;
}

Names short_time(C c) {
  if (is_complex(c.arg("self"))) c.refuse("the signal is complex");
  if (c.has("align_to_window") && c.b("align_to_window") &&
      c.i("win_length", c.i("n_fft")) != c.i("n_fft"))
    c.refuse("align_to_window is said in ONNX for windows as long as the frames");
  const at::ScalarType type = c.type();
  const Frames frames = frames_of(c, type);
  std::string x = c.x();
  if (c.rank() == 1) x = c.unsqueezed(x, {0});
  if (c.takes("center") && c.b("center")) {
    const std::int64_t by = frames.length / 2;
    const std::string mode = c.s("pad_mode");
    x = c.one("Pad", {x, c.g.ints({0, by, 0, by})},
              {{"mode", mode == "replicate" ? "edge" : mode}});
  }
  const bool half = !c.has("onesided") || c.b("onesided");
  std::string made = c.one(
      "STFT",
      {c.unsqueezed(x, {2}), c.g.integer(frames.step), frames.window, c.g.integer(frames.length)},
      {{"onesided", std::int64_t{half}}});
  made = c.one("Transpose", {made}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  if (c.rank() == 1) made = c.squeezed(made, {0});
  if (!c.b("normalized")) return {made};
  const double factor = 1 / std::sqrt(static_cast<double>(frames.length));
  return {c.one("Mul", {made, c.g.number(factor, type)})};
}

/// The sum of overlapping frames [batch, frames, length] at their places: blocks of `step` of all
/// frames, each moved by its number.
std::string overlapped(C c, std::string x, const Frames& frames) {
  const std::int64_t blocks = (frames.length + frames.step - 1) / frames.step;
  const std::int64_t missing = blocks * frames.step - frames.length;
  if (missing > 0) x = c.one("Pad", {x, c.g.ints({0, 0, 0, 0, 0, missing})});
  std::string sum;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::string block = c.sliced(x, 2, i * frames.step, (i + 1) * frames.step);
    const std::string moved = c.one("Pad", {block, c.g.ints({0, i, 0, 0, blocks - 1 - i, 0})});
    sum = sum.empty() ? moved : c.one("Add", {sum, moved});
  }
  const std::string all = c.one("Flatten", {sum}, {{"axis", std::int64_t{1}}});
  return missing > 0 ? c.sliced(all, 1, 0, -missing) : all;
}

Names inverse_short_time(C c) {
  if (is_complex(c.result())) c.refuse("the signal is complex");
  const at::ScalarType type = c.out_type();
  const Frames frames = frames_of(c, type);
  const std::int64_t rank = c.rank(), axis = rank - 2;
  const std::int64_t bins = c.fixed_size("self", axis);
  const bool half = c.has("onesided") ? c.b("onesided") : bins != frames.length;
  const Length length{c.g.ints({frames.length}), frames.length};
  const Signal signal{parts_of(c), rank, type};
  std::string x = half ? of_half(c, signal, axis, length, bins)
                       : transformed(c, signal, axis, nullptr, true, false)[0];
  if (rank == 2) x = c.unsqueezed(x, {0});
  x = c.transposed(x, 3, 1, 2);
  if (c.b("normalized"))
    x = c.one("Mul", {x, c.g.number(std::sqrt(static_cast<double>(frames.length)), type)});
  x = c.one("Mul", {x, frames.window});
  // The windows' squares add up in the same way.
  const std::string count = c.one("Concat", {c.g.ints({1}), c.sizes(x, 1, 2), c.g.ints({1})},
                                  {{"axis", std::int64_t{0}}});
  const std::string squares =
      c.one("Expand", {c.one("Mul", {frames.window, frames.window}), count});
  const std::int64_t from = c.b("center") ? frames.length / 2 : 0;
  std::string end = c.g.ints({from > 0 ? -from : kLastPlace});
  if (c.has("length")) end = c.one("Add", {c.list("length"), c.g.ints({from})});
  const auto part = [&](const std::string& sum) {
    return c.one("Slice", {sum, c.g.ints({from}), end, c.g.ints({1})});
  };
  x = c.one("Div", {part(overlapped(c, x, frames)), part(overlapped(c, squares, frames))});
  bool is_short = false;
  for (std::size_t k = 0; k < c.g.variants(); ++k) {
    const std::int64_t hops = c.example("self", k).size(rank - 1) - 1;
    const std::int64_t all = frames.length + frames.step * hops - from;
    is_short = is_short || c.result(0, k).toTensor().size(-1) > all;
  }
  if (is_short) {  // zeros follow
    const std::string missing = c.one("Sub", {c.list("length"), c.sizes(x, 1, 2)});
    x = c.one("Pad",
              {x, c.one("Concat", {c.g.ints({0, 0, 0}), missing}, {{"axis", std::int64_t{0}}})});
  }
  return {rank == 2 ? c.squeezed(x, {0}) : x};
}

constexpr Row kSpectra[] = {
    {"fft_fft fft_fft2 fft_fftn", 17, [](C c) { return whole_spectrum(c, false); }},
    {"fft_ifft fft_ifft2 fft_ifftn", 17, [](C c) { return whole_spectrum(c, true); }},
    {"fft_rfft fft_rfft2 fft_rfftn", 17, half_spectrum},
    {"fft_irfft fft_irfft2 fft_irfftn", 17, real_of_half},
    {"fft_fftshift", 13, [](C c) { return shifted(c, 1); }},
    {"fft_ifftshift", 13, [](C c) { return shifted(c, 0); }},
    {"stft", 17, short_time},
    {"istft", 17, inverse_short_time},
};

}  // namespace

std::span<const Row> spectrum_rows() {
  return kSpectra;
}

}  // namespace mezzo::deploy::detail
