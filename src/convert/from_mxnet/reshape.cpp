#include "convert/from_mxnet/reshape.h"

#include <algorithm>

#include "core/raise.h"

namespace mezzo::convert::mxnet {
namespace {

class CodeReader {
 public:
  CodeReader(const Dims& codes, std::optional<std::size_t> rank, const std::optional<Dims>& dims)
      : codes_(codes), rank_(rank), dims_(dims) {}

  std::vector<TargetSize> read() {
    for (std::size_t i = 0; i < codes_.size(); ++i) {
      const std::int64_t code = codes_[i];
      if (code > 0)
        give(code);
      else if (code == 0)
        result_.push_back(copied(1));
      else if (code == -1)
        give_rest();
      else if (code == -2)
        copy_all();
      else if (code == -3)
        result_.push_back(copied(2));
      else if (code == kSkipOne)
        skip_one();
      else if (code == -4 && i + 2 < codes_.size()) {
        split(codes_[i + 1], codes_[i + 2]);
        i += 2;
      } else {
        fail("it has the code " + std::to_string(code) + " where none can be");
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] static void fail(const std::string& what) {
    raise<ConfigError>("mxnet", what, "; expected sizes, 0, -1 once, -2, -3, or -4 and two sizes");
  }

  void give(std::int64_t number) {
    result_.push_back({TargetSize::Kind::kNumber, number, {}});
    ++source_;
  }

  TargetSize copied(std::size_t count) {
    TargetSize size{TargetSize::Kind::kOfInput, 1, {}};
    for (std::size_t i = 0; i < count; ++i) {
      if (rank_ && source_ >= *rank_) fail("it copies a size that the input does not have");
      size.axes.push_back(source_++);
    }
    return size;
  }

  void give_rest() {
    if (has_rest_) fail("it has two unknown sizes");
    has_rest_ = true;
    result_.push_back({TargetSize::Kind::kRest, 1, {}});
    ++source_;
  }

  void skip_one() {
    if (rank_ && source_ >= *rank_) fail("it skips a size that the input does not have");
    if (dims_ && (*dims_)[source_] > 1) fail("it skips a size that is not 1");
    ++source_;
  }

  void copy_all() {
    if (!rank_) fail("it copies the rest of an input whose shape is not known");
    while (source_ < *rank_) result_.push_back(copied(1));
  }

  void split(std::int64_t first, std::int64_t second) {
    const TargetSize whole = copied(1);
    const std::size_t axis = whole.axes.front();
    const std::int64_t size = dims_ && axis < dims_->size() ? (*dims_)[axis] : kUnknownSize;
    if (first < -1 || second < -1 || first == 0 || second == 0 || (first == -1 && second == -1))
      fail("-4 is followed by sizes that cannot be");
    if (size >= 0 && first == -1) first = size / second;
    if (size >= 0 && second == -1) second = size / first;
    for (const std::int64_t part : {first, second}) {
      if (part > 0) {
        result_.push_back({TargetSize::Kind::kNumber, part, {}});
      } else {  // the only unknown one, as long as no other is
        if (has_rest_) fail("it splits a size that is not known and has another rest");
        has_rest_ = true;
        result_.push_back({TargetSize::Kind::kRest, 1, {}});
      }
    }
  }

  const Dims& codes_;
  std::optional<std::size_t> rank_;
  const std::optional<Dims>& dims_;
  std::size_t source_ = 0;
  bool has_rest_ = false;
  std::vector<TargetSize> result_;
};

// The number that a size is, or kUnknownSize.
std::int64_t known_size(const TargetSize& size, const Operand& x) {
  if (size.kind == TargetSize::Kind::kNumber) return size.number;
  if (size.kind == TargetSize::Kind::kRest) return kUnknownSize;
  std::int64_t result = 1;
  for (const std::size_t axis : size.axes) {
    const std::int64_t dim = x.dims && axis < x.dims->size() ? (*x.dims)[axis] : kUnknownSize;
    result = dim < 0 || result < 0 ? kUnknownSize : result * dim;
  }
  return result;
}

// Sizes that are known in a run alone, as a list that the model computes.
Operand computed_target(Call& call, const Operand& x, const std::vector<TargetSize>& target) {
  Operands parts;
  for (const TargetSize& size : target) {
    const std::int64_t number = known_size(size, x);
    if (number >= 0 || size.kind != TargetSize::Kind::kOfInput) {
      parts.push_back(call.writer.integers({number >= 0 ? number : -1}));
      continue;
    }
    Operand result = call.size(x, static_cast<std::int64_t>(size.axes.front()));
    for (std::size_t i = 1; i < size.axes.size(); ++i)
      result = call.broadcast("Mul", result, call.size(x, static_cast<std::int64_t>(size.axes[i])));
    parts.push_back(result);
  }
  return call.concat(parts, 0);
}

}  // namespace

std::vector<TargetSize> target_sizes(const Dims& codes, std::optional<std::size_t> rank,
                                     const std::optional<Dims>& dims) {
  return CodeReader(codes, rank, dims).read();
}

Operand reshaped(Call& call, const Operand& x, const std::vector<TargetSize>& target) {
  Dims dims, codes;
  std::size_t unknown = 0, index_of_unknown = 0;
  bool is_plain = true;
  for (std::size_t i = 0; i < target.size(); ++i) {
    dims.push_back(known_size(target[i], x));
    const bool copies_in_place = target[i].kind == TargetSize::Kind::kOfInput &&
                                 target[i].axes == std::vector<std::size_t>{i};
    codes.push_back(dims[i] > 0 ? dims[i] : copies_in_place ? 0 : -1);
    is_plain = is_plain && dims[i] != 0;
    if (codes[i] == -1) {
      ++unknown;
      index_of_unknown = i;
    }
  }
  const std::int64_t count = x.dims ? product(*x.dims) : kUnknownSize;
  if (unknown == 1 && count > 0 && std::ranges::count(dims, kUnknownSize) == 1) {
    dims[index_of_unknown] = 1;
    dims[index_of_unknown] = count / std::max<std::int64_t>(1, product(dims));
  }
  if (is_plain && unknown <= 1) return call.reshape(x, codes, dims);
  return call.add("Reshape", {x, computed_target(call, x, target)}, {}, {x.element, dims});
}

Operand reshape_by_codes(Call& call, const Operand& x, Dims codes, bool is_reversed) {
  const std::optional<std::size_t> rank =
      x.dims ? std::optional(x.dims->size()) : std::optional<std::size_t>();
  std::optional<Dims> dims = x.dims;
  if (is_reversed) {  // codes count from the back
    if (!rank) call.dims(x);
    std::ranges::reverse(codes);
    if (std::ranges::find(codes, -4) != codes.end())  // which stands before its sizes
      call.refuse("a split size under reverse=True; expected other codes");
    std::ranges::reverse(*dims);
  }
  std::vector<TargetSize> target;
  try {
    target = target_sizes(codes, rank, dims);
  } catch (const ConfigError& error) {
    const std::string key = call.has("shape") ? "shape" : "newshape";
    call.refuse("its shape is " + call.text(key, "()") + ": " + error.what());
  }
  if (is_reversed) {
    std::ranges::reverse(target);
    for (TargetSize& size : target)
      for (std::size_t& axis : size.axes) axis = *rank - 1 - axis;
  }
  return reshaped(call, x, target);
}

}  // namespace mezzo::convert::mxnet
