// Scale, axpby and copies over a list; see elementwise.cu.
#pragma once

#include "kernels/cuda/list.cuh"

namespace mezzo::kernels::cuda {

bool scale(List*, const Input* in, const Output* out, std::int64_t count, double factor,
           const double* factor_on_device, float* found_inf, Stream);
bool axpby(List*, const Input* x, const Input* y, const Output* out, std::int64_t count, double a,
           double b, const double* each, float* found_inf, Stream);
bool copy(List*, const Input* in, const Output* out, std::int64_t count, Stream);
bool copy_if(List*, const Input* in, const Output* out, std::int64_t count, const float* flag,
             Stream);
bool update_scale_on(float* scale, std::int32_t* unskipped, std::int32_t* stuck,
                     const float* found_inf, const ScaleRule*, int device, Stream);

}  // namespace mezzo::kernels::cuda
