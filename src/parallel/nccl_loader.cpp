#include <ATen/Context.h>

#include "parallel/nccl_part.h"
#include "platform/libraries.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kLibrary = "libmezzo_nccl.so";

const NcclPart* open_part(std::string& why) {
  void* library = nullptr;
  for (const std::string& place : platform::library_candidates(kLibrary, "mezzo")) {
    library = platform::open_library(place, why.empty() ? &why : nullptr);
    if (library != nullptr) break;
  }
  if (library == nullptr) return nullptr;
  const auto entry =
      reinterpret_cast<MezzoNcclPart>(platform::find_symbol(library, "mezzo_nccl_part"));
  const NcclPart* part = entry == nullptr ? nullptr : entry(kNcclPartVersion);
  if (part == nullptr) why = std::string(kLibrary) + " belongs to another version of Mezzo";
  return part;
}

}  // namespace

const NcclPart* nccl_part(std::string* why) {
  // A program that has no use for CUDA must not load it.
  if (!at::hasCUDA()) {
    *why = "LibTorch's CUDA part is not loaded, or finds no device";
    return nullptr;
  }
  static std::string failure;
  static const NcclPart* const part = open_part(failure);
  *why = failure;
  return part;
}

}  // namespace mezzo::parallel
