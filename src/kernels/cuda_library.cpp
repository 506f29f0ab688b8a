#include "kernels/cuda_library.h"

#include <atomic>
#include <vector>

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

enum class Answer : signed char { kUnknown, kNo, kYes };

struct Found {
  const cuda::Interface* functions = nullptr;
  // Asking makes a context on a device, some hundred megabytes of its memory, so that only those in
  // use are asked.
  mutable std::vector<std::atomic<Answer>> runs_on;
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

bool runs_on(const Found& found, std::size_t device) {
  if (device >= found.runs_on.size()) return false;
  std::atomic<Answer>& known = found.runs_on[device];
  if (known.load(std::memory_order_relaxed) == Answer::kUnknown) {
    const bool runs = found.functions->runs_on(static_cast<int>(device));
    known.store(runs ? Answer::kYes : Answer::kNo, std::memory_order_relaxed);
  }
  return known.load(std::memory_order_relaxed) == Answer::kYes;
}

// Is there a device that has code?
bool runs_anywhere(const Found& found) {
  for (std::size_t device = 0; device < found.runs_on.size(); ++device) {
    if (runs_on(found, device)) return true;
  }
  return false;
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
  const int count = found.functions->device_count();
  found.runs_on = std::vector<std::atomic<Answer>>(static_cast<std::size_t>(count));
  found.why.clear();
  if (count == 0) {
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

const cuda::Interface* cuda_library() {
  return runs_anywhere(found()) ? found().functions : nullptr;
}

const cuda::Interface* cuda_library(int device) {
  const Found& all = found();
  return runs_on(all, static_cast<std::size_t>(device)) ? all.functions : nullptr;
}

const std::string& why_no_cuda_library() {
  static const std::string nothing_runs =
      std::string(kLibrary) + " has no code for the devices here";
  const bool is_useless = found().functions != nullptr && !runs_anywhere(found());
  return is_useless ? nothing_runs : found().why;
}

void set_cuda_library_path(const std::string& path) {
  given_path() = path;
}

void check_cuda(const cuda::Interface& library, bool done, std::string_view what) {
  if (!done) raise(what, "CUDA reported: ", library.error());
}

}  // namespace mezzo::kernels
