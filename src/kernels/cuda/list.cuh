// Descriptors of a list on the device. They travel as arguments of a kernel, so that uploading
// needs no pinned memory, waits for nothing and may be captured in a graph; they travel only when
// they differ from what the device has.
//
// Memory that a captured graph refers to is neither written by later calls nor given back before
// the List is: replays find what was there at capture.
//
// Note [Streams of a list]: a call on another stream than the last one's waits, on the device, for
// all that the last one has queued: it reads descriptors that were written there, and writes
// scratch memory that is read there. Captures stand aside. A capture may not wait for what was
// queued outside of it, and nobody may wait for an event that was recorded in one: scratch memory
// of a capture is its own, and descriptors are too, unless those of the last call are known to be
// there: written in the order of the same stream, or written and done.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/interface.h"
#include "kernels/cuda/launch.cuh"

namespace mezzo::kernels::cuda {

/// Elements that one block works on.
constexpr std::int64_t kChunk = 8192;

/// The device and the stream of one call, and where its memory comes from.
struct Call {
  int device = 0;
  const Memory* memory = nullptr;  // null: CUDA's own
  cudaStream_t stream = nullptr;
  bool capturing = false;
};

/// A piece of device memory that grows.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// At least `bytes`, with nothing in particular in it. `fresh`: not what was returned before.
  /// Null on failure.
  void* reserve(std::size_t bytes, const Call&, bool fresh = false);
  /// A graph uses the memory that was returned last.
  void keep() { kept_ = true; }
  bool kept() const { return kept_; }
  /// Gives everything back, behind what is queued on the call's stream.
  void release(const Call&);

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
  /// `there`: what the device has may be read.
  Place put(const std::vector<unsigned char>& image, std::size_t more, const Call&, bool there);
  /// Forgets what the device has: the next put() writes.
  void forget() { data_ = nullptr; }
  void release(const Call&);

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

/// The work of a block: elements begin to end - 1 of a row. The row is a copy, which no store to
/// the row's tensors can change: its pointers stay in registers.
template <typename Row>
struct Part {
  Row row;
  std::int64_t begin, end;
};
template <typename Row>
__device__ inline Part<Row> part_of(const RowTable<Row>& table) {
  const std::int64_t chunk = blockIdx.x;
  const Row row = table.rows[table.row_of_chunk[chunk]];
  const std::int64_t begin = (chunk - row.first_chunk) * kChunk;
  return {row, begin, begin + kChunk < row.count ? begin + kChunk : row.count};
}

class List {
 public:
  List(int device, const Memory* memory) { call_ = {.device = device, .memory = memory}; }
  ~List();
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  int device() const { return call_.device; }

  /// Begins a call: which stream, and is it being captured? See Note [Streams of a list].
  bool begin(Stream stream);
  cudaStream_t stream() const { return call_.stream; }

  /// Ends a call: was everything queued? If not, nothing is taken to be on the device.
  bool end();
  /// Ends a call that failed: false.
  bool give_up();

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

  void note_queued();
  bool last_call_is_done() const;

  Call call_;
  bool any_queued_ = false;
  cudaStream_t last_stream_ = nullptr;  // of the last call outside of captures
  cudaEvent_t last_queued_ = nullptr;   // behind that call; null: none was recorded
  std::vector<unsigned char> image_;
  DeviceTable rows_, recipes_;
  DeviceMemory scratch_, captured_scratch_;
};

}  // namespace mezzo::kernels::cuda
