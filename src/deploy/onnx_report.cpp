#include <sstream>

#include "deploy/onnx_builder.h"

namespace mezzo::deploy {

std::string ExportReport::to_text() const {
  std::ostringstream text;
  text << nodes << " operators";
  if (verified.empty()) {
    text << ", not verified\n";
  } else {
    text << ", verified by " << verified << '\n';
    for (std::size_t i = 0; i < errors.size(); ++i)
      text << "  output " << i << ": error " << errors[i] << " of its range\n";
  }
  for (const std::string& warning : warnings) text << "warning: " << warning << '\n';
  return text.str();
}

namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    if (letter == '\n') {
      result += "\\n";
    } else {
      result += letter;
    }
  }
  return result + '"';
}

}  // namespace

std::string ExportReport::to_json() const {
  std::ostringstream text;
  text << "{\"nodes\": " << nodes << ", \"verified\": " << quoted(verified) << ", \"errors\": [";
  for (std::size_t i = 0; i < errors.size(); ++i) text << (i == 0 ? "" : ", ") << errors[i];
  text << "], \"warnings\": [";
  for (std::size_t i = 0; i < warnings.size(); ++i)
    text << (i == 0 ? "" : ", ") << quoted(warnings[i]);
  text << "]}\n";
  return text.str();
}

// The view of the model that callers' own translations have.

std::vector<OnnxValue> OnnxGraph::add(const std::string& op_type,
                                      const std::vector<OnnxValue>& operands,
                                      const OnnxAttributes& attributes, int outputs) {
  detail::Names in;
  for (const OnnxValue& operand : operands)
    in.push_back(operand.operand()->kind == detail::Operand::Kind::kValue
                     ? builder_.name_of(operand)
                     : builder_.list_of(operand));
  std::vector<OnnxValue> values;
  for (const std::string& name :
       builder_.ops(op_type, in, attributes, static_cast<std::size_t>(outputs)))
    values.push_back(detail::made_of(name, {}));
  return values;
}

OnnxValue OnnxGraph::constant(const at::Tensor& tensor) {
  return detail::constant_of(tensor, builder_.variants());
}

int OnnxGraph::opset() const {
  return builder_.opset();
}

const OnnxValue& OnnxCall::operator[](std::string_view argument) const {
  const auto found = operands_.find(argument);
  if (found != operands_.end()) return found->second;
  raise<ConfigError>("export_onnx", name_, " has no argument '", argument, "'");
}

}  // namespace mezzo::deploy
