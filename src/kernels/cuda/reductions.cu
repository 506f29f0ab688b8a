#include "kernels/cuda/reductions.cuh"

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mezzo::kernels::cuda {
namespace {

struct alignas(16) Words {  // read by one instruction
  std::uint32_t of[4];
};

/// Is one of the numbers in these 16 bytes infinite or NaN?
__device__ bool any_bad(const Words& w, DType dtype) {
  bool bad = false;
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16: {
      const std::uint32_t infinity = dtype == DType::kFloat16 ? 0x7c00u : 0x7f80u;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        bad =
            bad || (w.of[k] & infinity) == infinity || (w.of[k] & infinity << 16) == infinity << 16;
      }
      return bad;
    }
    case DType::kFloat64:
      return (w.of[1] & 0x7ff00000u) == 0x7ff00000u || (w.of[3] & 0x7ff00000u) == 0x7ff00000u;
    default:
#pragma unroll
      for (int k = 0; k < 4; ++k) bad = bad || (w.of[k] & 0x7f800000u) == 0x7f800000u;
      return bad;
  }
}

__device__ bool bad_bytes(const void* data, std::int64_t begin, std::int64_t end, bool aligned,
                          DType dtype) {
  const auto size = static_cast<std::int64_t>(element_size(dtype));
  const auto* bytes = static_cast<const unsigned char*>(data);
  const std::int64_t whole = aligned ? begin + (end - begin) * size / 16 * 16 / size : begin;
  const auto* words = reinterpret_cast<const Words*>(bytes + begin * size);
  const std::int64_t count = (whole - begin) * size / 16;
  bool bad = false;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) bad |= any_bad(words[i], dtype);
  for (std::int64_t i = whole + threadIdx.x; i < end; i += kThreads) {
    double value[1];
    Any{dtype}.load(data, i, value);
    bad |= !(value[0] - value[0] == 0);
  }
  return bad;
}

__global__ void __launch_bounds__(kThreads)
    check_kernel(RowTable<ListRow> table, float* found_inf) {
  const Part<ListRow> part = part_of(table);
  const bool aligned = reinterpret_cast<std::uintptr_t>(part.row.x) % 16 == 0;
  if (bad_bytes(part.row.x, part.begin, part.end, aligned, part.row.x_dtype)) *found_inf = 1.0f;
}

/// Squares and their sum are doubles: the square of a finite float never overflows.
struct SquareSum {
  using Join = Sum;
  template <typename S>
  __device__ static double of(double so_far, S x) {
    const auto wide = static_cast<double>(x);
    return so_far + wide * wide;
  }
};
struct Magnitude {
  using Join = Largest;
  template <typename S>
  __device__ static double of(double so_far, S x) {
    const auto wide = static_cast<double>(x);
    return Largest::join(wide < 0 ? -wide : wide, so_far);
  }
};

/// The measured part of a row: a list's tensor, or a parameter's gradient.
struct Measured {
  const void* data;
  DType dtype;
};
__device__ Measured measured(const ListRow& row) {
  return {row.x, row.x_dtype};
}
__device__ Measured measured(const StepTensor& row) {
  return {row.grad, row.grad_dtype};
}

template <typename Measure, typename S, typename Row, typename X>
__device__ double measure(const Part<Row>& part, X x) {
  const void* data = measured(part.row).data;
  double result = 0;
  for_elements(part.begin, part.end, part.row.packed, [&](auto count, std::int64_t i) {
    S values[decltype(count)::value];
    x.load(data, i, values);
#pragma unroll
    for (const S value : values) result = Measure::of(result, value);
  });
  return result;
}

template <typename Measure, typename Row>
__global__ void __launch_bounds__(kThreads) measure_kernel(RowTable<Row> table, double* of_chunk) {
  const Part<Row> part = part_of(table);
  double result = 0;
  switch (measured(part.row).dtype) {
    case DType::kFloat16:
      result = measure<Measure, float>(part, Typed<Half>());
      break;
    case DType::kBFloat16:
      result = measure<Measure, float>(part, Typed<BFloat>());
      break;
    case DType::kFloat64:
      result = measure<Measure, double>(part, Typed<double>());
      break;
    default:
      result = measure<Measure, float>(part, Typed<float>());
      break;
  }
  result = block_reduce<typename Measure::Join, kThreads>(result, 0.0);
  if (threadIdx.x == 0) of_chunk[blockIdx.x] = result;
}

