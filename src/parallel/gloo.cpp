#include "core/torch.h"  // first: LibTorch's include order

// The only file that sees LibTorch's Gloo group, with the declarations of Gloo beside it.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // NOLINT(readability-identifier-naming)
#endif
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "parallel/communicator.h"
#include "parallel/engine_communicator.h"
#include "parallel/engine_store.h"

namespace mezzo::parallel {
namespace {

using Gloo = c10d::ProcessGroupGloo;

class GlooEngine final : public Engine {
 public:
  explicit GlooEngine(const EngineOptions& options) : options_(options) {
    if (!options.interface.empty()) {
      device_ = Gloo::createDeviceForInterface(options.interface);
    } else if (!options.address.empty()) {
      device_ = Gloo::createDeviceForHostname(options.address);
    } else {
      device_ = Gloo::createDefaultDevice();
    }
  }

  std::shared_ptr<Communicator> connect(const std::string& name, int rank, int size) override {
    const auto& store = static_cast<const EngineStore&>(*options_.store).engine();
    auto options = Gloo::Options::create(options_.timeout);
    options->devices.push_back(device_);
    const auto gloo = c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>(name, store),
                                                rank, size, options);
    // Were our view of the class another than the library's, this would not hold.
    TORCH_INTERNAL_ASSERT(gloo->getOptions() == options, "Gloo's class has another layout");
    return std::make_shared<EngineCommunicator>(gloo);
  }

 private:
  const EngineOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;
};

}  // namespace

std::shared_ptr<Engine> gloo_engine(const EngineOptions& options) {
  return std::make_shared<GlooEngine>(options);
}

}  // namespace mezzo::parallel
