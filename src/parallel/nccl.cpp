#include "core/torch.h"  // first: LibTorch's include order

// The only file that sees LibTorch's NCCL group: libmezzo_nccl.so, opened where CUDA is in use.
#include <ATen/Context.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <iomanip>
#include <sstream>

#include "parallel/engine_communicator.h"
#include "parallel/engine_store.h"
#include "parallel/nccl_part.h"

namespace mezzo::parallel {
namespace {

using Nccl = c10d::ProcessGroupNCCL;

// Collectives run on streams of their own; waiting makes the current stream wait, not the host.
class NcclCommunicator final : public EngineCommunicator {
 public:
  explicit NcclCommunicator(const c10::intrusive_ptr<Nccl>& nccl)
      : EngineCommunicator(nccl), nccl_(nccl) {}
  ~NcclCommunicator() override {
    try {
      nccl_->shutdown();
    } catch (const std::exception&) {
      // The collective that failed has reported it.
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

 private:
  c10::intrusive_ptr<Nccl> nccl_;
};

class NcclEngine final : public Engine {
 public:
  explicit NcclEngine(const EngineOptions& options) : options_(options) {}

  std::shared_ptr<Communicator> connect(const std::string& name, int rank, int size) override {
    const auto& store = static_cast<const EngineStore&>(*options_.store).engine();
    auto options = Nccl::Options::create();
    options->timeout = options_.timeout;
    const auto nccl = c10::make_intrusive<Nccl>(c10::make_intrusive<c10d::PrefixStore>(name, store),
                                                rank, size, options);
    // Were our view of the class another than the library's, this would not hold.
    TORCH_INTERNAL_ASSERT(nccl->getOptions() == options, "NCCL's class has another layout");
    return std::make_shared<NcclCommunicator>(nccl);
  }

 private:
  const EngineOptions options_;
};

// The version of the library that runs: 2.28 as {2, 28}.
std::pair<int, int> running_version() {
  const std::uint64_t version = torch::cuda::nccl::version();
  return {static_cast<int>(version >> 32), static_cast<int>(version >> 16 & 0xffff)};
}

std::shared_ptr<Engine> make_engine(const EngineOptions& options, std::string* why) {
  const auto [major, minor] = running_version();
  if (major != NCCL_MAJOR || minor != NCCL_MINOR) {
    // Its options are a structure of NCCL's, which grows.
    *why = c10::str("built with the header of NCCL ", NCCL_MAJOR, ".", NCCL_MINOR,
                    ", and LibTorch runs ", major, ".", minor);
    return nullptr;
  }
  return std::make_shared<NcclEngine>(options);
}

std::string gpu_of(int local_rank) {
  const auto count = static_cast<int>(at::getNumGPUs());
  if (count == 0) return {};
  std::ostringstream text;
  for (const char byte : at::cuda::getDeviceProperties(local_rank % count)->uuid.bytes) {
    text << std::hex << std::setw(2) << std::setfill('0')
         << static_cast<unsigned>(static_cast<unsigned char>(byte));
  }
  return text.str();
}

constexpr NcclPart kPart{kNcclPartVersion, make_engine, gpu_of};

}  // namespace
}  // namespace mezzo::parallel

extern "C" __attribute__((visibility("default"))) const mezzo::parallel::NcclPart* mezzo_nccl_part(
    int version) {
  return version == mezzo::parallel::kNcclPartVersion ? &mezzo::parallel::kPart : nullptr;
}
