// Steps that are captured in a graph: what a graph can hold, and what it cannot.
#include <algorithm>
#include <string>

#include "amp/optimizer_state.h"
#include "amp/optimizer_step.h"
#include "bridge/device.h"
#include "bridge/host.h"
#include "bridge/split_masters.h"
#include "core/raise.h"
#include "optim/kinds.h"

namespace mezzo::amp::detail {
namespace {

/// The first device of these without kernels that decide; none: all have them.
std::optional<at::Device> undeciding_device(const std::vector<Slot>& slots) {
  std::optional<at::Device> seen;
  for (const Slot& slot : slots) {
    const at::Device device = slot.weight.device();
    if (seen == device) continue;
    if (bridge::is_host(device) || !bridge::has_kernels(device)) return device;
    seen = device;
  }
  return std::nullopt;
}

/// The end of the step would split it, and take its memory from the graph.
bool is_about_to_split(const Slot& slot) {
  return slot.has_master() && !slot.entry->is_split() && bridge::can_split(slot.weight);
}

}  // namespace

void OptimizerStep::check_capture(std::string_view where, CapturePoint point) {
  const std::uint64_t capture = slots_.capture();
  if (capture == 0) {
    if (scope_.progress().capture == 0 || !scope_.is_pending()) return;
    raise(where, "a loss of optimizer ", owner_.index(),
          " was captured in a graph, and its step was not: capture scale_loss, backward() and "
          "step() together, or call zero_grad() and scale_loss again outside of the graph");
  }
  const std::string why = why_not_captured(capture, point);
  if (why.empty()) return;
  snapshot_.leave_capture();
  raise(where, "a graph is being captured, and optimizer ", owner_.index(), ' ', why);
}

/// Says what cannot be, and what would work.
std::string OptimizerStep::why_not_captured(std::uint64_t capture, CapturePoint point) const {
  const std::vector<Slot>& slots = slots_.all();
  if (!fused_) {
    return "(" + optim::name_of(*ref_.inner) +
           ") is told by the host whether to step: give initialize a fused optimizer of "
           "mezzo::optim itself, or capture forward and backward alone, with amp::GradScaler, and "
           "step outside of the graph";
  }
  if (const auto device = undeciding_device(slots)) {
    return "has parameters on " + device->str() +
           ", where no kernels of ours decide about a step: step outside of the graph";
  }
  if (snapshot_.with_generators()) {
    return "gives random generators back after a skipped step, which takes the host: leave "
           "Options::protect_rng off, or step outside of the graph";
  }
  if (session_.explains_skips()) {
    return "is to explain skipped steps, of which the host hears nothing then: leave "
           "Options::explain_skips at 0, or step outside of the graph";
  }
  if (session_.deciding_ranks() || gradients_.in_buckets()) {
    return "agrees with other ranks about each step, over the host: step outside of the graph";
  }
  if (!captured_.has_room(slots.front().weight.device())) {
    return "has not stepped there yet, which makes its states and counters: make one ordinary step "
           "before the capture";
  }
  if (session_.plan().split_masters && std::ranges::any_of(slots, is_about_to_split)) {
    return "has split masters that were given memory, as by master_params(): make one ordinary "
           "step before the capture";
  }
  if (scope_.progress().capture == capture) return {};
  if (scope_.is_pending()) {
    return "has a loss from before the capture: capture scale_loss, backward() and step() together";
  }
  if ((point == CapturePoint::kScope || undecided_gradients_) && gradients_.any_outside_scopes()) {
    return "has gradients from before the capture, to which each replay would add: call "
           "zero_grad() before it, or as the first thing in it";
  }
  return {};
}

void OptimizerStep::make_room_for_captures() {
  if (!fused_ || slots_.all().empty()) return;
  const at::Device device = slots_.all().front().weight.device();
  if (!bridge::is_host(device) && bridge::has_kernels(device)) captured_.make_room(device);
}

}  // namespace mezzo::amp::detail
