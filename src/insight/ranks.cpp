#include "insight/ranks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cstring>
#include <optional>
#include <utility>

#include "amp/optimizer_state.h"
#include "amp/session.h"
#include "insight/explanation_json.h"
#include "mezzo/process_group.h"
#include "parallel/agreement.h"

namespace mezzo::insight {

Explanation agree(Explanation own, const amp::Optimizer& optimizer) {
  const auto& options = optimizer.shared()->session().options();
  const std::optional<parallel::ProcessGroup> group =
      options.overflow_group ? options.overflow_group->group() : parallel::world_if_any();
  if (!group || group->size() == 1) return own;
  own.rank = group->rank();
  const at::Tensor failed = group->all_gather(
      at::full({1}, own.reproduced ? 1 : 0, at::TensorOptions(at::kCPU).dtype(at::kLong)));
  std::int64_t first = 0;
  for (std::int64_t i = failed.numel(); i-- > 0;) {
    if (failed.reshape({-1})[i].item<std::int64_t>() != 0) first = i;
  }
  const int root = static_cast<int>(first);
  std::string text = own.to_json();
  at::Tensor size = at::full({1}, static_cast<std::int64_t>(text.size()),
                             at::TensorOptions(at::kCPU).dtype(at::kLong));
  group->broadcast(size, root);
  text.resize(static_cast<std::size_t>(size.item<std::int64_t>()));
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())},
                               at::TensorOptions(at::kCPU).dtype(at::kByte));
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  group->broadcast(bytes, root);
  std::memcpy(text.data(), bytes.const_data_ptr(), text.size());
  return root == own.rank ? own : explanation_from_json(text);
}

}  // namespace mezzo::insight
