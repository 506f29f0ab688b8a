#include "kernels/cuda_library.h"

#include <memory>

#include "core/raise.h"
#include "kernels/cuda_driver.h"
#include "platform/libraries.h"

namespace mezzo::kernels {
namespace {

constexpr const char* kLibrary = "libmezzo_cuda.so";
constexpr const char* kDriver = CudaDriver::kLibrary;

std::string& given_path() {
  static std::string path;
  return path;
}

struct Found {
  const cuda::Interface* functions = nullptr;
  std::unique_ptr<const DevicesWithCode> devices;  // where there are functions
  std::string why;

  bool runs_on(int device) const { return devices != nullptr && devices->has(device); }
  bool runs_anywhere() const {
    for (int device = 0; devices != nullptr && device < devices->count(); ++device) {
      if (devices->has(device)) return true;
    }
    return false;
  }
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
    return found;
  }
  found.devices = std::make_unique<const DevicesWithCode>(*found.functions);
  found.why.clear();
  if (found.devices->count() == 0) {
    found.why = std::string("no CUDA device: ") + found.functions->error();
    found.functions = nullptr;
  }
  return found;
}

const Found& found() {
  static const Found result = look();
  return result;
}

}  // namespace

DevicesWithCode::DevicesWithCode(const cuda::Interface& functions)
    : functions_(functions), known_(static_cast<std::size_t>(functions.device_count())) {
  for (auto& device : known_) device = cuda::Code::kUnknown;
}

bool DevicesWithCode::has(int device) const {
  if (device < 0 || device >= count()) return false;
  std::atomic<cuda::Code>& known = known_[static_cast<std::size_t>(device)];
  cuda::Code code = known.load(std::memory_order_relaxed);
  if (code == cuda::Code::kUnknown) {
    code = functions_.code_for(device);
    known.store(code, std::memory_order_relaxed);
    if (code == cuda::Code::kUnknown) {
      const std::lock_guard lock(mutex_);
      last_error_ = functions_.error();
    }
  }
  return code == cuda::Code::kThere;
}

std::string DevicesWithCode::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

const cuda::Interface* cuda_library() {
  return found().runs_anywhere() ? found().functions : nullptr;
}

const cuda::Interface* cuda_library(int device) {
  return found().runs_on(device) ? found().functions : nullptr;
}

std::string why_no_cuda_library() {
  const Found& all = found();
  if (all.functions == nullptr || all.runs_anywhere()) return all.why;
  const std::string error = all.devices->last_error();
  return error.empty() ? std::string(kLibrary) + " has no code for the devices here"
                       : std::string(kLibrary) + " cannot be used now: CUDA reported: " + error;
}

void set_cuda_library_path(const std::string& path) {
  given_path() = path;
}

void check_cuda(const cuda::Interface& library, bool done, std::string_view what) {
  if (!done) raise(what, "CUDA reported: ", library.error());
}

}  // namespace mezzo::kernels
