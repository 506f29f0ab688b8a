#include "deploy/files/script_file.h"

#include <torch/csrc/jit/serialization/import.h>

#include <fstream>

#include "core/raise.h"
#include "core/torch.h"
#include "deploy/files/torchvision.h"

namespace mezzo::deploy {
namespace {

/// "acme::blur" of a message that TorchScript's reader writes; empty for any other.
std::string unknown_operator(const std::string& message) {
  static constexpr std::string_view kBefore = "Unknown builtin op: ";
  const std::size_t at = message.find(kBefore);
  if (at == std::string::npos) return {};
  const std::string rest = message.substr(at + kBefore.size());
  return rest.substr(0, rest.find_first_of(".\n "));
}

std::string without_backtrace(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

}  // namespace

std::string reason_of(const std::exception& error) {
  std::string text = without_backtrace(error);
  text.erase(0, text.find_first_not_of('\n'));
  while (text.ends_with('\n')) text.pop_back();
  if (text.starts_with("The following operation failed")) return text.substr(text.rfind('\n') + 1);
  return text.substr(0, text.find('\n'));
}

torch::jit::Module load_script(const std::filesystem::path& path, const char* where) {
  if (!std::ifstream(path)) raise(where, "cannot read '", path.string(), "'");
  know_torchvision();
  try {
    return torch::jit::load(path.string(), c10::Device(c10::kCPU));
  } catch (const std::exception& error) {
    if (const std::string name = unknown_operator(without_backtrace(error)); !name.empty()) {
      raise<UnsupportedError>(where, "'", path.string(), "' calls the operator ", name,
                              ", which nobody has registered; load the library that does");
    }
    const std::string why = reason_of(error);
    raise(where, "'", path.string(),
          "' is no TorchScript archive that can be read: ", why.substr(0, why.find('.')));
  }
}

void refuse_same_file(const std::filesystem::path& in, const std::filesystem::path& out,
                      const char* where) {
  std::error_code missing;
  if (std::filesystem::equivalent(in, out, missing))
    raise<ConfigError>(where, "'", out.string(), "' is the input; name another file");
}

void rethrow_naming(const std::filesystem::path& file, const char* where) {
  const auto named = [&](const std::string& why) {
    return c10::str("[", where, "] '", file.string(), "': ", why);
  };
  try {
    throw;
  } catch (const ConfigError& error) {
    throw ConfigError(named(error.what()));
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(named(error.what()));
  } catch (const Error& error) {
    throw Error(named(error.what()));
  } catch (const std::exception& error) {
    throw Error(named(reason_of(error)));
  }
}

}  // namespace mezzo::deploy
