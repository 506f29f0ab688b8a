#include "cli/torch_part.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/raise.h"
#include "platform/libraries.h"
#include "platform/libtorch.h"

namespace mezzo::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libmezzo_cli_torch.so";

/// Beside the program, as in a build folder, or where an installation has libraries.
void* open_part() {
  const fs::path folder = platform::program_path().parent_path();
  std::string reasons;
  for (const fs::path& place : {folder / kLibrary, folder / MEZZO_LIBRARY_FOLDER / kLibrary}) {
    if (!fs::exists(place)) continue;
    std::string why;
    if (void* library = platform::open_with_libtorch(place.string(), &why)) return library;
    reasons += (reasons.empty() ? "" : "; ") + why;
  }
  if (reasons.empty()) reasons = std::string(kLibrary) + " is not installed with this program";
  raise<UnsupportedError>("LibTorch", "cannot be loaded: ", reasons);
}

}  // namespace

nlohmann::ordered_json ask_torch(const std::string& function,
                                 const nlohmann::ordered_json& request) {
  using Entry = const char* (*)(const char*, const char*);
  // Never closed: LibTorch's threads outlive main.
  const auto entry = reinterpret_cast<Entry>(platform::find_symbol(open_part(), "mezzo_cli_torch"));
  if (entry == nullptr) {
    raise<UnsupportedError>("LibTorch", kLibrary, " belongs to another version of this program");
  }
  auto answer = nlohmann::ordered_json::parse(entry(function.c_str(), request.dump().c_str()));
  if (answer.contains("wrong_usage")) throw ConfigError(answer["wrong_usage"].get<std::string>());
  if (answer.contains("failed")) throw Error(answer["failed"].get<std::string>());
  return std::move(answer["done"]);
}

void* find_in_torch_part(const std::string& function) {
  return platform::find_symbol(open_part(), function);
}

}  // namespace mezzo::cli
