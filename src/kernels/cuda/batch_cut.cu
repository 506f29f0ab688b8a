#include "kernels/cuda/batch_norms.cuh"

namespace mezzo::kernels::cuda {
namespace {

constexpr std::int64_t kBlocksOfProcessor = 8;
/// The least work of a thread, in turns of its loop.
constexpr std::int64_t kTurns = 4;

std::int64_t at_least_one(std::int64_t count) {
  return count < 1 ? 1 : count;
}
std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
std::int64_t parts_of(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

std::int64_t blocks_wanted(int device) {
  int processors = 0;
  if (!succeeded(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) ||
      processors < 1) {
    processors = 1;
  }
  return processors * kBlocksOfProcessor;
}

int power_of_two_for(std::int64_t count, int most) {
  int power = 1;
  while (power < most && power < count) power *= 2;
  return power;
}

void cut_rows(BatchCut& cut, std::int64_t wanted) {
  const BatchShape& shape = cut.shape;
  cut.along = power_of_two_for(parts_of(shape.channels, cut.width), kWarp);
  const std::int64_t tiles = at_least_one(parts_of(shape.channels, cut.along * cut.width));
  const std::int64_t useful = parts_of(shape.samples, kThreads / cut.along * kTurns);
  cut.places = 1;
  cut.samples =
      at_least_one(parts_of(shape.samples, at_least_one(smaller(wanted / tiles, useful))));
  cut.pieces = at_least_one(parts_of(shape.samples, cut.samples));
}

void cut_planes(BatchCut& cut, std::int64_t wanted) {
  const BatchShape& shape = cut.shape;
  cut.along = power_of_two_for(parts_of(shape.places, cut.width), kThreads);
  const std::int64_t across = kThreads / cut.along;
  const std::int64_t useful = parts_of(shape.count(), kThreads * cut.width * kTurns);
  const std::int64_t pieces = at_least_one(smaller(wanted / at_least_one(shape.channels), useful));
  const std::int64_t by_samples = at_least_one(smaller(pieces, parts_of(shape.samples, across)));
  cut.samples = at_least_one(parts_of(shape.samples, by_samples));
  const std::int64_t sample_pieces = at_least_one(parts_of(shape.samples, cut.samples));
  const std::int64_t turn = cut.along * cut.width;
  const std::int64_t of_places = parts_of(shape.places, at_least_one(pieces / sample_pieces));
  cut.places = at_least_one(parts_of(of_places, turn)) * turn;
  cut.place_pieces = at_least_one(parts_of(shape.places, cut.places));
  cut.pieces = sample_pieces * cut.place_pieces;
}

}  // namespace

dim3 BatchCut::grid() const {
  const std::int64_t tiles =
      innermost() ? parts_of(shape.channels, static_cast<std::int64_t>(along) * width)
                  : shape.channels;
  return {static_cast<unsigned>(tiles), static_cast<unsigned>(pieces)};
}

BatchCut batch_cut(const BatchShape& shape, int width, int device) {
  BatchCut cut;
  cut.shape = shape;
  cut.width = width;
  cut.innermost() ? cut_rows(cut, blocks_wanted(device)) : cut_planes(cut, blocks_wanted(device));
  return cut;
}

int batch_width(const BatchShape& shape, int width, BatchBuffers buffers) {
  const std::int64_t beside = shape.places == 1 ? shape.channels : shape.places;
  bool whole = beside % width == 0;
  for (const Rows& buffer : buffers) {
    const std::size_t bytes = static_cast<std::size_t>(width) * element_size(buffer.dtype);
    whole = whole && reinterpret_cast<std::uintptr_t>(buffer.data) % bytes == 0;
  }
  return whole ? width : 1;
}

bool all_alike(BatchBuffers buffers) {
  const DType x = buffers.begin()->dtype;
  for (const Rows& buffer : buffers) {
    if (buffer.data != nullptr && buffer.dtype != x) return false;
  }
  return x != DType::kFloat64;
}

}  // namespace mezzo::kernels::cuda
