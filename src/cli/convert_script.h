// mezzo convert NET.pt -o NET16.pt
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mezzo/convert.h"

namespace CLI {
class App;
}

namespace mezzo::cli {

/// Is this a TorchScript archive, by its name or its first bytes?
bool is_script(const std::string& path);

/// Throws ConfigError if an option is given that is for other models.
void check_for_script(const CLI::App& app, const std::string& path);

struct ScriptConversion {
  std::string in, out;
  std::vector<std::string> inputs;   ///< texts of --input, one a tensor, to compare on
  std::vector<std::string> reports;  ///< .json
  bool quiet = false, json = false;
  convert::Options options = {};
};

/// Converts in the part of the program that has LibTorch, writes the file, and says what was done.
void convert_script(const ScriptConversion& conversion);

}  // namespace mezzo::cli
