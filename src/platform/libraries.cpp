#include "platform/libraries.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstddef>
#include <system_error>

namespace mezzo::platform {

void* open_library(const std::string& name, std::string* why) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr && why != nullptr) *why = dlerror();
  return handle;
}

std::filesystem::path program_path() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown);
}

std::vector<std::string> library_candidates(const std::string& name, const std::string& package) {
  std::vector<std::string> found{name};
  std::vector<std::string> patterns;
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&library_candidates), &own) != 0) {
    const std::filesystem::path beside = std::filesystem::path(own.dli_fname).parent_path();
    patterns.push_back((beside / name).string());
    // A Python environment: this library in a package of its own, or this program in its bin.
    patterns.push_back((beside / ".." / package / name).string());
    patterns.push_back((beside / "../lib/python3*/site-packages" / package / name).string());
  }
  for (const char* folder : {"/usr/local/lib/", "/usr/lib/*-linux-gnu/", "/usr/lib/"}) {
    patterns.push_back(folder + name);
  }
  for (const char* folder :
       {"/usr/local/lib/python3*/dist-packages/", "/usr/lib/python3*/dist-packages/",
        "/usr/local/lib/python3*/site-packages/"}) {
    patterns.push_back((std::filesystem::path(folder) / package / name).string());
  }
  for (const std::string& pattern : patterns) {
    glob_t matches{};
    if (glob((pattern + "*").c_str(), 0, nullptr, &matches) == 0) {
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
    }
    globfree(&matches);
  }
  return found;
}

void* find_symbol(void* library, const std::string& name) {
  return dlsym(library, name.c_str());
}

}  // namespace mezzo::platform
