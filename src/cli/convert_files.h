// The files that mezzo convert reads and writes beside the model.
#pragma once

#include <string>
#include <vector>

namespace mezzo::cli {

void write_file(const std::string& path, const std::string& text);

/// Throws Error if the file cannot be read.
std::string read_file(const std::string& path);

/// Throws ConfigError if a report is to have another format than those that there are.
void check_reports(const std::vector<std::string>& paths);

/// Do the two names lead to one file, there or not?
bool is_same_file(const std::string& a, const std::string& b);

}  // namespace mezzo::cli
