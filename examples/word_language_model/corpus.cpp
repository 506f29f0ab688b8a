#include "word_language_model/corpus.h"

#include <mezzo/error.h>
#include <torch/types.h>

#include <fstream>
#include <sstream>

namespace examples {

namespace {

constexpr const char* kEndOfLine = "<eos>";
constexpr std::int64_t kBlock = 8;

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file))
    throw mezzo::Error("cannot read text '" + file.string() + "'");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

template <class Line>
at::Tensor numbers(Dictionary& dictionary, Line begin, Line end,
                   const std::filesystem::path& file) {
  std::vector<std::int64_t> places;
  for (Line line = begin; line != end; ++line) {
    std::istringstream words(*line);
    for (std::string word; words >> word;) places.push_back(dictionary.add(word));
    places.push_back(dictionary.add(kEndOfLine));
  }
  if (places.empty())
    throw mezzo::Error("text '" + file.string() + "' is too short: a part of it has no words");
  return torch::tensor(places, at::kLong);
}

at::Tensor whole_file(Dictionary& dictionary, const std::filesystem::path& file) {
  const std::vector<std::string> lines = read_lines(file);
  return numbers(dictionary, lines.begin(), lines.end(), file);
}

}  // namespace

std::int64_t Dictionary::add(const std::string& word) {
  const auto [place, is_new] = places_.try_emplace(word, size());
  if (is_new) words_.push_back(word);
  return place->second;
}

void Dictionary::pad_to_multiple_of(std::int64_t factor) {
  for (int i = 0; size() % factor != 0; ++i) add("<pad" + std::to_string(i) + '>');
}

Corpus read_corpus(const std::filesystem::path& place) {
  Corpus corpus;
  Dictionary& dictionary = corpus.dictionary;
  if (std::filesystem::is_directory(place)) {
    corpus.train = whole_file(dictionary, place / "train.txt");
    corpus.valid = whole_file(dictionary, place / "valid.txt");
    corpus.test = whole_file(dictionary, place / "test.txt");
  } else {
    const std::vector<std::string> lines = read_lines(place);
    const auto count = static_cast<std::ptrdiff_t>(lines.size());
    const auto valid = lines.begin() + count * 8 / 10, test = lines.begin() + count * 9 / 10;
    corpus.train = numbers(dictionary, lines.begin(), valid, place);
    corpus.valid = numbers(dictionary, valid, test, place);
    corpus.test = numbers(dictionary, test, lines.end(), place);
  }
  dictionary.pad_to_multiple_of(kBlock);
  return corpus;
}

at::Tensor in_columns(const at::Tensor& words, std::int64_t columns) {
  const std::int64_t rows = words.size(0) / columns;
  if (rows < 2) {
    throw mezzo::ConfigError("the text is too short for " + std::to_string(columns) +
                             " columns: a part has " + std::to_string(words.size(0)) + " words");
  }
  return words.slice(0, 0, rows * columns).view({columns, rows}).t().contiguous();
}

}  // namespace examples
