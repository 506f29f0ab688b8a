// Counts of n-grams.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using Gram = std::vector<std::int64_t>;

/// The n-grams that are counted, with their places in the pool.
std::map<Gram, std::size_t> grams_of(const Call& c, const Gram& pool) {
  const std::vector<std::int64_t> starts = c.integers("ngram_counts");
  std::map<Gram, std::size_t> grams;
  for (std::size_t n = 1; n <= starts.size(); ++n) {
    const std::int64_t end = n < starts.size() ? starts[n] : static_cast<std::int64_t>(pool.size());
    if (starts[n - 1] < 0 || end > static_cast<std::int64_t>(pool.size()))
      refuse("ngram_counts beyond the pool");
    for (auto at = static_cast<std::size_t>(starts[n - 1]); at + n <= static_cast<std::size_t>(end);
         at += n) {
      const auto first = pool.begin() + static_cast<std::ptrdiff_t>(at);
      grams.emplace(Gram(first, first + static_cast<std::ptrdiff_t>(n)), grams.size());
    }
  }
  return grams;
}

/// How often each place of the pool occurs in a row; items of a gram may be some apart.
std::vector<double> counts_in(const Gram& row, const std::map<Gram, std::size_t>& grams,
                              const Call& c) {
  std::vector<double> counts(grams.size(), 0);
  const auto at_least = [&](const char* name, std::int64_t otherwise, std::int64_t least) {
    return static_cast<std::size_t>(std::max(c.integer(name, otherwise), least));
  };
  const std::size_t most =
      std::min(at_least("max_gram_length", 1, 0), c.integers("ngram_counts").size());
  std::size_t least = at_least("min_gram_length", 1, 1);
  const std::size_t skips = at_least("max_skip_count", 0, 0);
  for (std::size_t distance = 1; distance <= std::min(skips + 1, row.size()); ++distance) {
    for (std::size_t begin = 0; begin < row.size(); ++begin) {
      Gram gram;
      for (std::size_t at = begin; at < row.size() && gram.size() < most; at += distance) {
        gram.push_back(row[at]);
        const auto found = gram.size() < least ? grams.end() : grams.find(gram);
        if (found != grams.end()) counts[found->second] += 1;
      }
    }
    // Single items have no distance.
    least = std::max<std::size_t>(least, 2);
  }
  return counts;
}

Tensors tf_idf(const Call& c) {
  const Gram pool = c.integers("pool_int64s");
  if (pool.empty()) refuse("a pool of strings");
  const std::map<Gram, std::size_t> grams = grams_of(c, pool);
  const std::vector<std::int64_t> columns = c.integers("ngram_indexes");
  const std::vector<double> weights = c.numbers("weights");
  if (grams.empty() || columns.size() != grams.size() ||
      (!weights.empty() && weights.size() != grams.size()))
    refuse("ngram_indexes or weights for other than ", grams.size(), " n-grams");
  if (std::ranges::min(columns) < 0) refuse("a column before the first");
  const std::int64_t width = std::ranges::max(columns) + 1;
  if (width > std::int64_t{1} << 26) refuse(width, " columns");
  const std::string mode = c.text("mode", "TF");
  const at::Tensor& x = c.in(0);
  if (x.dim() < 1 || x.dim() > 2) refuse("rows of ", x.dim(), " axes");
  const bool is_batch = x.dim() == 2;
  const std::int64_t rows = is_batch ? x.size(0) : 1;
  const Gram items = c.list(0);
  const auto length = static_cast<std::ptrdiff_t>(x.size(-1));
  at::Tensor y = at::zeros({rows, width}, at::TensorOptions(at::kFloat));
  auto* out = y.mutable_data_ptr<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto first = items.begin() + static_cast<std::ptrdiff_t>(r) * length;
    const std::vector<double> counts = counts_in(Gram(first, first + length), grams, c);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const double count = mode == "IDF" ? (counts[i] > 0 ? 1.0 : 0.0) : counts[i];
      const double weight = weights.empty() || mode == "TF" ? 1 : weights[i];
      out[r * width + columns[i]] = static_cast<float>(count * weight);
    }
  }
  return {is_batch ? y : y.squeeze(0)};
}

// Sorted by name.
constexpr TorchOperator kNgramsOperators[] = {{"TfIdfVectorizer", tf_idf}};

}  // namespace

std::span<const TorchOperator> ngram_operators() {
  return kNgramsOperators;
}

}  // namespace mezzo::convert
