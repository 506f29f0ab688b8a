#include "cli/convert_files.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/raise.h"
#include "platform/files.h"

namespace mezzo::cli {

void write_file(const std::string& path, const std::string& text) {
  platform::write_atomically(platform::behind_links(path), [&](std::ostream& out) { out << text; });
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) raise("convert", "cannot read '", path, "'");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void check_reports(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const auto extension = std::filesystem::path(path).extension();
    if (extension != ".json" && extension != ".html") {
      raise<ConfigError>("convert", "--report '", path,
                         "'; expected a name that ends in .json or .html");
    }
  }
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code missing;
  if (std::filesystem::equivalent(a, b, missing)) return true;
  return std::filesystem::weakly_canonical(a, missing) ==
         std::filesystem::weakly_canonical(b, missing);
}

}  // namespace mezzo::cli
