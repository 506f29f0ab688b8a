#include "mezzo/process_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "parallel/averaging.h"
#include "parallel/flat.h"
#include "parallel/group.h"
#include "parallel/rendezvous.h"
#include "parallel/scratch.h"
#include "platform/process.h"

namespace mezzo::parallel {
namespace {

// The process group of this process: one, since a process has one rank.
struct Current {
  std::mutex mutex;
  std::shared_ptr<detail::Group> world;
  int groups = 0;
};

Current& current() {
  // Never destroyed: what other static objects still hold may need it at exit.
  static Current* const instance = std::make_unique<Current>().release();
  return *instance;
}

detail::Group& world_of(const char* where) {
  const auto world = current_world();
  if (world == nullptr) raise(where, "no process group: call init_process_group() first");
  return *world;
}

}  // namespace

std::shared_ptr<detail::Group> current_world() {
  Current& now = current();
  const std::lock_guard<std::mutex> lock(now.mutex);
  return now.world;
}

void init_process_group(const InitOptions& options) {
  if (is_initialized()) {
    raise("init_process_group",
          "there is a process group already; destroy_process_group() ends it");
  }
  // Gloo writes to its sockets without asking to be spared the signal; Python's programs ignore it.
  platform::survive_broken_connections();
  const std::shared_ptr<Session> session = meet(options);
  std::vector<int> all(static_cast<std::size_t>(session->size()));
  std::iota(all.begin(), all.end(), 0);
  auto world = detail::Group::connect(0, session, std::move(all));
  // Rank 0 may host the store: nobody leaves before all are connected.
  ProcessGroup(world).barrier();
  Current& now = current();
  const std::lock_guard<std::mutex> lock(now.mutex);
  now.world = std::move(world);
  now.groups = 0;
}

bool is_initialized() {
  return current_world() != nullptr;
}

int rank() {
  return world_of("rank").rank();
}

int world_size() {
  return world_of("world_size").size();
}

int local_rank() {
  return world_of("local_rank").session()->local_rank();
}

void barrier() {
  world().barrier();
}

void destroy_process_group() {
  std::shared_ptr<detail::Group> world;
  {
    Current& now = current();
    const std::lock_guard<std::mutex> lock(now.mutex);
    world.swap(now.world);
  }
  if (world == nullptr) return;
  world->session()->close();
  release_scratch();
}

ProcessGroup world() {
  world_of("world");
  return ProcessGroup(current_world());
}

ProcessGroup new_group(const std::vector<int>& ranks) {
  constexpr const char* kWhere = "new_group";
  const detail::Group& all = world_of(kWhere);
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) raise<ConfigError>(kWhere, "no ranks were given");
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    raise<ConfigError>(kWhere, "rank ", *std::adjacent_find(sorted.begin(), sorted.end()),
                       " is given twice");
  }
  for (int member : sorted) {
    if (member < 0 || member >= all.size()) {
      raise<ConfigError>(kWhere, "rank ", member, " does not exist; expected 0 to ",
                         all.size() - 1);
    }
  }
  int number = 0;
  {
    Current& now = current();
    const std::lock_guard<std::mutex> lock(now.mutex);
    number = ++now.groups;
  }
  ProcessGroup group(detail::Group::connect(number, all.session(), ranks));
  if (group.is_member()) group.barrier();
  return group;
}

ProcessGroup group_or_world(const std::optional<ProcessGroup>& group, const char* where) {
  if (!group) world_of(where);
  ProcessGroup result = group ? *group : world();
  if (!result.is_member()) {
    raise<ConfigError>(where, "this process is no member of the process group that was given");
  }
  return result;
}

ProcessGroup::ProcessGroup(std::shared_ptr<detail::Group> group) : group_(std::move(group)) {}

int ProcessGroup::rank() const {
  return group_->rank();
}

int ProcessGroup::size() const {
  return group_->size();
}

const std::vector<int>& ProcessGroup::ranks() const {
  return group_->ranks();
}

namespace {

void check_tensor(const at::Tensor& tensor, const char* where) {
  if (!tensor.defined()) raise<ConfigError>(where, "the tensor is undefined");
  if (tensor.layout() != at::kStrided) {
    raise<UnsupportedError>(where, "expected a dense tensor, got a sparse one");
  }
}

}  // namespace

void ProcessGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  check_tensor(tensor, "all_reduce");
  Lane& lane = group_->calls();
  const at::Tensor flat = tensor.detach().contiguous();
  if (op == ReduceOp::kAverage) {
    if (!at::isFloatingType(flat.scalar_type())) {
      raise<ConfigError>("all_reduce", "an average needs a floating type, got ",
                         c10::toString(flat.scalar_type()));
    }
    start_average(lane, flat.view(-1), average_scale(lane.size()))->wait();
  } else {
    lane.all_reduce(flat, op)->wait();
  }
  if (flat.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(flat);
}

void ProcessGroup::broadcast(const at::Tensor& tensor, int root) const {
  check_tensor(tensor, "broadcast");
  if (root < 0 || root >= size()) {
    raise<ConfigError>("broadcast", "root ", root, " does not exist; expected 0 to ", size() - 1);
  }
  const at::Tensor flat = tensor.detach().contiguous();
  group_->calls().broadcast(flat, root)->wait();
  if (flat.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(flat);
}

at::Tensor ProcessGroup::all_gather(const at::Tensor& tensor) const {
  check_tensor(tensor, "all_gather");
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), size());
  at::Tensor all = at::empty(shape, tensor.options().requires_grad(false));
  group_->calls().all_gather(all, tensor.detach().contiguous())->wait();
  return all;
}

void ProcessGroup::barrier() const {
  group_->calls().all_reduce(at::zeros({1}, at::kInt))->wait();
}

ProcessGroup::Counts ProcessGroup::counts() const {
  return group_->counts();
}

}  // namespace mezzo::parallel
