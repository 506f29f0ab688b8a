#include "amp/rank_check.h"

#include <ATen/ops/tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "amp/model_state.h"
#include "amp/optimizer_state.h"
#include "parallel/agreement.h"

namespace mezzo::amp::detail {
namespace {

std::vector<std::pair<std::string, at::Tensor>> held_alike(Session& session) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  const auto& models = session.models();
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::string suffix = models.size() == 1 ? "" : " of network " + std::to_string(i);
    for (const auto& item : models[i]->module().named_parameters())
      all.emplace_back(item.key() + suffix, item.value());
  }
  for (const auto& optimizer : session.optimizers()) {
    for (const Slot& slot : optimizer->slots().all()) {
      if (slot.has_master()) all.emplace_back("master of " + slot.entry->name, slot.master);
    }
  }
  for (std::size_t i = 0; i < session.num_losses(); ++i) {
    const scaling::ScaleState state = session.scaler(static_cast<int>(i), "expect_equal").state();
    all.emplace_back("scale of loss " + std::to_string(i),
                     at::tensor(state.scale, at::TensorOptions(at::kCPU).dtype(at::kDouble)));
    all.emplace_back("clean steps of loss " + std::to_string(i),
                     at::tensor(state.unskipped, at::TensorOptions(at::kCPU).dtype(at::kLong)));
  }
  return all;
}

}  // namespace

void expect_equal_ranks(Session& session) {
  const auto group = session.deciding_ranks();
  if (!group) return;
  session.publish_written_masters();
  parallel::expect_equal(held_alike(session), *group);
}

void RankCheck::note_step() {
  const int every = session_.options().expect_equal_every;
  if (every == 0 || !session_.enabled()) return;
  const auto group = session_.deciding_ranks();
  if (!group) return;
  // Whoever left a loop early has made fewer steps: all begin to count anew.
  const int loops = parallel::loops_left(*group);
  if (loops != std::exchange(loops_, loops)) steps_ = 0;
  if (++steps_ % every != 0) return;
  expect_equal_ranks(session_);
}

}  // namespace mezzo::amp::detail
