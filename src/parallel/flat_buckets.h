// The memory of a plan's buckets: flat tensors, of which gradients are views.
//
// Behind the gradients a bucket has the notes of ranks/bucket_notes.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/bucket_registry.h"
#include "ranks/bucket_plan.h"

namespace mezzo::parallel {

/// A parameter that takes part in the reduction.
struct ReducedParameter {
  std::string name;
  at::Tensor tensor;
};

class FlatBuckets {
 public:
  /// Allocates the buckets for parameters as the plan numbers them; `members` take part.
  FlatBuckets(const ranks::BucketPlan& plan, std::span<const ReducedParameter> parameters,
              const std::vector<int>& members);
  ~FlatBuckets();
  FlatBuckets(const FlatBuckets&) = delete;
  FlatBuckets& operator=(const FlatBuckets&) = delete;

  int count() const noexcept { return static_cast<int>(flats_.size()); }
  /// Gradients and notes of a bucket: what travels.
  const at::Tensor& flat(int bucket) const { return flats_[index(bucket)]; }
  /// Its gradients alone, with the zeros between them.
  at::Tensor gradients(int bucket) const;
  /// Its notes alone.
  at::Tensor notes(int bucket) const;
  /// A parameter's view, shaped and strided as the parameter.
  const at::Tensor& view(int parameter) const { return views_[index(parameter)]; }
  /// Is this gradient the parameter's view?
  bool is_view(int parameter, const at::Tensor& gradient) const;
  BucketMark& mark(int bucket) const { return *marks_[index(bucket)]; }

 private:
  static std::size_t index(int number) { return static_cast<std::size_t>(number); }

  std::vector<at::Tensor> flats_;
  std::vector<std::int64_t> elements_;  // of each bucket: without its notes
  std::vector<at::Tensor> views_;
  std::vector<std::shared_ptr<BucketMark>> marks_;
};

}  // namespace mezzo::parallel
