// Runs a training program once per level, each in a process of its own, and puts the results side
// by side.
#pragma once

#include <mezzo/report.h>

#include <filesystem>
#include <string>
#include <vector>

namespace examples {

/// "O0,O1" as the list of its parts; "all" stands for `all`. A level that ends in "+bn" keeps its
/// batch norms in float. Throws mezzo::ConfigError where a part is not in `known` or occurs twice.
std::vector<std::string> parse_levels(const std::string& text, const std::vector<std::string>& all,
                                      const std::vector<std::string>& known);

/// Starts this program with `--opt-level LEVEL --log FILE` (and `--keep-batchnorm-fp32 True` for a
/// level with "+bn") and `arguments`, for one level after the other, and reads what it logged.
/// Throws mezzo::ConfigError or mezzo::Error, by the exit code, when a run fails; the run has said
/// why.
mezzo::report::Report compare_levels(const std::vector<std::string>& levels,
                                     const std::vector<std::string>& arguments);

/// FILE as .json and as .html: where save_report() writes, FILE's own ending not counting. Throws
/// mezzo::Error where either could not be written.
void require_report_writable(const std::filesystem::path& file);

/// Writes both and says where on standard error.
void save_report(const mezzo::report::Report& report, const std::filesystem::path& file);

}  // namespace examples
