#include <torch/csrc/jit/serialization/import.h>

#include <fstream>

#include "core/raise.h"
#include "mezzo/deploy_script.h"
#include "platform/files.h"

namespace mezzo::deploy {
namespace {

torch::jit::Module load_script(const std::filesystem::path& path) {
  if (!std::ifstream(path)) raise("convert", "cannot read '", path.string(), "'");
  try {
    return torch::jit::load(path.string(), c10::Device(c10::kCPU));
  } catch (const c10::Error& error) {
    std::string why = error.what_without_backtrace();
    why = why.substr(0, why.find_first_of("\n."));
    raise("convert", "'", path.string(), "' is no TorchScript archive that can be read: ", why);
  }
}

/// Converts; errors name the file.
torch::jit::Module converted_file(const std::filesystem::path& path,
                                  const torch::jit::Module& module, const ScriptOptions& options,
                                  ScriptReport& report) {
  const auto named = [&](const Error& error) {
    return "[convert] '" + path.string() + "': " + error.what();
  };
  try {
    return convert_hybrid_block(module, options, &report);
  } catch (const ConfigError& error) {
    throw ConfigError(named(error));
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(named(error));
  } catch (const Error& error) {
    throw Error(named(error));
  } catch (const c10::Error& error) {
    std::string why = error.what_without_backtrace();
    raise("convert", "'", path.string(), "' cannot be converted: ", why.substr(0, why.find('\n')));
  }
}

}  // namespace

ScriptReport convert_script(const std::filesystem::path& in, const std::filesystem::path& out,
                            const ScriptOptions& options) {
  std::error_code missing;
  if (std::filesystem::equivalent(in, out, missing))
    raise<ConfigError>("convert", "'", out.string(), "' is the input; name another file");
  const torch::jit::Module module = load_script(in);
  ScriptReport report;
  const torch::jit::Module result = converted_file(in, module, options, report);
  platform::write_atomically(platform::behind_links(out),
                             [&](std::ostream& stream) { result.save(stream); });
  return report;
}

}  // namespace mezzo::deploy
