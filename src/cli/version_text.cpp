#include "cli/version_text.h"

#include "cli/configured.h"
#include "mezzo/report.h"

namespace mezzo::cli {

std::string version_text() {
  const auto versions = report::this_machine().versions;
  return "mezzo " + versions.at("mezzo") + "\ncommit " + MEZZO_COMMIT + "\ncompiler " +
         versions.at("compiler") + "\nLibTorch " + MEZZO_BUILT_WITH_LIBTORCH;
}

}  // namespace mezzo::cli
