#include "generator.h"

#include <ATen/Functions.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstring>
#include <mutex>
#include <random>

#include "guard.h"
#include "memory.h"
#include "streams.h"

namespace mezzo::pretend {
namespace {

constexpr std::uint64_t kUsualSeed = 67280421310721;

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(int device)
      : GeneratorImpl({c10::kCUDA, static_cast<c10::DeviceIndex>(device)},
                      c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

  void set_current_seed(std::uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }
  std::uint64_t current_seed() const override {
    refuse_in_capture();
    return seed_;
  }
  std::uint64_t seed() override {
    set_current_seed(std::random_device{}());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 2 * sizeof(std::uint64_t) && state.device().is_cpu(),
                "RNG state must be a torch.ByteTensor of 16 numbers");
    const auto* bytes = static_cast<const std::byte*>(state.data());
    std::memcpy(&seed_, bytes, sizeof(seed_));
    std::memcpy(&offset_, bytes + sizeof(seed_), sizeof(offset_));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    refuse_in_capture();
    at::Tensor state =
        at::empty({2 * sizeof(std::uint64_t)}, at::TensorOptions(at::kCPU).dtype(at::kByte));
    auto* bytes = state.mutable_data_ptr<std::uint8_t>();
    std::memcpy(bytes, &seed_, sizeof(seed_));
    std::memcpy(bytes + sizeof(seed_), &offset_, sizeof(offset_));
    return state.getIntrusivePtr();
  }
  std::uint64_t take() {
    std::seed_seq mixed{seed_, seed_ >> 32, offset_++};
    std::array<std::uint32_t, 2> words{};
    mixed.generate(words.begin(), words.end());
    return words[0] | static_cast<std::uint64_t>(words[1]) << 32;
  }

 private:
  DeviceGenerator* clone_impl() const override {
    auto* copy = new DeviceGenerator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  void refuse_in_capture() const {
    TORCH_CHECK(!Streams::all().capture_of(current_stream(current_device())),
                "Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture.");
  }

  std::uint64_t seed_ = kUsualSeed;
  std::uint64_t offset_ = 0;
};

}  // namespace

const at::Generator& default_generator(int device) {
  static const std::array<at::Generator, kDevices> all{new_generator(0), new_generator(1)};
  return all.at(static_cast<std::size_t>(device));
}

at::Generator new_generator(int device) {
  return at::make_generator<DeviceGenerator>(device);
}

std::uint64_t next_draw(const at::Generator& generator) {
  auto* impl = dynamic_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl());
  TORCH_CHECK(impl != nullptr, "Expected a 'cuda' device type for generator but found 'cpu'");
  const std::lock_guard lock(impl->mutex_);
  return impl->take();
}

}  // namespace mezzo::pretend
