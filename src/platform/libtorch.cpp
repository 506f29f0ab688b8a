#include "platform/libtorch.h"

#include <dlfcn.h>

#include <chrono>
#include <fstream>
#include <string_view>

#include "mezzo/error.h"
#include "platform/libraries.h"
#include "platform/process.h"

namespace mezzo::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeries = MEZZO_LIBTORCH_SERIES;
constexpr const char* kMain = "libtorch_cpu.so";

/// "2.11.0" as a wheel's Python code says it, or the file of an unpacked archive; else empty.
std::string version_of(const fs::path& folder) {
  std::string line;
  std::ifstream python(folder / "version.py");
  while (std::getline(python, line)) {
    const std::size_t quote = line.find('\'');
    if (line.starts_with("__version__") && quote != std::string::npos)
      return line.substr(quote + 1);
  }
  std::ifstream archive(folder / "build-version");
  std::getline(archive, line);
  return line;
}

/// The reason why a folder is not the LibTorch that is needed; empty if it may be.
std::string objection_to(const fs::path& folder) {
  if (!fs::exists(folder / "lib" / kMain)) return std::string("has no lib/") + kMain;
  const std::string version = version_of(folder);
  const bool fits = version.starts_with(std::string(kSeries) + ".");
  if (version.empty() || fits) return "";
  return "is LibTorch " + version.substr(0, version.find_first_of("+'")) + ", not " +
         std::string(kSeries);
}

/// A folder that fits; else empty, and what is wrong is added to `looked`.
fs::path accepted(const std::string& folder, const std::string& whose, std::string& looked) {
  const std::string objection = objection_to(folder);
  if (objection.empty()) return folder;
  looked += (looked.empty() ? "" : ", ") + whose + " '" + folder + "' " + objection;
  return {};
}

fs::path named_by_environment(std::string& looked) {
  const auto named = environment_variable("LIBTORCH");
  if (!named || named->empty()) {
    looked += "LIBTORCH is not set";
    return {};
  }
  return accepted(*named, "LIBTORCH", looked);
}

/// The first line that a command prints within some seconds; empty if it fails.
std::string first_line_of(const std::vector<std::string>& command) {
  constexpr std::chrono::seconds kPatience(20);
  std::string text;
  try {
    Process process(command, {});
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (process.read(0, text) && std::chrono::steady_clock::now() < end) {
      wait_readable({process.pipe(0)}, kPatience);
    }
  } catch (const Error&) {
    return "";
  }
  return text.substr(0, text.find('\n'));
}

/// It is asked for the folder alone: importing torch takes seconds.
fs::path torch_of_python(std::string& looked) {
  const std::string folder = first_line_of({"python3", "-c",
                                            "import importlib.util as u; s = u.find_spec('torch'); "
                                            "print(s.submodule_search_locations[0] if s else '')"});
  if (folder.empty()) {
    looked += (looked.empty() ? "" : ", ") + std::string("python3 has no torch");
    return {};
  }
  return accepted(folder, "python3's torch", looked);
}

/// The torch of the Python environment that a library belongs to: site-packages/torch of
/// site-packages/mezzo/LIBRARY. Empty if there is none.
fs::path torch_beside(const fs::path& library) {
  if (!library.has_parent_path()) return {};
  fs::path folder = library.parent_path() / ".." / "torch";
  return fs::exists(folder / "lib" / kMain) ? folder.lexically_normal() : fs::path();
}

/// Opens the LibTorch of a folder, so that what is opened later finds it in the process.
bool load(const fs::path& folder, std::string& looked) {
  std::string why;
  if (open_library((folder / "lib" / kMain).string(), &why) != nullptr) return true;
  looked += (looked.empty() ? "" : ", ") + why;
  return false;
}

/// Whether the loader missed LibTorch, going by what it says.
bool lacks_libtorch(const std::string& reason) {
  return reason.find(kMain) != std::string::npos || reason.find("libc10.so") != std::string::npos;
}

bool is_loaded() {
  return dlopen(kMain, RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

}  // namespace

fs::path find_libtorch(std::string* looked) {
  std::string places;
  fs::path folder = named_by_environment(places);
  if (folder.empty()) folder = torch_of_python(places);
  if (folder.empty() && looked != nullptr) *looked = places;
  return folder;
}

void* open_with_libtorch(const std::string& name, std::string* why) {
  std::string looked;
  const bool may_load = !is_loaded();
  const fs::path named = may_load ? named_by_environment(looked) : fs::path();
  const fs::path beside = named.empty() ? torch_beside(name) : fs::path();
  if (!beside.empty()) {
    const std::string objection = objection_to(beside);
    if (!objection.empty()) {  // the process may have loaded that one
      if (why != nullptr) *why = "the torch beside it, '" + beside.string() + "', " + objection;
      return nullptr;
    }
  }
  if (may_load && !(named.empty() && beside.empty())) load(named.empty() ? beside : named, looked);
  std::string reason;
  void* library = open_library(name, &reason);
  if (library == nullptr && may_load && !is_loaded() && lacks_libtorch(reason)) {
    const fs::path folder = torch_of_python(looked);
    if (!folder.empty() && load(folder, looked)) library = open_library(name, &reason);
    if (library == nullptr) reason += "; " + looked;
  }
  if (library == nullptr && why != nullptr) *why = reason;
  return library;
}

}  // namespace mezzo::platform
