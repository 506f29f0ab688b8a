// Losses, and what they are made of. Models that report their loss use them.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

/// LibTorch's ways: each element, the mean, the sum.
constexpr std::int64_t kEach = 0, kMean = 1;

/// A loss of every element, of `rank` dimensions, as the caller wants it.
Names as_wanted(C c, const std::string& loss, std::int64_t rank) {
  const std::int64_t way = c.i("reduction");
  if (way == kEach || rank == 0) return {loss};
  if (way == kMean &&
      c.example(c.schema().arguments()[0].name()).numel() == 0)  // a mean of nothing is no number
    return {c.one("Div", {c.reduced("ReduceSum", loss, {}, false, rank), c.constant(0)})};
  return {c.reduced(way == kMean ? "ReduceMean" : "ReduceSum", loss, {}, false, rank)};
}

std::int64_t joint_rank(C c, std::string_view a, std::string_view b) {
  return std::max(c.rank(a), c.rank(b));
}

std::string difference(C c) {
  return c.one("Sub", {c.x("self", c.out_type()), c.x("target", c.out_type())});
}

std::string times(C c, const std::string& x, double factor) {
  return factor == 1 ? x : c.one("Mul", {x, c.constant(factor)});
}

Names squared_error(C c) {
  const std::string off = difference(c);
  return as_wanted(c, c.one("Mul", {off, off}), joint_rank(c, "self", "target"));
}

Names absolute_error(C c) {
  return as_wanted(c, c.one("Abs", {difference(c)}), joint_rank(c, "self", "target"));
}

/// Squares below a bound, straight above. `scale` is what squares are divided by, next to 2.
Names bent_error(C c, double bound, bool divides) {
  if (bound == 0) return absolute_error(c);
  const std::string size = c.one("Abs", {difference(c)});
  const std::string square = times(c, c.one("Mul", {size, size}), divides ? 0.5 / bound : 0.5);
  const std::string straight = c.one("Sub", {size, c.constant(bound / 2)});
  return as_wanted(c,
                   c.one("Where", {c.one("Less", {size, c.constant(bound)}), square,
                                   times(c, straight, divides ? 1 : bound)}),
                   joint_rank(c, "self", "target"));
}

std::string log_one_plus_exp(C c, const std::string& x) {
  return c.one("Softplus", {x});
}

Names soft_margin(C c) {
  const std::string product = c.one("Mul", {c.x("self"), c.x("target", c.out_type())});
  return as_wanted(c, log_one_plus_exp(c, c.one("Neg", {product})),
                   joint_rank(c, "self", "target"));
}

Names divergence(C c) {
  const std::string target = c.x("target", c.out_type()), self = c.x("self");
  const std::string logs = c.b("log_target") ? target : c.one("Log", {target});
  const std::string weight = c.b("log_target") ? c.one("Exp", {target}) : target;
  std::string loss = c.one("Mul", {weight, c.one("Sub", {logs, self})});
  if (!c.b("log_target")) {
    const std::string zero = c.constant(0);
    loss = c.one("Where", {c.one("Greater", {target, zero}), loss, zero});
  }
  return as_wanted(c, loss, joint_rank(c, "self", "target"));
}

std::string weighted(C c, const std::string& loss) {
  return c.has("weight") ? c.one("Mul", {loss, c.x("weight", c.out_type())}) : loss;
}

/// LibTorch bounds the logarithms from below.
Names cross_entropy_of_chances(C c) {
  const std::string p = c.x("self"), t = c.x("target", c.out_type());
  const auto bounded_log = [&](const std::string& x) {
    return c.one("Max", {c.one("Log", {x}), c.constant(-100)});
  };
  const std::string rest = c.one("Sub", {c.constant(1), t});
  const std::string sum =
      c.one("Add", {c.one("Mul", {t, bounded_log(p)}),
                    c.one("Mul", {rest, bounded_log(c.one("Sub", {c.constant(1), p}))})});
  return as_wanted(c, weighted(c, c.one("Neg", {sum})), joint_rank(c, "self", "target"));
}

