// Words of the command line: options of the library by their flags, and edits of lists.
#pragma once

#include <string>
#include <vector>

namespace mezzo::cli {

/// The text of an error or a report with every "Options::tolerance" of the converter as
/// "--tolerance", and "Options::opset 'auto'" as "--opset auto".
std::string in_flags(std::string text);

/// The words of a command line with `--fp32-ops -A -B` as `--fp32-ops -A,-B`: otherwise the second
/// edit of a list of operators would be taken for a flag.
std::vector<std::string> with_joined_edits(const std::vector<std::string>& words);

}  // namespace mezzo::cli
