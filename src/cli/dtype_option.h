// The option --dtype of several subcommands.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/nearest.h"

namespace mezzo::cli {

/// Adds --dtype: a low type, in any of its spellings. `to` must outlive the parsing.
inline void add_low_dtype_option(CLI::App& app, std::optional<DType>& to,
                                 const std::string& description) {
  app.add_option_function<std::string>(
         "--dtype",
         [&to](const std::string& text) {
           to = parse_dtype(text);
           if (!to || !is_low(*to)) {
             std::vector<std::string_view> names;
             names.reserve(kLowTypes.size());
             for (const DType low : kLowTypes) names.push_back(row_of(low).name);
             throw CLI::ValidationError("--dtype", "'" + text + "' is neither " +
                                                       low_type_names(" nor ") +
                                                       (to ? "" : did_you_mean(text, names)));
           }
         },
         description)
      ->type_name(low_type_names("|"));
}

}  // namespace mezzo::cli