template <typename Join, typename Row>
__global__ void __launch_bounds__(kThreads)
    reduce_rows_kernel(RowTable<Row> table, const double* of_chunk, double* of_row) {
  const Row& row = table.rows[blockIdx.x];
  const std::int64_t chunks = (row.count + kChunk - 1) / kChunk;
  const double* numbers = of_chunk + blockIdx.y * table.chunks + row.first_chunk;
  double result = 0;
  for (std::int64_t i = threadIdx.x; i < chunks; i += kThreads) {
    result = Join::join(result, numbers[i]);
  }
  result = block_reduce<Join, kThreads>(result, 0.0);
  if (threadIdx.x == 0) of_row[blockIdx.y * table.row_count + blockIdx.x] = result;
}

template <typename Join>
__global__ void __launch_bounds__(kThreads)
    reduce_total(const double* of_row, std::int64_t rows, bool root, double* total, double* each,
                 float* found_inf) {
  double result = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += kThreads) {
    result = Join::join(result, of_row[i]);
    if (each != nullptr) each[i] = root ? sqrt(of_row[i]) : of_row[i];
  }
  result = block_reduce<Join, kThreads>(result, 0.0);
  if (threadIdx.x != 0) return;
  if (total != nullptr) *total = root ? sqrt(result) : result;
  if (found_inf != nullptr && !(result - result == 0)) *found_inf = 1.0f;
}

RowTable<ListRow> describe(List& list, const Input* in, std::int64_t count) {
  list.list_rows.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    ListRow row{};
    row.x = in[i].data;
    row.x_dtype = in[i].dtype;
    row.count = in[i].count;
    row.packed = packable(row.x, element_size(row.x_dtype));
    list.list_rows.push_back(row);
  }
  return list.put(list.list_rows);
}

}  // namespace

template <typename Row>
void reduce_rows(const RowTable<Row>& table, int sets, bool largest, const double* of_chunk,
                 double* of_row, cudaStream_t stream) {
  if (table.row_count == 0) return;
  const dim3 grid(static_cast<unsigned>(table.row_count), static_cast<unsigned>(sets));
  launch(stream, grid, kThreads,
         largest ? reduce_rows_kernel<Largest, Row> : reduce_rows_kernel<Sum, Row>, table, of_chunk,
         of_row);
}
template void reduce_rows(const RowTable<ListRow>&, int, bool, const double*, double*,
                          cudaStream_t);
template void reduce_rows(const RowTable<StepTensor>&, int, bool, const double*, double*,
                          cudaStream_t);

void measure_gradients(const RowTable<StepTensor>& table, bool largest, double* of_chunk,
                       double* of_row, cudaStream_t stream) {
  if (table.chunks > 0) {
    launch(stream, static_cast<unsigned>(table.chunks), kThreads,
           largest ? measure_kernel<Magnitude, StepTensor> : measure_kernel<SquareSum, StepTensor>,
           table, of_chunk);
  }
  reduce_rows(table, 1, largest, of_chunk, of_row, stream);
}

bool check(List* list, const Input* in, std::int64_t count, float* found_inf, Stream stream) {
  if (count == 0) return true;
  const OnDevice on(list->device());
  if (!list->begin(stream)) return false;
  const RowTable<ListRow> table = describe(*list, in, count);
  if (table.rows == nullptr) return list->give_up();
  if (table.chunks > 0) {
    launch(list->stream(), static_cast<unsigned>(table.chunks), kThreads, check_kernel, table,
           found_inf);
  }
  return list->end();
}

bool norm(List* list, const Input* in, std::int64_t count, bool largest, double* total,
          double* each, float* found_inf, Stream stream) {
  const OnDevice on(list->device());
  if (!list->begin(stream)) return false;
  RowTable<ListRow> table;
  double* of_chunk = nullptr;
  if (count > 0) {
    table = describe(*list, in, count);
    if (table.rows == nullptr) return list->give_up();
    const auto numbers = static_cast<std::size_t>(table.chunks + table.row_count);
    of_chunk = static_cast<double*>(list->scratch(numbers * sizeof(double)));
    if (of_chunk == nullptr) return list->give_up();
  }
  if (table.chunks > 0) {
    launch(list->stream(), static_cast<unsigned>(table.chunks), kThreads,
           largest ? measure_kernel<Magnitude, ListRow> : measure_kernel<SquareSum, ListRow>, table,
           of_chunk);
  }
  double* of_row = of_chunk + table.chunks;
  reduce_rows(table, 1, largest, of_chunk, of_row, list->stream());
  launch(list->stream(), 1, kThreads, largest ? reduce_total<Largest> : reduce_total<Sum>, of_row,
         table.row_count, !largest, total, each, found_inf);
  return list->end();
}

}  // namespace mezzo::kernels::cuda
