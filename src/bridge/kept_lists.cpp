#include "bridge/kept_lists.h"

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace mezzo::bridge {
namespace {

using ListKey = std::tuple<const void*, c10::DeviceIndex, kernels::cuda::Stream>;

// Lists that ended threads left behind, for the next ones. Never given back: graphs that were
// captured there may be replayed by others.
struct LeftLists {
  std::mutex mutex;
  std::multimap<ListKey, CudaList> lists;
};
LeftLists& left_lists() {
  static auto* the_lists = new LeftLists;
  return *the_lists;
}

// The lists of one thread. Descriptors and scratch memory are kept, so that calls neither allocate
// nor free: freeing would wait for the device. Each stream has its own, since calls on two of them
// may run at once.
class ThreadLists {
 public:
  ThreadLists() = default;
  ~ThreadLists() {
    LeftLists& left = left_lists();
    const std::lock_guard lock(left.mutex);
    left.lists.merge(lists_);
  }
  ThreadLists(const ThreadLists&) = delete;
  ThreadLists& operator=(const ThreadLists&) = delete;

  kernels::cuda::List* at(const kernels::cuda::Interface& cuda, const at::Device& device,
                          kernels::cuda::Stream stream) {
    const ListKey key{&cuda, device.index(), stream};
    CudaList& list = lists_[key];
    if (!list) list = take_left(key);
    if (!list) list = make_cuda_list(cuda, device);
    return list.get();
  }

 private:
  static CudaList take_left(const ListKey& key) {
    LeftLists& left = left_lists();
    const std::lock_guard lock(left.mutex);
    const auto found = left.lists.find(key);
    if (found == left.lists.end()) return nullptr;
    CudaList list = std::move(found->second);
    left.lists.erase(found);
    return list;
  }

  std::map<ListKey, CudaList> lists_;
};

}  // namespace

kernels::cuda::List* kept_list(const kernels::cuda::Interface& cuda, const at::Device& device,
                               kernels::cuda::Stream stream) {
  static thread_local ThreadLists lists;
  return lists.at(cuda, device, stream);
}

}  // namespace mezzo::bridge
