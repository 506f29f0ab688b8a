#include "insight/surroundings.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "amp/generators.h"

namespace mezzo::insight {

Surroundings::Surroundings(const std::vector<at::Tensor>& buffers)
    : generators_(mezzo::amp::detail::default_generators()) {
  for (at::Generator& generator : generators_) {
    const std::lock_guard lock(generator.mutex());
    states_.push_back(generator.get_state());
  }
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& buffer : buffers) {
    if (buffer.defined() && seen.insert(buffer.unsafeGetTensorImpl()).second)
      buffers_.emplace_back(buffer, buffer.detach().clone());
  }
}

Surroundings::~Surroundings() {
  set_generators(states_);
  for (const auto& [buffer, values] : buffers_) {
    if (buffer.sizes() == values.sizes() && buffer.scalar_type() == values.scalar_type())
      buffer.variable_data().copy_(values);
  }
}

void Surroundings::set_generators(const std::vector<at::Tensor>& states) {
  for (std::size_t i = 0; i < std::min(states.size(), generators_.size()); ++i) {
    if (!states[i].defined()) continue;
    const std::lock_guard lock(generators_[i].mutex());
    generators_[i].set_state(states[i]);
  }
}

}  // namespace mezzo::insight
