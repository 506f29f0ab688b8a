#include "mezzo/gluon_metric.h"

#include "core/torch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mezzo/autocast.h"

namespace mezzo::gluon::metric {
namespace {

constexpr const char* kMetric = "metric";

void check_pairs(const std::vector<at::Tensor>& labels, const std::vector<at::Tensor>& preds) {
  if (labels.size() != preds.size()) {
    raise<ConfigError>(kMetric, labels.size(), " labels and ", preds.size(),
                       " predictions; expected as many of each");
  }
}

void check_one_each(const at::Tensor& label, std::int64_t samples, const at::Tensor& pred) {
  if (label.numel() != samples) {
    raise<ConfigError>(kMetric, "a label of ", label.sizes(), " for a prediction of ", pred.sizes(),
                       "; expected ", samples, " labels");
  }
}

/// Class indices in one dimension, where the predictions are.
at::Tensor indices_on(const at::Tensor& label, const at::Tensor& pred) {
  return label.to(pred.device(), at::kLong).reshape({-1});
}

/// Adds to the tensor of the sum's device, which is made if missing.
void accumulate(std::vector<at::Tensor>& totals, const at::Tensor& sum) {
  const at::Tensor wide = sum.to(at::kDouble).reshape({});
  const auto there = std::ranges::find(totals, wide.device(), &at::Tensor::device);
  if (there == totals.end()) {
    totals.push_back(wide.clone());
  } else {
    there->add_(wide);
  }
}

double read_all(const std::vector<at::Tensor>& totals) {
  double sum = 0;
  for (const at::Tensor& total : totals) sum += total.item<double>();
  return sum;
}

}  // namespace

EvalMetric::~EvalMetric() = default;

void EvalMetric::reset() {
  sums_.clear();
  uncounted_.clear();
  count_ = 0;
}

void EvalMetric::add(const at::Tensor& sum, std::int64_t count, const at::Tensor& uncounted) {
  accumulate(sums_, sum);
  if (uncounted.defined()) accumulate(uncounted_, uncounted);
  count_ += count;
}

double EvalMetric::value() const {
  const double count = static_cast<double>(count_) - read_all(uncounted_);
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  return value_of(read_all(sums_), count);
}

void Loss::update(const std::vector<at::Tensor>&, const std::vector<at::Tensor>& preds) {
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  for (const at::Tensor& pred : preds) add(pred.sum(at::kDouble), pred.numel());
}

void Accuracy::update(const std::vector<at::Tensor>& labels, const std::vector<at::Tensor>& preds) {
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  check_pairs(labels, preds);
  std::vector<at::Tensor> chosen;
  for (std::size_t i = 0; i < preds.size(); ++i) {
    const bool indices = preds[i].sizes() == labels[i].sizes();
    if (!indices && (axis_ >= preds[i].dim() || axis_ < -preds[i].dim())) {
      raise<ConfigError>(kMetric, "axis is ", axis_, " for a prediction of ", preds[i].sizes());
    }
    chosen.push_back(indices ? preds[i] : at::argmax(preds[i], axis_));
    check_one_each(labels[i], chosen[i].numel(), preds[i]);
  }
  for (std::size_t i = 0; i < preds.size(); ++i) {
    const at::Tensor right =
        indices_on(labels[i], chosen[i]).eq(chosen[i].to(at::kLong).reshape({-1}));
    add(right.sum(), right.numel());
  }
}

TopKAccuracy::TopKAccuracy(std::int64_t top_k, const std::string& name)
    : EvalMetric(name + "_" + std::to_string(top_k)), top_k_(top_k) {
  if (top_k_ < 2) {
    raise<ConfigError>(kMetric, "top_k is ", top_k_, "; expected 2 or more, Accuracy is for 1");
  }
}

void TopKAccuracy::update(const std::vector<at::Tensor>& labels,
                          const std::vector<at::Tensor>& preds) {
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  check_pairs(labels, preds);
  for (std::size_t i = 0; i < preds.size(); ++i) {
    if (preds[i].dim() != 2 || preds[i].size(1) < top_k_) {
      raise<ConfigError>(kMetric, "a prediction of ", preds[i].sizes(), " for top_k ", top_k_,
                         "; expected [samples, classes] with at least as many classes");
    }
    check_one_each(labels[i], preds[i].size(0), preds[i]);
  }
  for (std::size_t i = 0; i < preds.size(); ++i) {
    const at::Tensor best = std::get<1>(at::topk(preds[i], top_k_, 1));
    add(best.eq(indices_on(labels[i], preds[i]).unsqueeze(1)).sum(), preds[i].size(0));
  }
}

void Perplexity::update(const std::vector<at::Tensor>& labels,
                        const std::vector<at::Tensor>& preds) {
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  check_pairs(labels, preds);
  for (std::size_t i = 0; i < preds.size(); ++i) {
    if (preds[i].dim() == 0 || preds[i].size(-1) == 0) {
      raise<ConfigError>(kMetric, "a prediction of ", preds[i].sizes(),
                         "; expected probabilities along its last axis");
    }
    check_one_each(labels[i], preds[i].numel() / preds[i].size(-1), preds[i]);
  }
  for (std::size_t i = 0; i < preds.size(); ++i) {
    const at::Tensor label = indices_on(labels[i], preds[i]);
    const at::Tensor rows = preds[i].reshape({-1, preds[i].size(-1)});
    // As MXNet's pick does: labels outside of the classes are taken as the nearest one.
    const at::Tensor place = label.clamp(0, rows.size(1) - 1).unsqueeze(1);
    const at::Tensor picked = rows.gather(1, place).squeeze(1).to(at::kDouble);
    at::Tensor losses = picked.clamp_min(1e-10).log().neg();
    at::Tensor ignored;
    if (ignore_label_) {
      const at::Tensor ignore = label.eq(*ignore_label_);
      losses = losses.masked_fill(ignore, 0);
      ignored = ignore.sum();
    }
    add(losses.sum(), label.numel(), ignored);
  }
}

double Perplexity::value_of(double sum, double count) const {
  return std::exp(sum / count);
}

EvalMetric& CompositeEvalMetric::get_metric(std::size_t index) const {
  if (index >= metrics_.size()) {
    raise<ConfigError>(kMetric, "there is no metric ", index, " among ", metrics_.size());
  }
  return *metrics_[index];
}

void CompositeEvalMetric::update(const std::vector<at::Tensor>& labels,
                                 const std::vector<at::Tensor>& preds) {
  for (const auto& metric : metrics_) metric->update(labels, preds);
}

void CompositeEvalMetric::reset() {
  for (const auto& metric : metrics_) metric->reset();
}

std::pair<std::vector<std::string>, std::vector<double>> CompositeEvalMetric::get() const {
  std::pair<std::vector<std::string>, std::vector<double>> all;
  for (const auto& metric : metrics_) {
    const auto [name, value] = metric->get();
    all.first.push_back(name);
    all.second.push_back(value);
  }
  return all;
}

}  // namespace mezzo::gluon::metric
