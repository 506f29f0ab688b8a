#include "parallel/flat_buckets.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/zeros.h>

#include "ranks/bucket_notes.h"

namespace mezzo::parallel {

FlatBuckets::FlatBuckets(const ranks::BucketPlan& plan,
                         std::span<const ReducedParameter> parameters,
                         const std::vector<int>& members) {
  views_.resize(parameters.size());
  // Parts of the bucket that autograd does not know as views: optimizers detach gradients in place.
  const at::AutoDispatchBelowADInplaceOrView untracked;
  for (const ranks::Bucket& bucket : plan.buckets) {
    const std::int64_t notes = ranks::note_count(bucket, static_cast<int>(members.size()));
    const at::Tensor& first = parameters[index(bucket.parameters.front())].tensor;
    const at::Tensor flat = at::zeros({bucket.size + notes}, first.options().requires_grad(false));
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      const int number = bucket.parameters[i];
      const std::int64_t at = bucket.offsets[i];
      const at::Tensor& parameter = parameters[index(number)].tensor;
      // Autograd keeps a gradient in the memory order of its parameter; a view in another one
      // would cost a strided copy per step.
      views_[index(number)] = parameter.is_non_overlapping_and_dense()
                                  ? flat.as_strided(parameter.sizes(), parameter.strides(), at)
                                  : flat.narrow(0, at, parameter.numel()).view(parameter.sizes());
    }
    auto mark = std::make_shared<BucketMark>();
    mark->ranks = members;
    register_bucket(flat, mark);
    flats_.push_back(flat);
    elements_.push_back(bucket.size);
    marks_.push_back(std::move(mark));
  }
}

FlatBuckets::~FlatBuckets() {
  for (const at::Tensor& flat : flats_) forget_bucket(flat);
}

at::Tensor FlatBuckets::gradients(int bucket) const {
  return flat(bucket).narrow(0, 0, elements_[index(bucket)]);
}

at::Tensor FlatBuckets::notes(int bucket) const {
  const std::int64_t elements = elements_[index(bucket)];
  return flat(bucket).narrow(0, elements, flat(bucket).numel() - elements);
}

bool FlatBuckets::is_view(int parameter, const at::Tensor& gradient) const {
  const at::Tensor& own = view(parameter);
  return gradient.is_alias_of(own) && gradient.storage_offset() == own.storage_offset() &&
         gradient.strides() == own.strides();
}

}  // namespace mezzo::parallel
