#include "ranks/bucket_plan.h"

#include <algorithm>
#include <utility>

namespace mezzo::ranks {

BucketPlan plan_buckets(std::span<const PlannedParameter> parameters, std::span<const int> order,
                        std::int64_t message_size) {
  const bool has_triggers =
      std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p.trigger; });
  BucketPlan plan;
  plan.bucket_of.assign(parameters.size(), -1);
  std::vector<Bucket> open;
  const auto close = [&](std::vector<Bucket>::iterator bucket) {
    for (int index : bucket->parameters) {
      plan.bucket_of[static_cast<std::size_t>(index)] = static_cast<int>(plan.buckets.size());
    }
    plan.buckets.push_back(std::move(*bucket));
    open.erase(bucket);
  };
  for (int index : order) {
    const PlannedParameter& parameter = parameters[static_cast<std::size_t>(index)];
    auto bucket = std::find_if(open.begin(), open.end(),
                               [&](const Bucket& b) { return b.kind == parameter.kind; });
    if (bucket == open.end()) {
      bucket = open.insert(open.end(), Bucket{.kind = parameter.kind});
    }
    bucket->parameters.push_back(index);
    bucket->offsets.push_back(bucket->size);
    bucket->size +=
        (parameter.elements + kGradientAlignment - 1) / kGradientAlignment * kGradientAlignment;
    bucket->elements += parameter.elements;
    if (has_triggers ? parameter.trigger : bucket->elements >= message_size) close(bucket);
  }
  while (!open.empty()) close(open.begin());
  return plan;
}

}  // namespace mezzo::ranks
