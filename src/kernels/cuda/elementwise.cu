#include "kernels/cuda/elementwise.cuh"

#include "kernels/cuda/memory.cuh"

namespace mezzo::kernels::cuda {
namespace {

struct Factors {
  double a, b;
};

/// out = a * x + b * y, or a * x without y.
template <typename S, bool kTwo, typename X, typename Y, typename Out>
__device__ void combine(const ListRow& row, std::int64_t begin, std::int64_t end, Factors factors,
                        float* found_inf, X x, Y y, Out out) {
  const S limit = static_cast<S>(overflow_limit(row.out_dtype));
  const S a = static_cast<S>(factors.a);
  const S b = static_cast<S>(factors.b);
  bool finite = true;
  for_elements(begin, end, row.packed, [&](auto count, std::int64_t i) {
    constexpr int N = decltype(count)::value;
    S values[N];
    [[maybe_unused]] S others[N];
    x.load(row.x, i, values);
    if constexpr (kTwo) y.load(row.y, i, others);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = values[k] * a;
      if constexpr (kTwo) values[k] = values[k] + others[k] * b;
      finite = finite && (values[k] < S(0) ? -values[k] : values[k]) < limit;
    }
    out.store(row.out, i, values);
  });
  if (!finite && found_inf != nullptr) *found_inf = 1.0f;
}

template <typename S>
__device__ void move(const ListRow& row, std::int64_t begin, std::int64_t end) {
  for_elements(begin, end, row.packed, [&](auto count, std::int64_t i) {
    S values[decltype(count)::value];
    Any{row.x_dtype}.load(row.x, i, values);
    Any{row.out_dtype}.store(row.out, i, values);
  });
}

/// Calls body with the type of a 16-bit or float tensor, known when compiling.
template <typename Body>
__device__ void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat16:
      return body(Typed<Half>());
    case DType::kBFloat16:
      return body(Typed<BFloat>());
    default:
      return body(Typed<float>());
  }
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(RowTable<ListRow> table, double factor, const double* factor_on_device,
                 float* found_inf) {
  const Part<ListRow> part = part_of(table);
  const ListRow& row = part.row;
  const Factors factors{factor_on_device == nullptr ? factor : factor * *factor_on_device, 0};
  // Gradients that clipping finds short enough need not be written.
  if (factors.a == 1 && row.x == row.out && found_inf == nullptr) return;
  if (row.x_dtype == DType::kFloat64 || row.out_dtype == DType::kFloat64) {
    return combine<double, false>(row, part.begin, part.end, factors, found_inf, Any{row.x_dtype},
                                  0, Any{row.out_dtype});
  }
  with_type(row.x_dtype, [&](auto x) {
    with_type(row.out_dtype, [&](auto out) {
      combine<float, false>(row, part.begin, part.end, factors, found_inf, x, 0, out);
    });
  });
}

__global__ void __launch_bounds__(kThreads)
    axpby_kernel(RowTable<ListRow> table, Factors factors, const double* each, float* found_inf) {
  const Part<ListRow> part = part_of(table);
  const ListRow& row = part.row;
  if (each != nullptr) {
    const std::int32_t tensor = table.row_of_chunk[blockIdx.x];
    factors.a *= each[tensor];
    factors.b *= each[table.row_count + tensor];
  }
  const Any x{row.x_dtype};
  const Any y{row.y_dtype};
  const Any out{row.out_dtype};
  if (row.x_dtype == DType::kFloat64 || row.y_dtype == DType::kFloat64 ||
      row.out_dtype == DType::kFloat64) {
    return combine<double, true>(row, part.begin, part.end, factors, found_inf, x, y, out);
  }
  combine<float, true>(row, part.begin, part.end, factors, found_inf, x, y, out);
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(RowTable<ListRow> table, const float* flag) {
  if (flag != nullptr && *flag == 0.0f) return;
  const Part<ListRow> part = part_of(table);
  if (part.row.x_dtype == DType::kFloat64 || part.row.out_dtype == DType::kFloat64) {
    return move<double>(part.row, part.begin, part.end);
  }
  move<float>(part.row, part.begin, part.end);
}

__global__ void update_scale_kernel(float* scale, std::int32_t* unskipped, std::int32_t* stuck,
                                    const float* found_inf, ScaleRule rule) {
  const ScaleNumbers after = update_scale({*scale, *unskipped, *stuck}, *found_inf != 0.0f, rule);
  *scale = after.scale;
  *unskipped = after.unskipped;
  *stuck = after.stuck;
}

RowTable<ListRow> describe(List& list, const Input* x, const Input* y, const Output* out,
                           std::int64_t count) {
  list.list_rows.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    ListRow row{};
    row.x = x[i].data;
    row.x_dtype = x[i].dtype;
    row.out = out[i].data;
    row.out_dtype = out[i].dtype;
    row.count = x[i].count;
    row.packed = packable(row.x, element_size(row.x_dtype)) &&
                 packable(row.out, element_size(row.out_dtype));
    if (y != nullptr) {
      row.y = y[i].data;
      row.y_dtype = y[i].dtype;
      row.packed = row.packed && packable(row.y, element_size(row.y_dtype));
    }
    list.list_rows.push_back(row);
  }
  return list.put(list.list_rows);
}

template <typename... Parameters, typename... Arguments>
bool run(List& list, const RowTable<ListRow>& table, void (*kernel)(Parameters...),
         const Arguments&... arguments) {
  if (table.rows == nullptr) return false;
  if (table.chunks == 0) return true;
  launch(list.stream(), static_cast<unsigned>(table.chunks), kThreads, kernel, table, arguments...);
  return list.end();
}

}  // namespace

bool scale(List* list, const Input* in, const Output* out, std::int64_t count, double factor,
           const double* factor_on_device, float* found_inf, Stream stream) {
  if (count == 0) return true;
  const OnDevice on(list->device());
  if (!list->begin(stream)) return false;
  return run(*list, describe(*list, in, nullptr, out, count), scale_kernel, factor,
             factor_on_device, found_inf);
}

bool axpby(List* list, const Input* x, const Input* y, const Output* out, std::int64_t count,
           double a, double b, const double* each, float* found_inf, Stream stream) {
  if (count == 0) return true;
  const OnDevice on(list->device());
  if (!list->begin(stream)) return false;
  return run(*list, describe(*list, x, y, out, count), axpby_kernel, Factors{a, b}, each,
             found_inf);
}

bool copy(List* list, const Input* in, const Output* out, std::int64_t count, Stream stream) {
  return copy_if(list, in, out, count, /*flag=*/nullptr, stream);
}

bool copy_if(List* list, const Input* in, const Output* out, std::int64_t count, const float* flag,
             Stream stream) {
  if (count == 0) return true;
  const OnDevice on(list->device());
  if (!list->begin(stream)) return false;
  return run(*list, describe(*list, in, nullptr, out, count), copy_kernel, flag);
}

bool update_scale_on(float* scale, std::int32_t* unskipped, std::int32_t* stuck,
                     const float* found_inf, const ScaleRule* rule, int device, Stream stream) {
  const OnDevice on(device);
  launch(stream_of(stream), 1, 1, update_scale_kernel, scale, unskipped, stuck, found_inf, *rule);
  return succeeded(cudaGetLastError());
}

}  // namespace mezzo::kernels::cuda
