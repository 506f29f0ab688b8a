#include "insight/surroundings.h"

#include <unordered_set>

#include "amp/generators.h"

namespace mezzo::insight {

Surroundings::Surroundings(const std::vector<at::Tensor>& buffers)
    : states_(mezzo::amp::detail::states_of_generators()) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& buffer : buffers) {
    if (buffer.defined() && seen.insert(buffer.unsafeGetTensorImpl()).second)
      buffers_.emplace_back(buffer, buffer.detach().clone());
  }
}

Surroundings::~Surroundings() {
  mezzo::amp::detail::set_states_of_generators(states_);
  for (const auto& [buffer, values] : buffers_) {
    if (buffer.sizes() == values.sizes() && buffer.scalar_type() == values.scalar_type())
      buffer.variable_data().copy_(values);
  }
}

}  // namespace mezzo::insight
