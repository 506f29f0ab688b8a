// Text as numbers: a dictionary of the words that occur, and the text as their places in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

namespace examples {

class Dictionary {
 public:
  /// The word's place; a new word gets the next one.
  std::int64_t add(const std::string& word);
  /// Fills up with words that never occur, so that the size is a multiple of `factor`: matrix units
  /// work on blocks.
  void pad_to_multiple_of(std::int64_t factor);
  const std::string& word(std::int64_t place) const {
    return words_.at(static_cast<std::size_t>(place));
  }
  std::int64_t size() const { return static_cast<std::int64_t>(words_.size()); }

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int64_t> places_;
};

struct Corpus {
  Dictionary dictionary;
  at::Tensor train, valid, test;  ///< [words] each, int64; the end of a line is the word "<eos>"
};

/// Reads a folder with train.txt, valid.txt and test.txt, or one text file, whose lines are shared
/// out in that order, 80, 10 and 10 of a hundred. Throws mezzo::Error where a file cannot be read
/// or a part holds no words.
Corpus read_corpus(const std::filesystem::path& place);

/// [words] as [words / columns, columns]: each column goes on where the one before ends. Words left
/// over are dropped.
at::Tensor in_columns(const at::Tensor& words, std::int64_t columns);

}  // namespace examples
