// Which gradients travel together, and in which order: pure decisions, without tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mezzo::ranks {

/// The plan's inputs about one parameter.
struct PlannedParameter {
  std::int64_t elements = 0;
  int kind = 0;          // dtype and device: a bucket holds one kind
  bool trigger = false;  // its bucket is sent when its gradient is there
};

/// Gradients begin at multiples of so many elements, with zeros between: kernels move them in wide
/// pieces, whatever the sizes of those before.
inline constexpr std::int64_t kGradientAlignment = 16;

struct Bucket {
  int kind = 0;
  std::vector<int> parameters = {};        // in the order of arrival
  std::vector<std::int64_t> offsets = {};  // of their gradients in the bucket
  std::int64_t elements = 0;               // of all its gradients
  std::int64_t size = 0;                   // what they take, with what lies between
};

struct BucketPlan {
  std::vector<Bucket> buckets;  // in the order in which they are sent
  std::vector<int> bucket_of;   // of each parameter
};

/// Fills buckets with parameters in `order` (each index once), one open bucket per kind. A bucket
/// is closed when its gradients have `message_size` elements; where any parameter is a trigger,
/// buckets are closed by triggers alone. Open ones are closed at the end, oldest first.
BucketPlan plan_buckets(std::span<const PlannedParameter> parameters, std::span<const int> order,
                        std::int64_t message_size);

}  // namespace mezzo::ranks
