// The report of a conversion as one self-contained page.
#include <map>
#include <sstream>
#include <string_view>

#include "convert/report/report.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>mezzo convert</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}
pre{background:#f5f5f2;padding:1em;overflow-x:auto}table{border-collapse:collapse;width:100%}
td,th{border-bottom:1px solid #ddd;padding:.25em .6em;text-align:left;vertical-align:top}
.low{color:#1a6b34;font-weight:600}.high{color:#8a4b08;font-weight:600}
</style></head><body><h1>mezzo convert</h1>
)";

void write_mended(std::ostringstream& page, const Report& report) {
  if (!report.adjusted.empty()) {
    page << "<h2>Constants that were not only rounded</h2>\n<table><tr><th>constant</th>"
            "<th>scope</th><th>change</th><th>values</th><th>from</th><th>to</th></tr>\n";
  }
  for (const AdjustedConstant& each : report.adjusted) {
    page << "<tr><td>" << escaped(each.constant) << "</td><td>" << escaped(each.scope)
         << "</td><td>" << each.change << "</td><td>" << each.values << "</td><td>" << each.from
         << "</td><td>" << each.to << "</td></tr>\n";
  }
  if (!report.adjusted.empty()) page << "</table>\n";
  if (report.batch_norms.empty()) return;
  page << "<h2>Batch normalizations</h2>\n<table><tr><th>node</th><th>folded into</th>"
          "<th>why not</th></tr>\n";
  for (const BatchNormFold& norm : report.batch_norms) {
    page << "<tr><td>" << escaped(norm.node) << "</td><td>" << escaped(norm.into) << "</td><td>"
         << escaped(norm.why) << "</td></tr>\n";
  }
  page << "</table>\n";
}

}  // namespace

std::string Report::to_html() const {
  std::map<std::string_view, const LocalError*> own_errors;
  for (const LocalError& error : local_errors) own_errors[error.key] = &error;
  std::ostringstream page;
  page << kHead << "<pre>" << escaped(to_text()) << "</pre>\n<h2>Nodes</h2>\n"
       << "<table><tr><th>node</th><th>variable</th><th>type</th><th>decided "
          "by</th><th>why</th>"
       << (own_errors.empty() ? "" : "<th>its own error in " + target_dtype + "</th>") << "</tr>\n";
  for (const Decision& decision : decisions) {
    page << "<tr><td>" << escaped(decision.node) << "</td><td>" << escaped(decision.variable)
         << "</td><td class=\"" << (decision.low ? "low" : "high") << "\">"
         << (decision.low ? target_dtype : "float32") << "</td><td>" << escaped(decision.rule)
         << "</td><td>" << escaped(decision.why);
    if (!decision.otherwise.empty()) page << "<br>otherwise " << escaped(decision.otherwise);
    if (!decision.pin.empty()) page << "<br>pin " << escaped(decision.pin);
    if (!own_errors.empty()) {
      const auto found = own_errors.find(decision.key);
      page << "</td><td>" << (found == own_errors.end() ? "" : text_of(*found->second));
    }
    page << "</td></tr>\n";
  }
  page << "</table>\n";
  write_mended(page, *this);
  page << "<h2>Casts</h2>\n<table><tr><th>value</th><th>scope</th><th>from</th><th>to</"
          "th><th>why</th></tr>\n";
  for (const CastReport& cast : casts) {
    page << "<tr><td>" << escaped(cast.value) << "</td><td>" << escaped(cast.scope) << "</td><td>"
         << cast.from << "</td><td>" << cast.to << "</td><td>" << escaped(cast.reason)
         << "</td></tr>\n";
  }
  page << "</table></body></html>\n";
  return page.str();
}

}  // namespace mezzo::convert