Names cross_entropy_of_logits(C c) {
  const std::string x = c.x("self"), t = c.x("target", c.out_type());
  const std::string rest = c.one("Mul", {c.one("Sub", {c.constant(1), t}), x});
  std::string tail = log_one_plus_exp(c, c.one("Neg", {x}));
  if (c.has("pos_weight")) {
    const std::string more = c.one("Sub", {c.x("pos_weight", c.out_type()), c.constant(1)});
    tail = c.one("Mul", {tail, c.one("Add", {c.one("Mul", {more, t}), c.constant(1)})});
  }
  return as_wanted(c, weighted(c, c.one("Add", {rest, tail})), joint_rank(c, "self", "target"));
}

Names hinge_embedding(C c) {
  const std::string x = c.x("self"), t = c.x("target", c.out_type()), zero = c.constant(0);
  const std::string margin = c.one("Max", {c.one("Sub", {c.constant(c.d("margin")), x}), zero});
  const std::string far = c.one("Where", {c.one("Equal", {t, c.constant(1)}), zero, margin});
  const std::string near = c.one("Where", {c.one("Equal", {t, c.constant(-1)}), zero, x});
  return as_wanted(c, c.one("Add", {far, near}), joint_rank(c, "self", "target"));
}

Names margin_ranking(C c) {
  const std::string off = c.one("Sub", {c.x("input1"), c.x("input2")});
  const std::string loss =
      c.one("Add", {c.one("Neg", {c.one("Mul", {c.x("target", c.out_type()), off})}),
                    c.constant(c.d("margin"))});
  return as_wanted(c, c.one("Max", {loss, c.constant(0)}),
                   std::max(joint_rank(c, "input1", "input2"), c.rank("target")));
}

std::string sum_over(C c, const std::string& x, std::int64_t axis, std::int64_t rank) {
  return c.reduced("ReduceSum", x, {axis}, false, rank);
}

Names cosine_similarity(C c) {
  const std::int64_t rank = joint_rank(c, "x1", "x2"), given = c.i("dim"),
                     axis = given < 0 ? given + rank : given;
  const std::string a = c.x("x1", c.out_type()), b = c.x("x2", c.out_type());
  const auto length = [&](const std::string& x, std::string_view name) {
    const std::int64_t own = axis - (rank - c.rank(name));
    return c.one("Max",
                 {c.reduced("ReduceL2", x, {own}, true, c.rank(name)), c.constant(c.d("eps"))});
  };
  return {sum_over(
      c, c.one("Mul", {c.one("Div", {a, length(a, "x1")}), c.one("Div", {b, length(b, "x2")})}),
      axis, rank)};
}

Names cosine_embedding(C c) {
  constexpr double kEps = 1e-12;  // as LibTorch has it
  const std::string a = c.x("input1"), b = c.x("input2"), t = c.x("target", c.out_type());
  const std::int64_t rank = c.rank("input1");
  const auto square = [&](const std::string& x) {
    return c.one("Add", {sum_over(c, c.one("Mul", {x, x}), rank - 1, rank), c.constant(kEps)});
  };
  const std::string cosine = c.one("Div", {sum_over(c, c.one("Mul", {a, b}), rank - 1, rank),
                                           c.one("Sqrt", {c.one("Mul", {square(a), square(b)})})});
  const std::string zero = c.constant(0);
  const std::string near = c.one("Sub", {c.constant(1), cosine});
  const std::string far = c.one("Max", {c.one("Sub", {cosine, c.constant(c.d("margin"))}), zero});
  const std::string loss =
      c.one("Add", {c.one("Where", {c.one("Equal", {t, c.constant(1)}), near, zero}),
                    c.one("Where", {c.one("Equal", {t, c.constant(-1)}), far, zero})});
  return as_wanted(c, loss, std::max<std::int64_t>(rank - 1, c.rank("target")));
}

Names triplet_margin(C c) {
  const double p = c.d("p"), eps = c.d("eps");
  const std::int64_t rank = c.rank("anchor");
  const auto distance = [&](std::string_view a, std::string_view b) {
    const std::string off =
        c.one("Abs", {c.one("Add", {c.one("Sub", {c.x(a), c.x(b)}), c.constant(eps)})});
    if (p == 2) return c.reduced("ReduceL2", off, {rank - 1}, false, rank);
    const std::string sum = sum_over(c, c.one("Pow", {off, c.constant(p)}), rank - 1, rank);
    return c.one("Pow", {sum, c.constant(1 / p)});
  };
  std::string apart = distance("anchor", "negative");
  if (c.b("swap")) apart = c.one("Min", {apart, distance("positive", "negative")});
  const std::string loss = c.one(
      "Add", {c.one("Sub", {distance("anchor", "positive"), apart}), c.constant(c.d("margin"))});
  return as_wanted(c, c.one("Max", {loss, c.constant(0)}), rank - 1);
}

