#include "amp/snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "amp/generators.h"
#include "bridge/device.h"
#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "scaling/to_device.h"

namespace mezzo::amp::detail {
namespace {

// One list of each type: LibTorch copies a list in one go only where its types are the same.
void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  struct Lists {
    at::ScalarType type;
    std::vector<at::Tensor> to, from;
  };
  std::vector<Lists> all;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const at::ScalarType type = to[i].scalar_type();
    auto found = std::ranges::find(all, type, &Lists::type);
    if (found == all.end()) found = all.insert(found, Lists{type, {}, {}});
    found->to.push_back(to[i]);
    found->from.push_back(from[i]);
  }
  for (const Lists& lists : all) at::_foreach_copy_(lists.to, lists.from);
}

struct ListOnDevice {
  at::Device device;
  std::vector<at::Tensor> to, from;
};

/// Do list kernels of this device move it? Counters of eight bytes they do, as doubles: bits stay.
bool is_list_member(const at::Tensor& tensor) {
  return bridge::cuda_kernels(tensor.device(), bridge::Family::kLists) != nullptr &&
         tensor.layout() == at::kStrided &&
         (tensor.scalar_type() == at::kLong || bridge::kernel_dtype(tensor.scalar_type()));
}

at::Tensor as_list_member(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong ? tensor.view(at::kDouble) : tensor;
}

}  // namespace

void Snapshot::watch(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const bool known = std::ranges::any_of(
        watched_, [&](const at::Tensor& other) { return other.is_same(tensor); });
    if (known) continue;
    watched_.push_back(tensor);
    copies_.push_back(tensor.detach().clone());
  }
}

std::uint64_t Snapshot::capture_now() const {
  return watched_.empty() ? 0 : bridge::current_capture(watched_.front().device());
}

void Snapshot::leave_capture() noexcept {
  if (capture_ == 0) return;
  taken_ = std::exchange(taken_before_, false);
  capture_ = 0;
}

void Snapshot::take() {
  const std::uint64_t capture = capture_now();
  if (taken_ && capture == capture_) return;
  taken_before_ = capture != 0 && (taken_before_ || (taken_ && capture_ == 0));
  const at::NoGradGuard no_grad;
  if (!watched_.empty()) {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      if (copies_[i].device() != watched_[i].device() ||
          copies_[i].scalar_type() != watched_[i].scalar_type()) {
        copies_[i] = watched_[i].detach().clone();
      }
    }
    copy_all(copies_, watched_);
  }
  generator_states_ = with_generators_ ? states_of_generators() : states_of_used_generators();
  taken_ = true;
  capture_ = capture;
}

void Snapshot::give_back() {
  if (capture_ != capture_now()) leave_capture();
  if (!taken_ || capture_ != capture_now()) return;
  const at::NoGradGuard no_grad;
  copy_all(watched_, copies_);
  if (with_generators_) set_states_of_generators(generator_states_);
}

void Snapshot::remember(const std::vector<at::Tensor>& copies,
                        std::vector<at::Tensor> generator_states) {
  if (copies.size() != watched_.size()) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].sizes() != watched_[i].sizes()) return;
    copies_[i] =
        copies[i].to(watched_[i].device(), watched_[i].scalar_type(), false, /*copy=*/true);
  }
  generator_states_ = std::move(generator_states);
  taken_ = true;
  capture_ = 0;
}

/// In most steps nothing changes: graphs that saved these values stay good, and so all is written
/// through tensors of their own.
void Snapshot::give_back_if(const at::Tensor& flag) {
  if (capture_ != capture_now()) leave_capture();
  if (!taken_ || capture_ != capture_now()) return;
  const at::NoGradGuard no_grad;
  std::vector<std::size_t> others;
  std::vector<ListOnDevice> lists;
  // A list may not write memory twice: of tensors that share some, one is a member.
  std::unordered_set<const void*> storages;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const at::Tensor& tensor = watched_[i];
    const bool is_member = is_list_member(tensor) && tensor.sizes() == copies_[i].sizes() &&
                           tensor.device() == copies_[i].device() &&
                           storages.insert(tensor.storage().unsafeGetStorageImpl()).second;
    if (!is_member) {
      others.push_back(i);
      continue;
    }
    auto found = std::ranges::find(lists, tensor.device(), &ListOnDevice::device);
    if (found == lists.end()) found = lists.insert(found, ListOnDevice{tensor.device(), {}, {}});
    found->to.push_back(as_list_member(tensor.variable_data()));
    found->from.push_back(as_list_member(copies_[i]));
  }
  for (const ListOnDevice& list : lists) {
    const at::Tensor there = scaling::to_device(flag, list.device).to(at::kFloat);
    bridge::copy_if("batch norms of a skipped step", list.from, list.to, there);
  }
  give_back_one_by_one(flag, others);
}

void Snapshot::give_back_one_by_one(const at::Tensor& flag, const std::vector<std::size_t>& which) {
  at::Tensor up;
  for (const std::size_t i : which) {
    const at::Device device = watched_[i].device();
    if (!up.defined() || up.device() != device) {
      up = scaling::to_device(flag, device).reshape({}).ne(0);
    }
    at::Tensor values = watched_[i].variable_data();
    at::where_out(values, up, copies_[i], values);
  }
}

}  // namespace mezzo::amp::detail
