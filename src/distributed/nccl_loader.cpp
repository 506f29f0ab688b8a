#include "core/platform.h"
#include "distributed/communicator.h"

namespace mezzo::parallel {

// NCCL's part is a library of its own, since it needs all of NVIDIA's: it is opened only where it
// can be.
std::shared_ptr<Engine> nccl_engine(const EngineOptions& options, std::string* why) {
  using Make = std::shared_ptr<Engine> (*)(const EngineOptions&, std::string*);
  void* const library = platform::open_library("libmezzo_nccl.so", why);
  if (library == nullptr) return nullptr;
  const auto make = reinterpret_cast<Make>(platform::find_symbol(library, "mezzo_nccl_engine"));
  if (make == nullptr) {
    *why = "libmezzo_nccl.so is of another version";
    return nullptr;
  }
  return make(options, why);
}

}  // namespace mezzo::parallel
