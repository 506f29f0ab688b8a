#include "search/journal.h"

#include <fstream>
#include <sstream>
#include <string_view>

#include "core/raise.h"

namespace mezzo::search {
namespace {

// One line whatever the text holds.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\\') {
      line += "\\\\";
    } else if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line + '\n';
}

std::string content_of_journal(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A line is a digit a candidate, a blank, and the answer.
std::optional<std::pair<Selection, bool>> read_answer(std::string_view line, std::size_t count) {
  if (line.size() != count + 2 || line[count] != ' ') return std::nullopt;
  Selection selection;
  for (std::size_t i = 0; i < count; ++i) selection.push_back(line[i] == '1');
  return std::pair{std::move(selection), line.back() == '1'};
}

}  // namespace

Journal::Journal(std::filesystem::path path, const std::string& purpose,
                 const std::vector<std::string>& candidates)
    : path_(std::move(path)), heading_("mezzo search 1\n" + one_line(purpose)) {
  for (const std::string& name : candidates) heading_ += one_line(name);
  heading_ += '\n';
  if (path_.empty()) return;
  const std::string text = content_of_journal(path_);
  if (!text.starts_with(heading_)) return;
  std::size_t begin = heading_.size();
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (auto answer = read_answer(line, candidates.size())) answers_.insert(std::move(*answer));
  }
  // After a line that was cut off, the file is written anew.
  is_begun_ = begin == text.size();
}

std::optional<bool> Journal::find(const Selection& selection) const {
  const auto found = answers_.find(selection);
  if (found == answers_.end()) return std::nullopt;
  return found->second;
}

void Journal::add(const Selection& selection, bool good) {
  answers_[selection] = good;
  if (path_.empty()) return;
  std::ofstream out(path_, std::ios::binary | (is_begun_ ? std::ios::app : std::ios::trunc));
  const auto write = [&out](const Selection& kept, bool answer) {
    for (const bool is_kept : kept) out << (is_kept ? '1' : '0');
    out << ' ' << (answer ? '1' : '0') << '\n';
  };
  if (is_begun_) {
    write(selection, good);
  } else {
    out << heading_;
    for (const auto& [kept, answer] : answers_) write(kept, answer);
  }
  out.flush();
  if (!out) {
    raise("smallest_float_set", "the journal '", path_.string(),
          "' cannot be written; name a file in a folder that exists and may be written");
  }
  is_begun_ = true;
}

void Journal::close() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace mezzo::search
