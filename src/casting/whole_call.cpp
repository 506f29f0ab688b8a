#include "casting/whole_call.h"

#include <string>
#include <utility>

#include "casting/leads.h"
#include "casting/operands.h"

namespace mezzo::casting {

WholeCall::WholeCall(const Row& row, at::TensorList inputs, at::TensorList weights) {
  const Frame* const frame = active_frame();
  if (frame == nullptr) return;
  Operands seen;
  for (const at::Tensor& tensor : inputs) see(seen, tensor);
  for (const at::Tensor& tensor : weights) see(seen, tensor);
  Leads leads;
  if (needs_leads(row.traits(), seen, frame->rules)) {
    LeadFinder finder;
    for (const at::Tensor& tensor : inputs) finder.look(tensor, /*is_named_weight=*/false);
    for (const at::Tensor& tensor : weights) finder.look(tensor, /*is_named_weight=*/true);
    leads = finder.leads();
  }
  // No argument of a function has a text that a condition could ask for.
  const Treatment kind = row.resolve(*frame, [](std::size_t) { return std::string(); });
  decision_ = decide(kind, row.traits(), /*has_dtype_argument=*/false, seen, frame->rules, leads);
  if (decision_.plan == Plan::kPass) return;
  if (decision_.plan == Plan::kBan) row.refuse(*frame);
  shield_.emplace();
  if (decision_.plan != Plan::kShield) casting_.emplace(*frame, decision_, row);
}

at::Tensor WholeCall::argument(const at::Tensor& tensor) {
  return tensor.defined() && casting_ && casting_->needs(tensor) ? casting_->apply(tensor) : tensor;
}

at::Tensor WholeCall::result(at::Tensor tensor) const {
  if (decision_.plan == Plan::kEmulate || decision_.plan == Plan::kInFloat)
    round_in_place(tensor, decision_.target);
  return tensor;
}

}  // namespace mezzo::casting
