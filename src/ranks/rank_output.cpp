#include "ranks/rank_output.h"

#include <cerrno>
#include <cstring>
#include <ostream>
#include <sstream>
#include <utility>

#include "core/raise.h"

namespace mezzo::ranks {
namespace {
constexpr std::size_t kLinesKept = 12;
// A longer line is shown as lines of this length, however it arrives.
constexpr std::size_t kLongestLine = std::size_t{64} * 1024;
}  // namespace

RankOutput::RankOutput(int rank, const std::filesystem::path& log_directory, bool tee,
                       std::ostream& out, std::ostream& err)
    : rank_(rank), err_(err) {
  const char* endings[] = {".out", ".err"};
  std::ostream* terminals[] = {&out, &err};
  for (int which : {0, 1}) {
    Stream& stream = streams_[which];
    if (log_directory.empty() || tee) stream.terminal = terminals[which];
    if (log_directory.empty()) continue;
    const auto path = log_directory / ("rank_" + std::to_string(rank) + endings[which]);
    stream.path = path.string();
    stream.file.open(path, std::ios::trunc);
    if (!stream.file) {
      raise("launch", "cannot write '", stream.path, "': ", std::strerror(errno));
    }
  }
}

void RankOutput::add(int which, const std::string& text) {
  Stream& stream = streams_[which];
  if (stream.file.is_open()) log(stream, text);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    extend(stream, std::string_view(text).substr(begin, end - begin));
    show(stream, std::exchange(stream.rest, {}));
  }
  extend(stream, std::string_view(text).substr(begin));
  if (stream.terminal != nullptr) stream.terminal->flush();
}

void RankOutput::log(Stream& stream, const std::string& text) {
  stream.file << text << std::flush;
  if (stream.file) return;
  err_ << "[launch] cannot write '" << stream.path << "': " << std::strerror(errno)
       << "; what rank " << rank_ << " writes there from now on is lost" << std::endl;
  stream.file.close();
  has_lost_ = true;
}

void RankOutput::flush() {
  for (Stream& stream : streams_) {
    if (!stream.rest.empty()) show(stream, stream.rest);
    stream.rest.clear();
    if (stream.terminal != nullptr) stream.terminal->flush();
  }
}

void RankOutput::extend(Stream& stream, std::string_view text) {
  stream.rest.append(text);
  std::size_t written = 0;
  for (; stream.rest.size() - written > kLongestLine; written += kLongestLine)
    show(stream, stream.rest.substr(written, kLongestLine));
  stream.rest.erase(0, written);
}

void RankOutput::show(Stream& stream, const std::string& line) {
  if (stream.terminal != nullptr) *stream.terminal << "[rank " << rank_ << "] " << line << '\n';
  stream.last.push_back(line);
  if (stream.last.size() > kLinesKept) stream.last.pop_front();
}

std::string RankOutput::last_lines() const {
  for (int which : {1, 0}) {
    const Stream& stream = streams_[which];
    std::string text;
    for (const std::string& line : stream.last) text += line + '\n';
    text += stream.rest;
    if (!text.empty()) return text;
  }
  return "(nothing)\n";
}

std::string indented(const std::string& text) {
  std::istringstream in(text);
  std::string result;
  for (std::string line; std::getline(in, line);) result += "    " + line + '\n';
  return result;
}

}  // namespace mezzo::ranks
