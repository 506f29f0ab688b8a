// Running averages over an epoch, as MXNet's mx.metric has them.
//
//   mezzo::gluon::metric::Loss cross_entropy("CrossEntropy");
//   cross_entropy.update({}, losses);                 // per batch: nothing waits for a GPU
//   const auto [name, value] = cross_entropy.get();   // reads the device
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::gluon::metric {

/// A sum and a count since the last reset, kept on the device where the predictions are.
class MEZZO_API EvalMetric {
 public:
  explicit EvalMetric(std::string name) : name_(std::move(name)) {}
  virtual ~EvalMetric();

  /// Takes a batch: a list of labels and a list of predictions, one of each for every device.
  /// Records nothing for autograd and reads nothing from a GPU. Lists or tensors that do not fit
  /// are a ConfigError; then nothing was counted.
  virtual void update(const std::vector<at::Tensor>& labels,
                      const std::vector<at::Tensor>& preds) = 0;

  /// Forgets all batches.
  void reset();

  /// Name and value; NaN before the first batch. Waits for the device.
  std::pair<std::string, double> get() const { return {name_, value()}; }

 protected:
  EvalMetric(const EvalMetric&) = default;
  EvalMetric& operator=(const EvalMetric&) = default;

  /// Adds what a batch's tensors gave; `count` is a number known to the host, and `uncounted`, if
  /// defined, is taken off it on the device.
  void add(const at::Tensor& sum, std::int64_t count, const at::Tensor& uncounted = {});

  /// The value from sum and count.
  virtual double value_of(double sum, double count) const { return sum / count; }

 private:
  double value() const;

  std::string name_;
  std::vector<at::Tensor> sums_, uncounted_;  // doubles, one a device
  std::int64_t count_ = 0;
};

/// The mean over all elements of the predictions, which are losses; labels are ignored.
class MEZZO_API Loss : public EvalMetric {
 public:
  explicit Loss(std::string name = "loss") : EvalMetric(std::move(name)) {}
  void update(const std::vector<at::Tensor>& labels, const std::vector<at::Tensor>& preds) override;
};

/// The share of right predictions: of class indices, or, where the shape differs from the label's,
/// of the largest value along `axis`.
class MEZZO_API Accuracy : public EvalMetric {
 public:
  explicit Accuracy(std::int64_t axis = 1, std::string name = "accuracy")
      : EvalMetric(std::move(name)), axis_(axis) {}
  void update(const std::vector<at::Tensor>& labels, const std::vector<at::Tensor>& preds) override;

 private:
  std::int64_t axis_;
};

/// The share of samples whose label is among the `top_k` largest values of their row.
class MEZZO_API TopKAccuracy : public EvalMetric {
 public:
  /// Its name gets "_K" behind it. Throws ConfigError for a `top_k` below 2, as MXNet does:
  /// Accuracy is for 1.
  explicit TopKAccuracy(std::int64_t top_k, const std::string& name = "top_k_accuracy");
  /// Also a ConfigError: fewer classes than `top_k`.
  void update(const std::vector<at::Tensor>& labels, const std::vector<at::Tensor>& preds) override;

 private:
  std::int64_t top_k_;
};

/// exp of the mean of -log of the probability that the label had, along the last axis;
/// probabilities below 1e-10 count as that. Samples with the label `ignore_label` do not count.
class MEZZO_API Perplexity : public EvalMetric {
 public:
  explicit Perplexity(std::optional<std::int64_t> ignore_label = {},
                      std::string name = "perplexity")
      : EvalMetric(std::move(name)), ignore_label_(ignore_label) {}
  void update(const std::vector<at::Tensor>& labels, const std::vector<at::Tensor>& preds) override;

 protected:
  double value_of(double sum, double count) const override;

 private:
  std::optional<std::int64_t> ignore_label_;
};

/// Several metrics over the same batches. Copies share their children.
class MEZZO_API CompositeEvalMetric {
 public:
  CompositeEvalMetric() = default;
  explicit CompositeEvalMetric(std::vector<std::shared_ptr<EvalMetric>> metrics)
      : metrics_(std::move(metrics)) {}

  /// Adds a child: shared with the caller, or a copy of a metric.
  void add(std::shared_ptr<EvalMetric> metric) { metrics_.push_back(std::move(metric)); }
  template <typename Metric>
  requires std::is_base_of_v<EvalMetric, Metric>
  void add(Metric metric) { metrics_.push_back(std::make_shared<Metric>(std::move(metric))); }

  /// The child of that place; ConfigError if there is none.
  EvalMetric& get_metric(std::size_t index) const;

  /// As the children's.
  void update(const std::vector<at::Tensor>& labels, const std::vector<at::Tensor>& preds);
  void reset();
  std::pair<std::vector<std::string>, std::vector<double>> get() const;

 private:
  std::vector<std::shared_ptr<EvalMetric>> metrics_;
};

}  // namespace mezzo::gluon::metric
