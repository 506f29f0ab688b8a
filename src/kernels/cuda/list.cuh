// Descriptors of a list on the device. They travel as arguments of a kernel, so that uploading
// needs no pinned memory, waits for nothing and may be captured in a graph; they travel only when
// they differ from what the device has.
//
// Memory that a captured graph refers to is neither written by later calls nor given back before
// the List is: replays find what was there at capture.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/interface.h"
#include "kernels/cuda/launch.cuh"

namespace mezzo::kernels::cuda {

/// Elements that one block works on.
constexpr std::int64_t kChunk = 8192;

/// A piece of device memory that grows.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// At least `bytes`, with nothing in particular in it. `fresh`: not what was returned before.
  /// Null on failure.
  void* reserve(std::size_t bytes, bool capturing, bool fresh = false);
  /// A graph uses the memory that was returned last.
  void keep() { kept_ = true; }
  bool kept() const { return kept_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool kept_ = false;
  std::vector<void*> retired_;  // graphs use them
};

/// Bytes that the device has a copy of.
class DeviceTable {
 public:
  struct Place {
    unsigned char* data = nullptr;  // null on failure
    bool fresh = false;             // what follows the bytes must be written again
  };
  /// The device's copy of `image`, with room for `more` bytes behind it that belong to the same
  /// image.
  Place put(const std::vector<unsigned char>& image, std::size_t more, cudaStream_t stream,
            bool capturing);
  /// Forgets what the device has: the next put() writes.
  void forget() { data_ = nullptr; }

 private:
  DeviceMemory memory_;
  DeviceMemory captured_;
  std::vector<unsigned char> image_;
  unsigned char* data_ = nullptr;
};

// Rows are compared as bytes: they have no padding.

/// One tensor of an elementwise operation or a reduction.
struct ListRow {
  const void* x;
  const void* y;
  void* out;
  std::int64_t count;
  std::int64_t first_chunk;
  DType x_dtype, y_dtype, out_dtype;
  bool packed;
  std::uint32_t unused;
};

/// One parameter of a fused step.
struct StepTensor {
  void* param;
  const void* grad;
  void* state[3];
  void* copy;
  std::int64_t count;
  std::int64_t first_chunk;
  void* remainder;
  std::uint32_t* ties;
  std::int64_t* steps;
  double* running_norm;
  std::uint32_t recipe;
  DType param_dtype, grad_dtype;
  CopyKind copy_kind;
  bool packed;
};

/// The argument of kernels: the rows, and for each chunk its row.
template <typename Row>
struct RowTable {
  const Row* rows = nullptr;
  const std::int32_t* row_of_chunk = nullptr;
  std::int64_t row_count = 0;
  std::int64_t chunks = 0;
};

/// The work of a block: elements begin to end - 1 of a row.
template <typename Row>
struct Part {
  const Row& row;
  std::int64_t begin, end;
};
template <typename Row>
__device__ inline Part<Row> part_of(const RowTable<Row>& table) {
  const std::int64_t chunk = blockIdx.x;
  const Row& row = table.rows[table.row_of_chunk[chunk]];
  const std::int64_t begin = (chunk - row.first_chunk) * kChunk;
  return {row, begin, begin + kChunk < row.count ? begin + kChunk : row.count};
}

class List {
 public:
  explicit List(int device) : device_(device) {}
  int device() const { return device_; }

  /// Begins a call: which stream, and is it being captured?
  bool begin(Stream stream);
  cudaStream_t stream() const { return stream_; }

  /// Ends a call: was everything queued? If not, nothing is taken to be on the device.
  bool end();

  /// The table of these rows; their first_chunk is filled here. `rows` is null on failure.
  template <typename Row>
  RowTable<Row> put(std::vector<Row>& rows);
  /// Null on failure.
  template <typename Recipe>
  const Recipe* put_recipes(const Recipe* recipes, std::int64_t count);
  /// Scratch memory of this call, in the order of stream(); what is captured has its own, since
  /// replays may run beside calls and beside other graphs.
  void* scratch(std::size_t bytes);

  /// Kept from call to call, so that steady calls allocate nothing.
  std::vector<ListRow> list_rows;
  std::vector<StepTensor> step_tensors;

 private:
  RowTable<ListRow> put_image(std::size_t row_bytes, std::int64_t rows, std::int64_t chunks,
                              std::size_t first_chunk_offset);

  int device_;
  cudaStream_t stream_ = nullptr;
  bool capturing_ = false;
  std::vector<unsigned char> image_;
  DeviceTable rows_, recipes_;
  DeviceMemory scratch_, captured_scratch_;
};

}  // namespace mezzo::kernels::cuda
