#include <optional>

#include "deploy/files/script_file.h"
#include "mezzo/deploy_script.h"
#include "platform/files.h"

namespace mezzo::deploy {

ScriptReport convert_script(const std::filesystem::path& in, const std::filesystem::path& out,
                            const ScriptOptions& options) {
  constexpr const char* kWhere = "convert";
  refuse_same_file(in, out, kWhere);
  const torch::jit::Module module = load_script(in, kWhere);
  ScriptReport report;
  std::optional<torch::jit::Module> result;
  try {
    result = convert_hybrid_block(module, options, &report);
  } catch (...) {
    rethrow_naming(in, kWhere);
  }
  platform::write_atomically(platform::behind_links(out),
                             [&](std::ostream& stream) { result->save(stream); });
  return report;
}

}  // namespace mezzo::deploy
