// The options of mezzo convert.
#pragma once

#include <string>
#include <vector>

#include "mezzo/convert.h"

namespace CLI {
class App;
}

namespace mezzo::cli {

/// As given.
struct ConvertOptions {
  std::string in, out, plan, plan_out;
  std::vector<std::string> reports, io_of, conditions, calibration;
  std::vector<std::string> target_ops, fp32_ops, widest_ops, inputs;
  double tolerance = 0, time_limit = 0;
  bool cast_weights = true, quiet = false, json = false;
  std::string params;  // of MXNet's models
  bool remove_amp_cast = false;
  convert::Options model;
};

/// Adds the options, which are written to `options`; it must outlive the parsing.
void add_convert_options(CLI::App& app, ConvertOptions& options);

}  // namespace mezzo::cli
