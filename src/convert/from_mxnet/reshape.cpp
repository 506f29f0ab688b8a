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

}  // namespace

std::vector<TargetSize> target_sizes(const Dims& codes, std::optional<std::size_t> rank,
                                     const std::optional<Dims>& dims) {
  return CodeReader(codes, rank, dims).read();
}

}  // namespace mezzo::convert::mxnet