Names poisson(C c) {
  const std::string x = c.x("input"), t = c.x("target", c.out_type());
  std::string loss;
  if (c.b("log_input")) {
    loss = c.one("Sub", {c.one("Exp", {x}), c.one("Mul", {t, x})});
  } else {
    const std::string guarded = c.one("Add", {x, c.constant(c.d("eps"))});
    loss = c.one("Sub", {x, c.one("Mul", {t, c.one("Log", {guarded})})});
  }
  if (c.b("full")) {
    const std::string stirling =
        c.one("Add", {c.one("Sub", {c.one("Mul", {t, c.one("Log", {t})}), t}),
                      times(c, c.one("Log", {times(c, t, 2 * std::numbers::pi)}), 0.5)});
    const std::string large = c.one("Greater", {t, c.constant(1)});
    loss = c.one("Add", {loss, c.one("Where", {large, stirling, c.constant(0)})});
  }
  return as_wanted(c, loss, joint_rank(c, "input", "target"));
}

/// ONNX's loss of log-probabilities, or of scores, at the classes that the target names.
Names of_classes(C c, const std::string& op) {
  const std::int64_t way = c.i("reduction");
  OnnxAttributes attributes{{"reduction", std::string(way == kEach   ? "none"
                                                      : way == kMean ? "mean"
                                                                     : "sum")},
                            {"ignore_index", c.i("ignore_index")}};
  const bool batched = c.rank() > 1;
  Names in = {batched ? c.x() : c.unsqueezed(c.x(), {0}),
              batched ? c.x("target") : c.unsqueezed(c.x("target"), {0})};
  if (c.has("weight")) in.push_back(c.x("weight"));
  const std::string loss = c.one(op, in, attributes);
  return {batched || way != kEach ? loss : c.squeezed(loss, {0})};
}

Names cross_entropy(C c) {
  const bool chances = at::isFloatingType(c.type("target"));
  if (c.d("label_smoothing") != 0)
    c.refuse("label smoothing is not said in ONNX; smooth the target in the network");
  if (!chances) return of_classes(c, "SoftmaxCrossEntropyLoss");
  const std::int64_t rank = c.rank(), axis = rank > 1 ? 1 : 0;
  std::string logs = c.one("LogSoftmax", {c.x()}, {{"axis", axis}});
  if (c.has("weight")) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank - axis), 1);
    sizes[0] = -1;
    logs = c.one("Mul", {logs, c.one("Reshape", {c.x("weight"), c.g.ints(sizes)})});
  }
  const std::string loss =
      c.one("Neg", {sum_over(c, c.one("Mul", {logs, c.x("target")}), axis, rank)});
  return as_wanted(c, loss, rank - 1);
}

constexpr Row kLosses[] = {
    {"mse_loss", 13, squared_error},
    {"l1_loss", 13, absolute_error},
    {"smooth_l1_loss", 13, [](C c) { return bent_error(c, c.d("beta"), true); }},
    {"huber_loss", 13, [](C c) { return bent_error(c, c.d("delta"), false); }},
    {"soft_margin_loss", 13, soft_margin},
    {"kl_div", 13, divergence},
    {"binary_cross_entropy", 13, cross_entropy_of_chances},
    {"binary_cross_entropy_with_logits", 13, cross_entropy_of_logits},
    {"hinge_embedding_loss", 13, hinge_embedding},
    {"margin_ranking_loss", 13, margin_ranking},
    {"cosine_similarity", 13, cosine_similarity},
    {"cosine_embedding_loss", 13, cosine_embedding},
    {"triplet_margin_loss", 13, triplet_margin},
    {"poisson_nll_loss", 13, poisson},
    {"nll_loss nll_loss2d", 13, [](C c) { return of_classes(c, "NegativeLogLikelihoodLoss"); }},
    {"nll_loss_nd", 13, [](C c) { return of_classes(c, "NegativeLogLikelihoodLoss"); }},
    {"cross_entropy_loss", 13, cross_entropy},
};

}  // namespace

std::span<const Row> loss_rows() {
  return kLosses;
}

}  // namespace mezzo::deploy::detail
