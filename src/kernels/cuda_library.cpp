#include "kernels/cuda_library.h"

#include <algorithm>
#include <vector>

#include "core/platform.h"
#include "core/raise.h"

namespace mezzo::kernels {
namespace {

constexpr const char* kLibrary = "libmezzo_cuda.so";
constexpr const char* kDriver = "libcuda.so.1";

std::string& given_path() {
  static std::string path;
  return path;
}

struct Found {
  const cuda::Interface* functions = nullptr;
  std::vector<bool> runs_on;  // by device
  std::string why;
};

void* open_kernels(std::string& why) {
  const std::vector<std::string> places = given_path().empty()
                                              ? platform::library_candidates(kLibrary, "mezzo")
                                              : std::vector<std::string>{given_path()};
  for (const std::string& place : places) {
    if (void* library = platform::open_library(place, why.empty() ? &why : nullptr)) return library;
  }
  return nullptr;
}

// Is there one that has code?
bool find_devices(Found& found) {
  const int count = found.functions->device_count();
  for (int device = 0; device < count; ++device) {
    found.runs_on.push_back(found.functions->runs_on(device));
  }
  return std::find(found.runs_on.begin(), found.runs_on.end(), true) != found.runs_on.end();
}

Found look() {
  Found found;
  if (platform::open_library(kDriver) == nullptr) {
    found.why = "this machine has no CUDA driver (" + std::string(kDriver) + ")";
    return found;
  }
  void* library = open_kernels(found.why);
  if (library == nullptr) return found;
  const auto entry =
      reinterpret_cast<MezzoCudaInterface>(platform::find_symbol(library, "mezzo_cuda_interface"));
  found.functions = entry == nullptr ? nullptr : entry(cuda::kInterfaceVersion);
  if (found.functions == nullptr) {
    found.why = std::string(kLibrary) + " belongs to another version of Mezzo";
  } else if (found.functions->device_count() == 0) {
    found.why = std::string("no CUDA device: ") + found.functions->error();
    found.functions = nullptr;
  } else if (!find_devices(found)) {
    found.why =
        std::string(kLibrary) + " has no code for the devices here: " + found.functions->error();
    found.functions = nullptr;
  } else {
    found.why.clear();
  }
  return found;
}

const Found& found() {
  static const Found result = look();
  return result;
}

}  // namespace

const cuda::Interface* cuda_library() {
  return found().functions;
}

const cuda::Interface* cuda_library(int device) {
  const Found& all = found();
  const auto index = static_cast<std::size_t>(device);
  return index < all.runs_on.size() && all.runs_on[index] ? all.functions : nullptr;
}

const std::string& why_no_cuda_library() {
  return found().why;
}

void set_cuda_library_path(const std::string& path) {
  given_path() = path;
}

void check_cuda(const cuda::Interface& library, bool done, std::string_view what) {
  if (!done) raise(what, "CUDA reported: ", library.error());
}

}  // namespace mezzo::kernels
