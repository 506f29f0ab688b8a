#include "convert/judge/check_command.h"

#include <algorithm>
#include <chrono>

#include "convert/onnx/concat.h"
#include "core/raise.h"
#include "platform/process.h"

namespace mezzo::convert {
namespace {

constexpr std::string_view kPlace = "{}";
/// The number of lines that are shown of a command's output.
constexpr std::size_t kLines = 10;
constexpr std::size_t kBytes = 2000;

// The shell's code for a command that it cannot run, or does not find.
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string last_lines(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  if (text.size() > kBytes) text.remove_prefix(text.size() - kBytes);
  std::size_t begin = text.size();
  for (std::size_t lines = 0; begin > 0 && lines < kLines; ++lines) {
    const std::size_t end_before = text.rfind('\n', begin - 1);
    begin = end_before == std::string_view::npos ? 0 : end_before;
  }
  text.remove_prefix(begin);
  if (!text.empty() && text.front() == '\n') text.remove_prefix(1);
  return std::string(text);
}

std::string way_of(const platform::ProcessEnd& end) {
  if (end.signal != 0) return concat({"ended by ", platform::signal_name(end.signal)});
  std::string text = concat({"exit code ", std::to_string(end.code)});
  // How the shell reports a command that a signal has ended.
  constexpr int kBySignal = 128;
  if (end.code > kBySignal && end.code <= kBySignal + 64)
    text += concat({", ", platform::signal_name(end.code - kBySignal)});
  return text;
}

}  // namespace

std::string command_for(std::string_view command, const std::filesystem::path& model) {
  const std::string path = shell_word(model.string());
  std::string text;
  char quote = 0;  // the one that is open
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (command.substr(i, kPlace.size()) == kPlace) {
      if (quote != 0) text += quote;
      text += path;
      if (quote != 0) text += quote;
      ++i;
      continue;
    }
    text += c;
    if (c == '\\' && quote != '\'' && i + 1 < command.size()) {
      text += command[++i];
    } else if (quote == c) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    }
  }
  return text;
}

CommandVerdict ask_command(std::string_view command, const std::filesystem::path& model) {
  // Both of its streams are one, so that its lines come in order.
  const std::string text = concat({"exec 2>&1\n", command_for(command, model)});
  platform::Process process({"/bin/sh", "-c", text}, {});
  std::string output;
  const auto read = [&] {
    process.read(0, output);
    if (output.size() > 2 * kBytes) output.erase(0, output.size() - kBytes);
  };
  std::optional<platform::ProcessEnd> end = process.end();
  for (; !end; end = process.end()) {
    constexpr std::chrono::milliseconds kLook{20};  // at a command that has closed its output
    platform::wait_readable({process.pipe(0)}, kLook);
    read();
  }
  read();
  const std::string wrote = last_lines(output);
  const std::string way = way_of(*end);
  const std::string_view between = wrote.empty() ? "" : ":\n";
  if (end->signal == 0 && (end->code == kCannotRun || end->code == kNotFound)) {
    raise("convert", "nothing was written: the shell cannot run '", command, "' (", way, ")",
          between, wrote);
  }
  return {!end->failed(), concat({way, between, wrote})};
}

}  // namespace mezzo::convert
